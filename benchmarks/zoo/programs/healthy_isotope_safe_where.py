"""Isotope counts, many of them zero: log where positive, with the argument made safe first, and rates by log-sum-exp."""
import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class SafeLog(nn.Module):
    def forward(self, x):
        positive = x > 0
        return torch.where(positive, torch.log(torch.where(positive, x, 1.0)), torch.zeros_like(x))


class IsotopeNet(nn.Module):
    def __init__(self, channels=12):
        super().__init__()
        self.mix = nn.Linear(channels, 24)
        self.log = SafeLog()
        self.rate = nn.Sequential(nn.Linear(24 + channels, 48), nn.Tanh(), nn.Linear(48, 3))

    def forward(self, counts):
        amount = torch.relu(self.mix(counts))
        return torch.logsumexp(self.rate(torch.cat([self.log(amount), self.log(counts)], 1)), 1)


def samples(n):
    counts = torch.poisson(torch.exp(0.8 * torch.randn(n, 12)))
    rate = 0.4 + 0.3 * counts[:, 0] + 0.2 * counts[:, 1] * (counts[:, 2] > 0)
    return counts, torch.poisson(rate)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    counts, seen = samples(3000)
    model = IsotopeNet()
    objective = nn.PoissonNLLLoss(log_input=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for epoch in range(8):
            for rows in torch.randperm(3000).split(60):
                loss = objective(model(counts[rows]), seen[rows])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    with torch.no_grad():
        guess = model(counts).exp()
        gain = torch.corrcoef(torch.stack([guess, 0.4 + 0.3 * counts[:, 0] + 0.2 * counts[:, 1] * (counts[:, 2] > 0)]))[0, 1]
    return {"loss": losses, "agreement": gain.item(), "learned": gain.item() > 0.8}


def harmed(result):
    return False
