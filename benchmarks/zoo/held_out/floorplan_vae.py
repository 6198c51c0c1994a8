"""A VAE of small floor plans. The loss goes down for a few steps, samples are one and the same grey
blur, and so are the reconstructions."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "VAE / autoencoder"
TRUTH = {
    "failures": ["representation_collapse", "objective_mismatch"],
    "causes": ["posterior_collapse", "wrong_reduction"],
    "layers": [],
    "onset": [0, 150],
}


def plans(n, side=12):
    """Draw a wall across, a wall down and a door in each, at random places."""
    plan = torch.zeros(n, side, side)
    across, down = torch.randint(2, side - 2, (2, n))
    for i in range(n):
        plan[i, across[i]] = 1
        plan[i, :, down[i]] = 1
        plan[i, across[i], (down[i] + 3) % side] = 0
        if across[i] < 6:
            plan[i, -3:, -3:] = 1
    return plan.flatten(1)


class PlanVAE(nn.Module):
    def __init__(self, pixels=144, code=6):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(pixels, 128), nn.GELU(), nn.Linear(128, 2 * code))
        self.decoder = nn.Sequential(nn.Linear(code, 128), nn.GELU(), nn.Linear(128, pixels))

    def forward(self, plan):
        mu, logvar = self.encoder(plan - 0.2).chunk(2, dim=-1)
        z = mu + torch.randn_like(mu) * (0.5 * logvar).exp()
        return self.decoder(z), mu, logvar


def elbo(logits, plan, mu, logvar, per_plan):
    if per_plan:
        fit = F.binary_cross_entropy_with_logits(logits, plan, reduction="sum") / len(plan)
    else:
        fit = F.binary_cross_entropy_with_logits(logits, plan)
    kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
    return fit + kl, kl


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    data = plans(1024)
    vae = PlanVAE()
    optimizer = torch.optim.Adam(vae.parameters(), lr=2e-3)
    losses, kls = [], []
    with watch(vae) as dbg:
        for _ in range(400):
            plan = data[torch.randint(0, len(data), (64,))]
            logits, mu, logvar = vae(plan)
            loss, kl = elbo(logits, plan, mu, logvar, per_plan=fixed)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            dbg.record_metric("kl", kl.item())
            losses.append(loss.item())
            kls.append(kl.item())
    with torch.no_grad():
        shown = torch.sigmoid(vae(data)[0])
        error = ((shown - data) ** 2).mean() / data.var(0).mean()
    return {"loss": losses, "kl": kls, "error": error.item()}


def harmed(result):
    """The code says nothing of the plan: the error is that of the mean plan."""
    return result["kl"][-1] < 0.5 or result["error"] > 0.9
