"""A diffusion model for daily tide curves. The noise is predicted almost perfectly from the second
epoch on, and yet sampling from it blows up."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Diffusion"
TRUTH = {
    "failures": ["optimizer_instability", "numerical_error", "objective_mismatch"],
    "causes": ["noise_schedule_invalid"],
    "layers": [],
    "onset": [0, 0],
}

STEPS, POINTS = 100, 24


class Schedule:
    def __init__(self, fixed):
        beta = torch.linspace(1e-3, 0.08, STEPS)
        self.alpha_bar = torch.cumprod(1 - beta if fixed else beta, 0)

    def noisy(self, clean, noise, t):
        keep = self.alpha_bar[t][:, None]
        return keep.sqrt() * clean + (1 - keep).sqrt() * noise


class TideDenoiser(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, width), nn.SiLU())
        self.inlet = nn.Linear(POINTS, width)
        self.middle = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.outlet = nn.Linear(width, POINTS)
        self.register_buffer("pace", 2.0 ** torch.arange(4))

    def forward(self, curve, t):
        angle = 3.1416 * t[:, None] / STEPS * self.pace
        when = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        h = F.silu(self.inlet(curve) + when)
        for layer in self.middle:
            h = h + F.silu(layer(h) + when)
        return self.outlet(h)


def curves(n):
    hour = torch.arange(POINTS) * 6.2832 / 12.4
    spring = 1 + 0.3 * torch.randn(n, 1)
    return spring * torch.sin(hour + 6.2832 * torch.rand(n, 1)) + 0.2 * torch.sin(hour / 2)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    schedule, model = Schedule(fixed), TideDenoiser()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(500):
            clean = curves(64)
            t, noise = torch.randint(0, STEPS, (64,)), torch.randn(64, POINTS)
            loss = F.mse_loss(model(schedule.noisy(clean, noise, t), t), noise)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    clean, t = curves(300), torch.full((300,), 25)
    noise = torch.randn_like(clean)
    keep = schedule.alpha_bar[25]
    with torch.no_grad():
        noisy = schedule.noisy(clean, noise, t)
        back = (noisy - (1 - keep).sqrt() * model(noisy, t)) / keep.sqrt()
    return {"loss": losses, "error": F.mse_loss(back, clean).item()}


def harmed(result):
    return not result["error"] < 0.4
