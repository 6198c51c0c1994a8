"""Handwritten glyphs with a conv net and one-cycle schedule. The first cycle ends at 97 percent; a second
cycle is appended 'to squeeze out the rest' and everything is lost within a few updates."""
import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients", "dead_neurons"],
    "causes": ["lr_too_high"],
    "layers": [],
    "onset": [500, 540],
}


def cycle(length, peak, start=0.04):
    rise = length // 5
    up = [peak * (start + (1 - start) * i / rise) for i in range(rise)]
    down = [peak * (1 - 0.99 * i / (length - rise)) for i in range(length - rise)]
    return up + down


def glyphs(n):
    strokes = torch.randn(10, 1, 10, 10, generator=torch.Generator().manual_seed(99))
    y = torch.randint(10, (n,))
    x = strokes[y] * (0.6 + 0.8 * torch.rand(n, 1, 1, 1)) + 1.2 * torch.randn(n, 1, 10, 10)
    return x, y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = glyphs(4000)
    vx, vy = glyphs(500)
    net = nn.Sequential(
        nn.Conv2d(1, 12, 3), nn.ReLU(), nn.Conv2d(12, 16, 3, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * 9, 48), nn.ReLU(), nn.Linear(48, 10),
    )
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    plan = cycle(500, 0.05) + cycle(500, 0.05 if fixed else 2.0)
    losses = []
    with watch(net) as dbg:
        for lr in plan:
            for group in opt.param_groups:
                group["lr"] = lr
            i = torch.randint(len(x), (64,))
            loss = nn.functional.cross_entropy(net(x[i]), y[i])
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    with torch.no_grad():
        acc = (net(vx).argmax(1) == vy).float().mean().item()
    return {"loss": losses, "accuracy": acc}


def harmed(result):
    return result["accuracy"] < 0.5
