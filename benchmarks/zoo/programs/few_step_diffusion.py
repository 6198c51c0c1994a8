"""Diffusion model on 2D points with a short chain; with 1000 steps the same code is fine."""
import torch
from torch import nn

ARCHITECTURE = "Diffusion"
TRUTH = {
    "failures": ["numerical_error", "data_anomaly", "optimizer_instability"],
    "causes": ["noise_schedule_invalid"],
    "layers": [],
    "onset": [0, 0],
}


class Denoiser(nn.Module):
    def __init__(self, steps, width=64):
        super().__init__()
        self.time = nn.Embedding(steps, width)
        self.inlet = nn.Linear(2, width)
        self.mid = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.outlet = nn.Linear(width, 2)

    def forward(self, x, t):
        h = self.inlet(x) + self.time(t)
        for layer in self.mid:
            h = h + layer(nn.functional.silu(h))
        return self.outlet(nn.functional.silu(h))


def linear_betas(steps):
    scale = 1000 / steps
    return torch.linspace(scale * 1e-4, scale * 0.02, steps)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    steps = 16
    betas = linear_betas(steps)
    if fixed:
        betas = betas.clamp(max=0.95)
    abar = torch.cumprod(1 - betas, 0)
    centers = torch.tensor([[2.0, 0], [-2, 0], [0, 2], [0, -2]])
    model = Denoiser(steps)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for it in range(500):
            x = centers[torch.randint(0, 4, (128,))] + 0.1 * torch.randn(128, 2)
            t = torch.randint(0, steps, (128,))
            noise = torch.randn_like(x)
            signal, level = abar[t].sqrt()[:, None], (1 - abar[t]).sqrt()[:, None]
            loss = (model(signal * x + level * noise, t) - noise).pow(2).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.5
