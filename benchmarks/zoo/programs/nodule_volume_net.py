"""Size class of a nodule in a small volume, a 3-D network whose last stage has its own initialiser.
The first loss has six digits and the run never recovers."""
import math

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["exploding_gradients", "optimizer_instability"],
    "causes": ["init_too_large"],
    "layers": ["s2", "s2.0", "s2.2", "s2.4"],
    "onset": [0, 0],
}


def kaiming(module, wrong=False):
    if isinstance(module, nn.Conv3d):
        fan = module.weight[0].numel()
        std = math.sqrt(2 * fan) if wrong else math.sqrt(2 / fan)
        nn.init.normal_(module.weight, 0.0, std)
        nn.init.zeros_(module.bias)


class Volume(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.s1 = nn.Sequential(nn.Conv3d(1, 8, 3, padding=1), nn.ELU(), nn.MaxPool3d(2))
        self.s2 = nn.Sequential(nn.Conv3d(8, 12, 3, padding=1), nn.ELU(), nn.Conv3d(12, 12, 3, padding=1), nn.ELU())
        self.s2.extend([nn.Conv3d(12, 12, 3, padding=1), nn.ELU()])
        self.fc = nn.Linear(12, 3)
        self.s1.apply(kaiming)
        self.s2.apply(lambda m: kaiming(m, wrong=not fixed))

    def forward(self, volume):
        return self.fc(self.s2(self.s1(volume)).mean((2, 3, 4)))


def volumes(n):
    axis = torch.linspace(-1, 1, 10)
    z, y, x = torch.meshgrid(axis, axis, axis, indexing="ij")
    kind = torch.randint(0, 3, (n,))
    radius = (0.3 + 0.25 * kind)[:, None, None, None]
    blob = torch.sigmoid(12 * (radius - (x**2 + y**2 + z**2).sqrt()))
    return (1.5 * blob + 1.0 * torch.randn(n, 10, 10, 10))[:, None], kind


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Volume(fixed)
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(160):
            volume, kind = volumes(24)
            loss = F.cross_entropy(model(volume), kind)
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.5
