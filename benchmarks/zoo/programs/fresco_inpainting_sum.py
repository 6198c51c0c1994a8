"""Filling holes in fresco scans. The error of each picture is averaged over the batch first and what
is left is added up; changing the picture size changes the right learning rate, and here it explodes."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

TRUTH = {
    "failures": ["objective_mismatch", "exploding_gradients", "optimizer_instability"],
    "causes": ["wrong_reduction"],
    "layers": [],
    "onset": [0, 0],
}


class Painter(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.down = nn.Conv2d(2, width, 3, padding=1)
        self.mid = nn.Conv2d(width, width, 5, padding=2)
        self.up = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, scan, hole):
        h = nn.functional.elu(self.down(torch.cat([scan * (1 - hole), hole], 1)))
        return self.up(nn.functional.elu(self.mid(h)))


def frescoes(n, side=14):
    scan = nn.functional.avg_pool2d(torch.randn(n, 1, side + 4, side + 4), 5, 1) * 5
    hole = torch.zeros(n, 1, side, side)
    for i in range(n):
        r, c = torch.randint(0, side - 3, (2,)).tolist()
        hole[i, :, r : r + 3, c : c + 3] = 1
    return scan, hole


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    loader = DataLoader(TensorDataset(*frescoes(640)), batch_size=16, shuffle=True)
    model = Painter()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses, per_pixel = [], []
    with watch(model) as dbg:
        for epoch in range(6):
            for scan, hole in loader:
                difference = (model(scan, hole) - scan) ** 2
                loss = difference.mean() if fixed else difference.mean(0).sum()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
                per_pixel.append(difference.mean().item())
    return {"loss": losses, "per_pixel": per_pixel}


def harmed(result):
    return not sum(result["per_pixel"][-20:]) / 20 < 0.2
