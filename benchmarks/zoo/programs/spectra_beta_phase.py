"""A variational autoencoder of emission spectra. After 700 updates a 'disentangling' phase starts; from then
on all reconstructions look like the average spectrum."""
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

ARCHITECTURE = "VAE / autoencoder"
TRUTH = {
    "failures": ["representation_collapse"],
    "causes": ["posterior_collapse"],
    "layers": [],
    "onset": [700, 700],
}


class SpectrumVAE(nn.Module):
    def __init__(self, bins=48, code=3):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(bins, 96), nn.SiLU(), nn.Linear(96, 2 * code))
        self.dec = nn.Sequential(nn.Linear(code, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, bins))

    def posterior(self, x):
        mu, raw = self.enc(x).chunk(2, -1)
        return Normal(mu, nn.functional.softplus(raw) + 1e-3)

    def forward(self, x):
        q = self.posterior(x)
        return self.dec(q.rsample()), q


def spectra(n, bins=48):
    grid = torch.linspace(0, 1, bins)
    line = 0.15 + 0.7 * torch.rand(n, 1)
    width = 0.04 + 0.06 * torch.rand(n, 1)
    return torch.exp(-(((grid - line) / width) ** 2)) + 0.03 * torch.randn(n, bins)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    vae, prior = SpectrumVAE(), Normal(0.0, 1.0)
    opt = torch.optim.RMSprop(vae.parameters(), lr=1e-3)
    out = {"loss": [], "recon": [], "kl": []}
    with watch(vae) as dbg:
        for step in range(1500):
            beta = 1.0 if step < 700 else (3.0 if fixed else 300.0)
            x = spectra(64)
            x_hat, q = vae(x)
            recon = (x_hat - x).square().sum(1).mean() / (2 * 0.1**2)
            kl = kl_divergence(q, prior).sum(1).mean()
            loss = recon + beta * kl
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            for key, value in zip(out, (loss, recon, kl)):
                out[key].append(value.item())
    return out


def harmed(result):
    return sum(result["kl"][-50:]) / 50 < 0.3
