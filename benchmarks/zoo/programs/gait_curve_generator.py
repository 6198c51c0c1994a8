"""A variational model of gait curves with a recurrent decoder. The code carries nothing: each
sample is the mean curve, and the code's own loss goes to zero in the first steps."""
import math

import torch
from torch import nn

ARCHITECTURE = "VAE / autoencoder"
TRUTH = {
    "failures": ["representation_collapse", "objective_mismatch"],
    "causes": ["posterior_collapse", "wrong_reduction"],
    "layers": [],
    "onset": [0, 100],
}
POINTS, CODE = 20, 4


class Gait(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.GRU(1, 32, batch_first=True)
        self.mean, self.logvar = nn.Linear(32, CODE), nn.Linear(32, CODE)
        self.start = nn.Linear(CODE, 32)
        self.write = nn.GRU(1 + CODE, 32, batch_first=True)
        self.point = nn.Linear(32, 1)

    def forward(self, curve):
        _, h = self.read(curve)
        mean, logvar = self.mean(h[0]), self.logvar(h[0])
        code = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        place = torch.linspace(-1, 1, POINTS)[None, :, None].expand(len(curve), -1, 1)
        inputs = torch.cat([place, code[:, None].expand(-1, POINTS, -1)], -1)
        states, _ = self.write(inputs, self.start(code)[None].tanh())
        return self.point(states), mean, logvar


def curves(n):
    t = torch.linspace(0, 2 * math.pi, POINTS)
    height, shift = 0.5 + torch.rand(n, 1), torch.rand(n, 1) * 2 * math.pi
    return (height * torch.sin(t + shift) + 0.05 * torch.randn(n, POINTS))[..., None]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Gait()
    opt = torch.optim.Adam(model.parameters(), lr=5e-3)
    recs, kls = [], []
    with watch(model) as dbg:
        for _ in range(400):
            curve = curves(64)
            out, mean, logvar = model(curve)
            error = (out - curve).square()
            rec = error.sum((1, 2)).mean() / 0.1 if fixed else error.mean()
            kl = -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(1).mean()
            loss = rec + kl
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            dbg.record_loss(loss.item())
            dbg.record_loss(kl.item(), name="kl")
            recs.append(error.mean().item())
            kls.append(kl.item())
    return {"error": recs, "kl": kls}


def harmed(result):
    return sum(result["kl"][-20:]) / 20 < 0.3 and sum(result["error"][-20:]) / 20 > 0.2
