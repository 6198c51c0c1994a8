"""Orchid varieties from petal measures; memory allows two flowers per batch, and every layer is batch-normalised."""
import torch
from torch import nn

TRUTH = {"failures": ["optimizer_instability", "numerical_error"], "causes": ["single_sample_statistics"], "layers": ["body.1", "body.4", "body"], "onset": [0, 0]}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    centre = torch.randn(6, 16)
    kind = torch.randint(0, 6, (800,))
    petal = centre[kind] + 0.7 * torch.randn(800, 16)

    class Orchid(nn.Module):
        def __init__(self):
            super().__init__()
            norm = nn.LayerNorm if fixed else nn.BatchNorm1d
            self.body = nn.Sequential(nn.Linear(16, 48), norm(48), nn.ReLU(), nn.Linear(48, 48), norm(48), nn.ReLU())
            self.name = nn.Linear(48, 6)

        def forward(self, x):
            return self.name(self.body(x))

    model = Orchid()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    with watch(model) as dbg:
        for _ in range(500):
            rows = torch.randint(0, 800, (2,))
            loss = nn.functional.cross_entropy(model(petal[rows]), kind[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-60:]) / 60 > 1.2
