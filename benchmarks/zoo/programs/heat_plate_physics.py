"""Temperature of a plate from few probes plus a physics term (the heat equation must hold). The term
is printed with every step, and it grows and grows, whatever its weight."""
import torch
from torch import nn

TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["detached_loss_term"],
    "layers": [],
    "onset": [0, 0],
}


class Field(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, place):
        return self.net(place)


def residual(field, place, step=0.1):
    """Five-point Laplacian of the field at the places."""
    dx, dy = torch.tensor([step, 0.0]), torch.tensor([0.0, step])
    around = field(place + dx) + field(place - dx) + field(place + dy) + field(place - dy)
    return (around - 4 * field(place)) / step**2


def physics(field, place, learnable):
    if learnable:
        return residual(field, place).square().mean()
    return torch.tensor(residual(field, place).square().mean().item())


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    probes = 2 * torch.rand(40, 2) - 1
    reading = probes[:, :1] ** 2 - probes[:, 1:] ** 2 + probes[:, :1] * probes[:, 1:] + 0.15 * torch.randn(40, 1)
    field = Field()
    optimizer = torch.optim.Adam(field.parameters(), lr=5e-3)
    losses, law = [], []
    with watch(field) as dbg:
        for step in range(400):
            fit = nn.functional.mse_loss(field(probes), reading)
            heat = physics(field, 2 * torch.rand(64, 2) - 1, learnable=fixed)
            loss = fit + 0.1 * heat
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            law.append(heat.item())
    return {"loss": losses, "law": law}


def harmed(result):
    return sum(result["law"][-30:]) / 30 > 0.2
