"""Diffusion on two moons. 1000 steps work; with 20 steps (schedule scaled so the total noise is the same,
as in the guided-diffusion code) the loss is NaN immediately."""
import torch
from torch import nn

ARCHITECTURE = "Diffusion"
TRUTH = {
    "failures": ["numerical_error", "optimizer_instability"],
    "causes": ["noise_schedule_invalid"],
    "layers": [],
    "onset": [0, 0],
}


class EpsNet(nn.Module):
    def __init__(self, steps):
        super().__init__()
        self.t_emb = nn.Embedding(steps, 32)
        self.net = nn.Sequential(nn.Linear(34, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 2))

    def forward(self, x, t):
        return self.net(torch.cat([x, self.t_emb(t)], -1))


class DDPM(nn.Module):
    def __init__(self, eps_model, betas):
        super().__init__()
        self.eps_model = eps_model
        alphas = 1.0 - betas
        self.register_buffer("betas", betas)
        self.register_buffer("alpha_bar", torch.cumprod(alphas, 0))

    def forward(self, x0):
        t = torch.randint(0, len(self.betas), (len(x0),))
        noise = torch.randn_like(x0)
        ab = self.alpha_bar[t, None]
        xt = torch.sqrt(ab) * x0 + torch.sqrt(1 - ab) * noise
        return ((noise - self.eps_model(xt, t)) ** 2).mean()


def make_betas(steps, clip):
    scale = 1000 / steps
    betas = torch.linspace(scale * 1e-4, scale * 0.02 * 1.2, steps)
    return betas.clamp(max=0.999) if clip else betas


def moons(n):
    a = torch.rand(n) * 3.1416
    up = torch.rand(n) < 0.5
    x = torch.where(up, a.cos(), 1 - a.cos())
    y = torch.where(up, a.sin(), 0.5 - a.sin())
    return (torch.stack([x - 0.5, y - 0.25], 1) + 0.05 * torch.randn(n, 2)) * 1.3


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    ddpm = DDPM(EpsNet(20), make_betas(20, clip=fixed))
    opt = torch.optim.Adam(ddpm.parameters(), lr=2e-3)
    losses = []
    with watch(ddpm) as dbg:
        for i in range(300):
            loss = ddpm(moons(128))
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.5
