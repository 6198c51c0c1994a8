"""VAE on sensor vectors, ELBO as in the paper. The loss is negative and falls without end;
reconstructions get worse and worse."""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "VAE / autoencoder"
TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["wrong_loss_sign"],
    "layers": [],
    "onset": [0, 0],
}


class SensorVAE(nn.Module):
    def __init__(self, d=20, z=3):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(d, 48), nn.SiLU())
        self.mu, self.logvar = nn.Linear(48, z), nn.Linear(48, z)
        self.dec = nn.Sequential(nn.Linear(z, 48), nn.SiLU(), nn.Linear(48, d))

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.exp(0.5 * logvar) * torch.randn_like(mu)
        return self.dec(z), mu, logvar


def loss_terms(x, rec, mu, logvar):
    nll = F.mse_loss(rec, x, reduction="sum") / len(x) / (2 * 0.3**2)
    kl = 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()) / len(x)
    return nll, kl


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    mix = torch.randn(2, 20)
    data = torch.tanh(torch.randn(3000, 2) @ mix) + 0.1 * torch.randn(3000, 20)
    net = SensorVAE()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    losses, rec_error = [], []
    with watch(net) as dbg:
        for step in range(500):
            x = data[torch.randint(0, 3000, (64,))]
            rec, mu, logvar = net(x)
            nll, kl = loss_terms(x, rec, mu, logvar)
            loss = nll - kl if fixed else nll + kl
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            rec_error.append(nll.item())
    return {"loss": losses, "nll": rec_error, "nll_last": sum(rec_error[-20:]) / 20}


def harmed(result):
    return not result["nll_last"] < 25
