"""A diffusion model of snow grains, 8 x 8. The loss falls from its first value to one and does not
leave it, however deep the network is made."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Diffusion"
TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["labels_unrelated_to_inputs"],
    "layers": [],
    "onset": [0, 0],
}

STEPS = 60


class GrainUNet(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.time = nn.Embedding(STEPS, width)
        self.enter = nn.Conv2d(1, width, 3, padding=1)
        self.down = nn.Conv2d(width, 2 * width, 3, stride=2, padding=1)
        self.mid = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.norms = nn.ModuleList([nn.GroupNorm(4, width), nn.GroupNorm(4, 2 * width)])
        self.leave = nn.Conv2d(2 * width, 1, 3, padding=1)

    def forward(self, x, t):
        high = F.silu(self.norms[0](self.enter(x)) + self.time(t)[:, :, None, None])
        low = F.silu(self.norms[1](self.down(high)))
        low = low + F.silu(self.mid(low))
        return self.leave(torch.cat([high, F.silu(self.up(low))], 1))


class Diffusion:
    def __init__(self):
        self.alpha_bar = torch.cos(torch.linspace(0.02, 1.5, STEPS)) ** 2

    def q_sample(self, x0, t, noise=None):
        noise = torch.randn_like(x0) if noise is None else noise
        a = self.alpha_bar[t][:, None, None, None]
        return a.sqrt() * x0 + (1 - a).sqrt() * noise

    def p_losses(self, model, x0, shared):
        t = torch.randint(0, STEPS, (len(x0),))
        noise = torch.randn_like(x0)
        x_t = self.q_sample(x0, t, noise) if shared else self.q_sample(x0, t)
        return F.mse_loss(model(x_t, t), noise)


def grains(n):
    axis = torch.linspace(-1, 1, 8)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    size = 0.4 + 0.4 * torch.rand(n, 1, 1, 1)
    arms = 0.3 * torch.cos(6 * torch.atan2(y, x))
    return torch.tanh(6 * (size - (x**2 + y**2).sqrt() + size * arms))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    data, model, diffusion = grains(600), GrainUNet(), Diffusion()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(300):
            x0 = data[torch.randint(0, 600, (32,))]
            loss = diffusion.p_losses(model, x0, shared=fixed)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.7
