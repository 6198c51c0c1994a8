"""A catalogue of five thousand items, sparse embeddings with SparseAdam beside Adam for the rest; most rows get no gradient
in most steps."""

import torch
from torch import nn

ARCHITECTURE = "Embedding / factorisation"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Catalogue(nn.Module):
    def __init__(self, items=5000, width=12):
        super().__init__()
        self.item = nn.Embedding(items, width, sparse=True)
        self.score = nn.Sequential(nn.Linear(2 * width, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, a, b):
        return self.score(torch.cat([self.item(a), self.item(b)], 1)).squeeze(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Catalogue()
    optimizers = [
        torch.optim.SparseAdam(model.item.parameters(), lr=2e-2),
        torch.optim.Adam(model.score.parameters(), lr=3e-3),
    ]
    shelf = torch.rand(5000)
    popular = torch.randperm(5000)[:150]
    losses = []
    with watch(model) as dbg:
        for step in range(500):
            a, b = popular[torch.randint(0, 150, (128,))], popular[torch.randint(0, 150, (128,))]
            together = ((shelf[a] - shelf[b]).abs() < 0.3).float()
            loss = nn.functional.binary_cross_entropy_with_logits(model(a, b), together)
            for o in optimizers:
                o.zero_grad()
            loss.backward()
            for o in optimizers:
                o.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "learned": sum(losses[-20:]) / 20 < 0.3}


def harmed(result):
    return False
