"""A VAE over cough spectra that should later make new ones. Both terms of the loss are logged and
look alive, yet what is drawn from the prior resembles no cough."""

from dataclasses import dataclass

import torch
from torch import nn

ARCHITECTURE = "VAE / autoencoder"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["detached_loss_term"],
    "layers": [],
    "onset": [0, 0],
}


@dataclass
class Settings:
    bins: int = 40
    latent: int = 4
    hidden: int = 64
    beta: float = 1.0
    lr: float = 2e-3
    steps: int = 450


class SpectrumVAE(nn.Module):
    def __init__(self, s):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(s.bins, s.hidden), nn.SiLU())
        self.mean = nn.Linear(s.hidden, s.latent)
        self.log_var = nn.Linear(s.hidden, s.latent)
        self.decode = nn.Sequential(
            nn.Linear(s.latent, s.hidden), nn.SiLU(), nn.Linear(s.hidden, s.bins)
        )

    def forward(self, x):
        h = self.encode(x)
        mean, log_var = self.mean(h), self.log_var(h)
        z = mean + torch.randn_like(mean) * torch.exp(log_var / 2)
        return {"x": self.decode(z), "mean": mean, "log_var": log_var}


class CoughBank:
    def __init__(self, s):
        self.basis = torch.randn(3, s.bins)

    def draw(self, n):
        strength = torch.randn(n, 3)
        return strength @ self.basis / 3**0.5 + 0.3 * torch.randn(n, self.basis.shape[1])


class Trainer:
    def __init__(self, model, s, fixed):
        self.model, self.s, self.fixed = model, s, fixed
        self.optimizer = torch.optim.Adam(model.parameters(), lr=s.lr)
        self.log = {"fit": 0.0, "kl": 0.0}

    def step(self, x):
        out = self.model(x)
        fit = 0.5 * ((out["x"] - x) ** 2 / 0.3**2).sum(1).mean()
        kl = 0.5 * (out["mean"] ** 2 + out["log_var"].exp() - 1 - out["log_var"]).sum(1).mean()
        self.log = {"fit": fit.item(), "kl": kl.item()}
        loss = fit + self.s.beta * (kl if self.fixed else self.log["kl"])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    s = Settings()
    bank, model = CoughBank(s), SpectrumVAE(s)
    trainer = Trainer(model, s, fixed)
    losses = []
    with watch(model) as dbg:
        for _ in range(s.steps):
            losses.append(trainer.step(bank.draw(64)))
            dbg.record_loss(losses[-1])
            dbg.record_loss(trainer.log["kl"], "kl")
    return {"loss": losses, "kl": trainer.log["kl"]}


def harmed(result):
    """The information in the code is far above what the spectra hold."""
    return result["kl"] > 25
