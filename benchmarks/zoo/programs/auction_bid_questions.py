"""Winning bids from sets of offers: attention with a learned question, whose parameters have a learning
rate of their own. After some dozens of steps each set is judged by a single offer and the error stays."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["representation_collapse", "optimizer_instability", "vanishing_gradients"],
    "causes": ["attention_collapse", "lr_too_high"],
    "layers": ["pool", "pool.key"],
    "onset": [0, 60],
}


class AskPool(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.ask = nn.Parameter(torch.randn(width) / width**0.5)
        self.key, self.value = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        share = torch.softmax(self.key(x) @ self.ask, -1)
        return (share[..., None] * self.value(x)).sum(1), share


class BidModel(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.offer = nn.Linear(5, width)
        self.pool = AskPool(width)
        self.price = nn.Sequential(nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(self, offers):
        h, share = self.pool(torch.relu(self.offer(offers)))
        return self.price(h).squeeze(1), share


def auctions(n, size=12):
    offers = torch.randn(n, size, 5)
    weight = torch.softmax(offers[..., 0] * 0.7, 1)
    return offers, 3 * (weight * (offers[..., 1] + offers[..., 2].abs())).sum(1) - 2.4


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = BidModel()
    asking = [model.pool.ask, *model.pool.key.parameters()]
    others = [p for p in model.parameters() if all(p is not q for q in asking)]
    groups = [{"params": others}, {"params": asking, "lr": 3e-3 if fixed else 0.3}]
    optimizer = torch.optim.Adam(groups, lr=3e-3)
    losses, entropy = [], []
    with watch(model) as dbg:
        for step in range(400):
            offers, price = auctions(64)
            guess, share = model(offers)
            loss = F.mse_loss(guess, price)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            entropy.append(-(share * (share + 1e-9).log()).sum(1).mean().item())
    return {"loss": losses, "entropy": entropy}


def harmed(result):
    return sum(result["entropy"][-20:]) / 20 < 0.2
