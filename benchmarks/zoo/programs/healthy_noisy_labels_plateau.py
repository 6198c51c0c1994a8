"""Forty percent of the labels are wrong, so the loss stays on a plateau near its floor; a plateau scheduler cuts
the rate twice. On clean test labels the net is right nearly always."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def annotated(n, prototypes, wrong):
    y = torch.randint(4, (n,))
    x = prototypes[y] + torch.randn(n, 12)
    flip = torch.rand(n) < wrong
    return x, torch.where(flip, torch.randint(4, (n,)), y)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    prototypes = 1.3 * torch.randn(4, 12)
    x, y = annotated(8000, prototypes, 0.4)
    model = nn.Sequential(nn.Linear(12, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 4))
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-3)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.2, patience=1, threshold=0.01)
    losses = []
    with watch(model) as dbg:
        for epoch in range(10):
            model.train()
            total = 0.0
            for i in torch.randperm(8000).split(64):
                loss = nn.functional.cross_entropy(model(x[i]), y[i])
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
                dbg.record_loss(losses[-1])
                total += losses[-1]
            plateau.step(total / 125)
    model.eval()
    tx, ty = annotated(1000, prototypes, 0.0)
    with torch.no_grad():
        clean = (model(tx).argmax(1) == ty).float().mean().item()
    return {"loss": losses, "clean_accuracy": clean, "lr": opt.param_groups[0]["lr"], "learned": clean > 0.9}


def harmed(result):
    return False
