"""Returns with Student-t noise of two degrees of freedom, squared error, clipping. The recorded loss is all spikes,
a hundred times the median at times; the underlying curve is learned."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def market(n, noise):
    x = torch.randn(n, 6)
    signal = torch.sin(1.5 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2]
    return x, signal, signal + 0.5 * noise.sample((n,))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    noise = torch.distributions.StudentT(2.0)
    model = nn.Sequential(nn.Linear(6, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
    opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-3)
    losses, truth = [], []
    with watch(model) as dbg:
        for _ in range(500):
            x, signal, seen = market(128, noise)
            guess = model(x).squeeze(-1)
            loss = nn.functional.mse_loss(guess, seen)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            truth.append(nn.functional.mse_loss(guess.detach(), signal).item())
    first, last = sum(truth[:20]) / 20, sum(truth[-20:]) / 20
    return {"loss": losses, "truth": truth, "learned": last < 0.25 * first}


def harmed(result):
    return False
