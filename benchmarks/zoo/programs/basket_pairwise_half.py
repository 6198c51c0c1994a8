"""Spending per shopping basket with a factorisation machine, in half precision to save memory.

The big baskets of the week before the holidays make the loss NaN; the small ones never did.
"""
import torch
from torch import nn

TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["half_precision_overflow"],
    "layers": ["pairwise"],
    "onset": [22, 22],
}
ITEMS, FACTORS = 120, 64


class Pairwise(nn.Module):
    """Sum over item pairs by the square-of-sum trick, one number per basket."""

    def __init__(self, dtype):
        super().__init__()
        self.factor = nn.Parameter(0.3 + 0.3 * torch.randn(ITEMS, FACTORS))
        self.dtype = dtype

    def forward(self, counts):
        counts, factor = counts.to(self.dtype), self.factor.to(self.dtype)
        both = (counts @ factor).square() - counts.square() @ factor.square()
        total = 0.5 * both.sum(1, keepdim=True)
        return (total.sign() * torch.log1p(total.abs())).float()


class SpendingModel(nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.pairwise = Pairwise(dtype)
        self.linear = nn.Linear(ITEMS, 16)
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(17, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, counts):
        return self.head(torch.cat([self.linear(counts.log1p()), self.pairwise(counts)], 1)).squeeze(1)


def baskets(n):
    counts = torch.poisson(torch.full((n, ITEMS), 0.15))
    counts[22 * 40 : 23 * 40] = torch.poisson(torch.full((40, ITEMS), 5.0))
    price = torch.rand(ITEMS) * 4
    return counts, torch.log1p(counts @ price) - 3


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    counts, spending = baskets(40 * 60)
    model = SpendingModel(torch.float32 if fixed else torch.float16)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for week in range(4):
            for c, s in zip(counts.split(40), spending.split(40)):
                optimizer.zero_grad()
                loss = nn.functional.smooth_l1_loss(model(c), s)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                dbg.record_loss(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.06
