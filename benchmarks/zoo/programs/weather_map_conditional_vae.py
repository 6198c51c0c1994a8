"""A conditional VAE predicts the evening map from the noon map and a code. Ten draws for the same noon
are one and the same map; the ensemble has no spread although the evenings really differ."""
import torch
from torch import nn

TRUTH = {
    "failures": ["representation_collapse", "objective_mismatch"],
    "causes": ["posterior_collapse", "wrong_reduction"],
    "layers": ["posterior", "posterior.net", "posterior.net.0", "posterior.net.2"],
    "onset": [0, 60],
}


class Gaussian(nn.Module):
    def __init__(self, inputs, code, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, 2 * code))

    def forward(self, x):
        mean, raw = self.net(x).chunk(2, -1)
        return torch.distributions.Normal(mean, nn.functional.softplus(raw) + 1e-2)


class EveningModel(nn.Module):
    def __init__(self, cells=20, code=3):
        super().__init__()
        self.posterior = Gaussian(2 * cells, code)
        self.paint = nn.Sequential(nn.Linear(cells + code, 96), nn.SiLU(), nn.Linear(96, cells))
        self.code = code

    def forward(self, noon, evening):
        q = self.posterior(torch.cat([noon, evening], 1))
        return self.paint(torch.cat([noon, q.rsample()], 1)), q


def days(n, drift):
    noon = torch.randn(n, 20)
    front = torch.randn(n, 2)
    return noon, 0.8 * noon + front @ drift + 0.1 * torch.randn(n, 20)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    drift = torch.randn(2, 20) * 0.5
    model = EveningModel()
    prior = torch.distributions.Normal(torch.zeros(model.code), torch.ones(model.code))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    sigma = 0.3
    losses, nats = [], []
    with watch(model) as dbg:
        for step in range(400):
            noon, evening = days(64, drift)
            painted, q = model(noon, evening)
            fit = (painted - evening).square().sum(1).mean() / (2 * sigma**2)
            if not fixed:
                fit = (painted - evening).square().mean()
            gap = torch.distributions.kl_divergence(q, prior).sum(1).mean()
            loss = fit + gap
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            nats.append(gap.item())
    return {"loss": losses, "nats": nats}


def harmed(result):
    return sum(result["nats"][-20:]) / 20 < 0.5
