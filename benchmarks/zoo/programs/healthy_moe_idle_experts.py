"""Top-1 mixture of six experts on data with three regimes; the third regime appears only from step 700 and wakes an
expert that was idle before. A balance term keeps the router usable; some experts stay nearly idle, as they may."""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "MoE"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 24), nn.Linear(24, 1)

    def forward(self, x):
        return self.b(F.gelu(self.a(x)))


class Mixture(nn.Module):
    def __init__(self, experts=6):
        super().__init__()
        self.router = nn.Linear(6, experts)
        self.experts = nn.ModuleList(Expert() for _ in range(experts))

    def forward(self, x):
        gate = self.router(x).softmax(-1)
        weight, which = gate.max(-1)
        y = torch.zeros(len(x))
        for k, expert in enumerate(self.experts):
            rows = which == k
            if rows.any():
                y = y.index_put((rows.nonzero().squeeze(1),), expert(x[rows]).squeeze(1) * weight[rows])
        share = F.one_hot(which, len(self.experts)).float().mean(0)
        return y, len(self.experts) * (share * gate.mean(0)).sum(), share


def regimes(n, w, kinds):
    k = torch.randint(kinds, (n,))
    x = torch.randn(n, 6)
    x[:, :3] = 0.3 * x[:, :3] + 2.0 * F.one_hot(k, 3)
    y = (x[:, 3:] * w[k]).sum(1)
    return x, y + torch.where(k == 1, (2 * x[:, 3]).sin(), torch.zeros(()))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    w = torch.randn(3, 3)
    model = Mixture()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses, fits = [], []
    with watch(model) as dbg:
        for step in range(1400):
            x, y = regimes(96, w, 2 if step < 700 else 3)
            guess, balance, share = model(x)
            fit = F.mse_loss(guess, y)
            loss = fit + 0.02 * balance
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            fits.append(fit.item())
            dbg.record_loss(losses[-1])
    last = sum(fits[-50:]) / 50
    return {"loss": losses, "fit_first": fits[0], "fit_last": last, "share": share.tolist(), "learned": last < 0.15 * fits[0]}


def harmed(result):
    return False
