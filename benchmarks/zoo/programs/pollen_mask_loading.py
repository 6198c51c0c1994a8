"""Pollen in microscope slides; masks are read as whole numbers and divided by 255 on loading. The loss
is almost zero after one epoch and the network marks no pollen at all."""
import torch
from torch import nn

TRUTH = {
    "failures": ["data_anomaly", "objective_mismatch"],
    "causes": ["degenerate_targets"],
    "layers": [],
    "onset": [0, 0],
}


def slides(n, grey, side=12):
    """Slides and masks as stored: grains are marked with the given grey value."""
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    cy, cx = torch.randint(2, side - 2, (2, n, 1, 1))
    mask = ((y - cy) ** 2 + (x - cx) ** 2 <= 5).to(torch.uint8) * grey
    slide = (mask > 0).float() + 0.4 * torch.randn(n, side, side)
    return slide[:, None], mask[:, None]


def load(mask, divisor):
    return (mask // divisor).float()


class PollenNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.scan = nn.Conv2d(1, 12, 3, padding=1)
        self.norm = nn.BatchNorm2d(12)
        self.mark = nn.Conv2d(12, 1, 3, padding=1)

    def forward(self, slide):
        return self.mark(torch.relu(self.norm(self.scan(slide))))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    slide, mask = slides(640, grey=250)
    wanted = load(mask, 250 if fixed else 255)
    net = PollenNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses = []
    with watch(net) as dbg:
        for epoch in range(8):
            for rows in torch.randperm(640).split(32):
                optimizer.zero_grad()
                loss = nn.functional.binary_cross_entropy_with_logits(net(slide[rows]), wanted[rows])
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    net.eval()
    with torch.no_grad():
        marked = net(slide) > 0
    grain = mask > 0
    overlap = (marked & grain).sum() / (marked | grain).sum()
    return {"loss": losses, "overlap": overlap.item()}


def harmed(result):
    return result["overlap"] < 0.6
