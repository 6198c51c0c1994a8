"""Fits the radiation pattern of an antenna with a small net on top of sinc features.

The loss is nan a few iterations into the run, with any learning rate.
"""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["masked_nan_gradient"],
    "layers": ["sinc"],
    "onset": [4, 4],
}


class SincFeatures(nn.Module):
    def __init__(self, count, safe):
        super().__init__()
        self.rate = nn.Parameter(torch.linspace(1.0, 20.0, count))
        self.safe = safe

    def forward(self, angle):
        z = angle * self.rate
        if self.safe:
            zero = z == 0
            z = torch.where(zero, torch.ones_like(z), z)
            return torch.where(zero, torch.ones_like(z), torch.sin(z) / z)
        return torch.where(z == 0, torch.ones_like(z), torch.sin(z) / z)


class PatternNet(nn.Module):
    def __init__(self, safe, count=24):
        super().__init__()
        self.sinc = SincFeatures(count, safe)
        self.mlp = nn.Sequential(nn.Linear(count, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, 1))

    def forward(self, angle):
        return self.mlp(self.sinc(angle))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    angle = torch.linspace(-1, 1, 513)[:, None]
    pattern = torch.sinc(4 * angle) + 0.3 * torch.cos(9 * angle) * angle
    net = PatternNet(safe=fixed)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-4)
    losses = []
    with watch(net) as dbg:
        for sweep in range(60):
            for k in range(0, 513, 57):
                pred = net(angle[k : k + 57])
                loss = torch.mean((pred - pattern[k : k + 57]) ** 2)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
                losses.append(loss.item())
                dbg.record_loss(losses[-1])
    with torch.no_grad():
        rmse = (net(angle) - pattern).pow(2).mean().sqrt().item()
    return {"loss": losses, "rmse": rmse}


def harmed(result):
    return not result["rmse"] < 0.15
