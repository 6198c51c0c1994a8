"""Normal operation of machines mapped close to a learned centre, far means faulty. The distances of
good and bad machines are all the same tiny number at the end of training."""
import torch
from torch import nn

TRUTH = {
    "failures": ["representation_collapse"],
    "causes": ["embedding_collapse"],
    "layers": ["map", "map.0", "map.1", "map.2", "map.3", "map.4"],
    "onset": [0, 80],
}


class Sphere(nn.Module):
    def __init__(self, keep, inputs=16, out=8):
        super().__init__()
        self.map = nn.Sequential(nn.Linear(inputs, 48), nn.ELU(), nn.Linear(48, 48), nn.ELU(), nn.Linear(48, out))
        self.rebuild = nn.Linear(out, inputs) if keep else None
        self.centre = nn.Parameter(torch.zeros(out))

    def distance(self, x):
        return (self.map(x) - self.centre).square().sum(1)


def machines(n, axes):
    return torch.randn(n, len(axes)) @ axes + 0.1 * torch.randn(n, axes.shape[1])


class Objective:
    def __init__(self, keep):
        self.keep = keep

    def __call__(self, model, x):
        code = model.map(x)
        pull = (code - model.centre).square().sum(1).mean()
        if not self.keep:
            return pull
        return 0.01 * pull + (model.rebuild(code) - x).square().mean()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    axes = torch.randn(4, 16) / 2
    model = Sphere(keep=fixed)
    objective = Objective(keep=fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(350):
            loss = objective(model, machines(64, axes))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    with torch.no_grad():
        code = model.map(machines(500, axes))
    return {"loss": losses, "spread": code.std(0).mean().item()}


def harmed(result):
    return result["spread"] < 0.1
