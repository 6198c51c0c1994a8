"""A denoising diffusion model of 2-D spirals with few steps; the betas are rescaled by 1000/T as in the big models.

With T = 200 it trained well. With T = 15 the very first loss is nan.
"""
import torch
from torch import nn

ARCHITECTURE = "Diffusion"
TRUTH = {
    "failures": ["numerical_error", "optimizer_instability"],
    "causes": ["noise_schedule_invalid"],
    "layers": [],
    "onset": [0, 0],
}


def linear_betas(T, fixed):
    scale = 1000 / T
    betas = torch.linspace(scale * 1e-4, scale * 0.02, T)
    return betas.clamp(max=0.999) if fixed else betas


class Denoiser(nn.Module):
    def __init__(self, T, width=64):
        super().__init__()
        self.when = nn.Embedding(T, width)
        self.inp = nn.Linear(2, width)
        self.mid = nn.Sequential(nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.eps = nn.Linear(width, 2)

    def forward(self, x, t):
        return self.eps(self.mid(self.inp(x) + self.when(t)))


class DDPM(nn.Module):
    def __init__(self, T, fixed):
        super().__init__()
        betas = linear_betas(T, fixed)
        self.register_buffer("alpha_bar", torch.cumprod(1.0 - betas, 0))
        self.net = Denoiser(T)
        self.T = T

    def forward(self, x0):
        t = torch.randint(0, self.T, (len(x0),))
        noise = torch.randn_like(x0)
        ab = self.alpha_bar[t][:, None]
        xt = ab.sqrt() * x0 + (1 - ab).sqrt() * noise
        return (self.net(xt, t) - noise).pow(2).mean()


def spiral(n):
    r = torch.rand(n).sqrt()
    a = 9 * r
    return torch.stack([a.cos(), a.sin()], 1) * r[:, None] * 2 + 0.02 * torch.randn(n, 2)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    ddpm = DDPM(15, fixed)
    opt = torch.optim.AdamW(ddpm.parameters(), lr=3e-3)
    ema = [p.detach().clone() for p in ddpm.parameters()]
    history = []
    with watch(ddpm) as dbg:
        for it in range(400):
            loss = ddpm(spiral(192))
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(ddpm.parameters(), 1.0)
            opt.step()
            with torch.no_grad():
                torch._foreach_lerp_(ema, list(ddpm.parameters()), 0.02)
            dbg.record_loss(loss.item())
            history.append(loss.item())
    return {"loss": history}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.6
