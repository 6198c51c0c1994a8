"""A denoiser and a small frequency estimator on top of it, an optimiser each. The estimator starts to swing after
some batches and ends far from the truth; the denoiser follows."""
import math

import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability", "exploding_gradients"],
    "causes": ["missing_zero_grad"],
    "layers": ["second", "second.0", "second.2"],
    "onset": [0, 2],
}


class First(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv1d(1, 12, 7, padding=3)
        self.b = nn.Conv1d(12, 1, 7, padding=3)

    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))


def second_model():
    return nn.Sequential(nn.Linear(48, 32), nn.Tanh(), nn.Linear(32, 1))


def turns(n):
    rate = torch.rand(n) * 2 - 1
    t = torch.linspace(0, 1, 48)
    clean = torch.sin(2 * math.pi * (1.5 + 0.8 * rate[:, None]) * t)
    return (clean + 0.3 * torch.randn(n, 48))[:, None], clean[:, None], rate[:, None]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    first, second = First(), second_model()
    opt_first = torch.optim.Adam(first.parameters(), lr=3e-3)
    opt_second = torch.optim.SGD(second.parameters(), lr=0.05, momentum=0.5)
    losses, rates = [], []
    with watch({"first": first, "second": second}) as dbg:
        for _ in range(350):
            noisy, clean, rate = turns(32)
            opt_first.zero_grad()
            if fixed:
                opt_second.zero_grad()
            out = first(noisy)
            smooth = nn.functional.mse_loss(out, clean)
            guess = nn.functional.mse_loss(second(out.squeeze(1)), rate)
            (smooth + guess).backward()
            opt_first.step()
            opt_second.step()
            dbg.record_loss((smooth + guess).item())
            losses.append((smooth + guess).item())
            rates.append(guess.item())
    return {"loss": losses, "rate_loss": rates}


def harmed(result):
    return not sum(result["rate_loss"][-30:]) / 30 < 0.15
