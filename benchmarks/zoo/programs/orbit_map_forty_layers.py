"""A forty layer network learns one turn of a twisted map of the plane. More depth should be
no problem, but it ends at the variance of the targets."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["vanishing_gradients", "exploding_gradients", "optimizer_instability"],
    "causes": ["deep_without_residual", "init_too_small"],
    "layers": ["steps"] + [f"steps.{i}" for i in range(40)] + [f"steps.{i}.lin" for i in range(40)],
    "onset": [0, 0],
}


class Step(nn.Module):
    def __init__(self, width, skip):
        super().__init__()
        self.lin = nn.Linear(width, width)
        self.skip = skip

    def forward(self, h):
        branch = torch.relu(self.lin(h))
        return h + 0.12 * branch if self.skip else branch


class Flow(nn.Module):
    def __init__(self, width=24, depth=40, skip=False):
        super().__init__()
        self.lift = nn.Linear(2, width)
        self.steps = nn.ModuleList(Step(width, skip) for _ in range(depth))
        self.drop = nn.Linear(width, 2)

    def forward(self, point):
        h = self.lift(point)
        for step in self.steps:
            h = step(h)
        return self.drop(h)


def twist(n):
    point = torch.randn(n, 2)
    angle = 1.5 * point.norm(dim=1)
    c, s = angle.cos(), angle.sin()
    return point, torch.stack([c * point[:, 0] - s * point[:, 1], s * point[:, 0] + c * point[:, 1]], 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Flow(skip=True) if fixed else Flow()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(350):
            point, turned = twist(96)
            loss = nn.functional.mse_loss(model(point), turned)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.5
