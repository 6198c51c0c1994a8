"""Moth species from wing spectra with dropout and batch norm. The validation between epochs forgets eval()."""
import torch
from torch import nn

TRUTH = {"failures": ["training_wiring"], "causes": ["train_mode_in_eval"], "layers": [], "onset": [0, 60]}


class Moth(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(40, 96), nn.BatchNorm1d(96), nn.ReLU(), nn.Dropout(0.5), nn.Linear(96, 64), nn.ReLU(), nn.Dropout(0.5))
        self.name = nn.Linear(64, 8)

    def forward(self, x):
        return self.name(self.body(x))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    centre = torch.randn(8, 40)
    kind = torch.randint(0, 8, (1200,))
    wing = centre[kind] + 1.6 * torch.randn(1200, 40)
    model = Moth()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses, shares = [], []
    with watch(model) as dbg:
        for _ in range(10):
            for rows in torch.randperm(1000).split(25):
                loss = nn.functional.cross_entropy(model(wing[rows]), kind[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
            if fixed:
                model.eval()
            with torch.no_grad():
                order = 1000 + kind[1000:].argsort()
                right = [(model(wing[part]).argmax(1) == kind[part]).float().mean().item() for part in order.split(8)]
            shares.append(sum(right) / len(right))
            model.train()
    return {"loss": losses, "share": shares}


def harmed(result):
    return sum(result["share"][-3:]) / 3 < 0.75
