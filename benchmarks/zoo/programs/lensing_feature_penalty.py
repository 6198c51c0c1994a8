"""Lens masses from galaxy shears with a penalty on the size of the features, switched on after 600 updates.
The total loss falls as never before, the mass error grows and grows."""
import torch
from torch import nn

ARCHITECTURE = "MLP"
TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["wrong_loss_sign"],
    "layers": [],
    "onset": [600, 600],
}


class ShearNet(nn.Module):
    def __init__(self, galaxies=16):
        super().__init__()
        self.point = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
        self.mass = nn.Linear(32, 1)

    def forward(self, shear):
        features = self.point(shear).mean(1)
        return self.mass(features).squeeze(1), features


def lenses(n):
    mass = 0.5 + torch.rand(n)
    place = torch.randn(n, 16, 2)
    pull = mass[:, None, None] * place / (0.3 + place.square().sum(2, keepdim=True))
    return torch.cat([place, pull + 0.05 * torch.randn(n, 16, 2)], 2), (mass - 1) / 0.29


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = ShearNet()
    opt = torch.optim.Adam(net.parameters(), lr=2e-3)
    total, error = [], []
    with watch(net) as dbg:
        for step in range(1300):
            shear, mass = lenses(64)
            guess, features = net(shear)
            fit = (guess - mass).square().mean()
            size = features.square().sum(1).mean()
            weight = 0.0 if step < 600 else 0.02
            loss = fit + weight * size if fixed else fit - weight * size
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            total.append(loss.item())
            error.append(fit.item())
    return {"loss": total, "error": error}


def harmed(result):
    return not sum(result["error"][-50:]) / 50 < 0.5
