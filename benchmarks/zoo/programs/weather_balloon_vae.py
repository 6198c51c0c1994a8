"""Profiles of temperature from weather balloons through a small VAE; the team wants the codes, so the codes must carry
something."""

import torch
from torch import nn
from torch.nn import functional as F

ARCHITECTURE = "VAE / autoencoder"
CODE = ["encode", "encode.0", "encode.2", "mu", "logvar", "decode", "decode.0", "decode.2"]
FAULTS = {
    "heavy_prior": {
        "failures": ["representation_collapse"],
        "causes": ["posterior_collapse"],
        "layers": CODE,
        "onset": [0, 200],
    },
    "wide_variance": {
        "failures": ["numerical_error", "exploding_gradients", "optimizer_instability"],
        "causes": ["exp_overflow", "init_too_large"],
        "layers": ["logvar", "mu", ""],
        "onset": [0, 20],
    },
    "code_cut_off": {
        "failures": ["training_wiring", "vanishing_gradients"],
        "causes": ["detached_graph", "detached_loss_term"],
        "layers": ["encode", "encode.0", "encode.2", "mu", "logvar", ""],
        "onset": [0, 0],
    },
}


class VAE(nn.Module):
    def __init__(self, levels=20, code=3):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(levels, 48), nn.ELU(), nn.Linear(48, 32), nn.ELU())
        self.mu, self.logvar = nn.Linear(32, code), nn.Linear(32, code)
        self.decode = nn.Sequential(nn.Linear(code, 48), nn.ELU(), nn.Linear(48, levels))

    def forward(self, x, cut=False):
        h = self.encode(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        z = z.data if cut else z
        return self.decode(z), mu, logvar


def profiles(n, levels=20):
    height = torch.linspace(0, 1, levels)
    ground, slope, place = torch.randn(n, 1), torch.randn(n, 1), torch.rand(n, 1)
    x = ground - (1.5 + slope) * height + 1.2 * torch.sigmoid(25 * (height - place))
    return (x - x.mean()) / x.std() + 0.05 * torch.randn(n, levels)


def train(watch, fixed=False, seed=0, fault="heavy_prior", severity=1.0):
    torch.manual_seed(seed)
    on = "" if fixed else fault
    x = profiles(2000)
    held = profiles(300)
    vae = VAE()
    if on == "wide_variance":
        nn.init.normal_(vae.logvar.weight, std=60 * severity)
    beta = 30.0 * severity if on == "heavy_prior" else 0.02
    optimizer = torch.optim.Adam(vae.parameters(), lr=3e-3)
    losses = []
    with watch(vae) as dbg:
        for i in range(400):
            batch = x[torch.randint(0, len(x), (64,))]
            out, mu, logvar = vae(batch, cut=on == "code_cut_off")
            fit = F.mse_loss(out, batch)
            kl = -0.5 * (1 + logvar - mu.square() - logvar.exp()).sum(1).mean()
            loss = fit + (0.0 if on == "code_cut_off" else beta) * kl
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            dbg.record_loss(kl.item(), "kl")
            losses.append(loss.item())
    with torch.no_grad():
        out, mu, _ = vae(held)
        left = F.mse_loss(out, held) / held.var()
    return {"loss": losses, "left": left.item(), "code": mu.std(0).mean().item()}


def harmed(result):
    return not result["left"] < 0.25
