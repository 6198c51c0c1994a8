"""Stochastic descent with warm restarts: three times the rate falls to nearly nothing and jumps back. The loss jumps
with it, each cycle ends lower."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def prototypes(g):
    return torch.nn.functional.interpolate(torch.randn(10, 1, 4, 4, generator=g), 12, mode="bilinear")


def digits(n, proto):
    kind = torch.randint(0, 10, (n,))
    dx, dy = torch.randint(-2, 3, (2,)).tolist()
    return torch.roll(proto[kind], (dx, dy), (2, 3)) + 0.8 * torch.randn(n, 1, 12, 12), kind


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    proto = prototypes(torch.Generator().manual_seed(seed))
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.2), nn.Linear(288, 10),
    )
    opt = torch.optim.SGD(model.parameters(), lr=0.15, momentum=0.9, nesterov=True, weight_decay=5e-4)
    plan = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=60, T_mult=2, eta_min=1e-4)
    losses = []
    with watch(model) as dbg:
        for _ in range(420):
            image, kind = digits(48, proto)
            loss = F.cross_entropy(model(image), kind)
            opt.zero_grad()
            loss.backward()
            opt.step()
            plan.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "learned": sum(losses[-30:]) / 30 < 0.3}


def harmed(result):
    return False
