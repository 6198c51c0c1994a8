"""Forty per cent of the training labels are wrong and labels are smoothed: the loss plateaus high above zero, and the
classifier is right on clean data."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    mu = 1.3 * torch.randn(10, 24)

    def draw(n):
        y = torch.randint(0, 10, (n,))
        return mu[y] + torch.randn(n, 24), y

    model = nn.Sequential(nn.Linear(24, 128), nn.LayerNorm(128), nn.GELU(), nn.Linear(128, 10))
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
    losses = []
    with watch(model) as dbg:
        for step in range(600):
            x, y = draw(64)
            wrong = torch.rand(64) < 0.4
            y = torch.where(wrong, torch.randint(0, 10, (64,)), y)
            opt.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    x, y = draw(2000)
    with torch.no_grad():
        acc = (model(x).argmax(1) == y).float().mean().item()
    return {"loss": losses, "acc": acc, "learned": acc > 0.9}


def harmed(result):
    return False
