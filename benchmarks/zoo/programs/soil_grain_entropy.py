"""Soil classes from grain-size counts: learned grouping of the sieves, group shares and their
entropy as a feature. Outputs are finite and sensible; one update later all weights are NaN."""
import torch
from torch import nn

TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["masked_nan_gradient"],
    "layers": ["disorder"],
    "onset": [0, 0],
}


class Disorder(nn.Module):
    """Entropy of shares, with 0 log 0 = 0."""

    def __init__(self, careful):
        super().__init__()
        self.careful = careful

    def forward(self, share):
        log = torch.log(torch.where(share > 0, share, 1.0)) if self.careful else torch.log(share)
        terms = torch.where(share > 0, share * log, torch.zeros_like(share))
        return -terms.sum(1, keepdim=True)


class SoilNet(nn.Module):
    def __init__(self, careful, sieves=16, groups=10):
        super().__init__()
        self.grouping = nn.Linear(sieves, groups)
        self.disorder = Disorder(careful)
        self.classify = nn.Sequential(nn.Linear(groups + 1, 32), nn.Tanh(), nn.Linear(32, 3))

    def forward(self, grains):
        amount = torch.relu(self.grouping(grains))
        share = amount / (amount.sum(1, keepdim=True) + 1e-3)
        return self.classify(torch.cat([share, self.disorder(share)], 1))


def samples(n):
    kind = torch.randint(0, 3, (n,))
    centre = torch.tensor([3.0, 8.0, 12.0])[kind][:, None] + torch.randn(n, 1)
    spread = torch.tensor([2.0, 5.0, 3.0])[kind][:, None]
    grains = torch.exp(-((torch.arange(16.0) - centre) ** 2) / spread**2) + 0.1 * torch.rand(n, 16)
    return grains, kind


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    grains, kind = samples(1500)
    net = SoilNet(careful=fixed)
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    losses = []
    with watch(net) as dbg:
        for epoch in range(6):
            for rows in torch.randperm(len(kind)).split(50):
                opt.zero_grad()
                loss = nn.functional.cross_entropy(net(grains[rows]), kind[rows])
                loss.backward()
                dbg.record_loss(loss.item())
                opt.step()
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.4
