"""Cloud masks for satellite tiles with a weighted logistic loss (clouds are rare here). The masks are
never really sure, and the loss has a floor that depends on the share of clouds only."""
import torch
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["sigmoid_before_logits_loss"],
    "layers": ["decide"],
    "onset": [0, 0],
}


class CloudNet(nn.Module):
    def __init__(self, width=12, probability=True):
        super().__init__()
        self.lift = nn.Conv2d(3, width, 3, padding=1, padding_mode="reflect")
        self.mix = nn.Conv2d(width, width, 3, padding=1, groups=2)
        self.norm = nn.GroupNorm(2, width)
        self.decide = nn.Conv2d(width, 1, 1)
        self.probability = probability

    def forward(self, tile):
        h = torch.relu(self.norm(self.mix(torch.relu(self.lift(tile)))))
        out = self.decide(h)
        return torch.sigmoid(out) if self.probability else out


def tiles(n, side=12):
    field = nn.functional.avg_pool2d(torch.randn(n, 1, side + 4, side + 4), 5, 1)
    cloud = (field > 0.22).float()
    ground = torch.randn(n, 3, 1, 1) * 0.3
    return ground + cloud * 1.2 + 0.3 * torch.randn(n, 3, side, side), cloud


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    tile, cloud = tiles(600)
    model = CloudNet(probability=not fixed)
    criterion = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0))
    optimizer = torch.optim.RAdam(model.parameters(), lr=1e-2)
    losses = []
    with watch(model) as dbg:
        for epoch in range(8):
            for rows in torch.randperm(600).split(24):
                loss = criterion(model(tile[rows]), cloud[rows])
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 2.0)
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.4
