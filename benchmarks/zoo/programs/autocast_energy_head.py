"""Vibration classifier whose energy features are computed in half precision to save memory.

Works with quiet machines; with the loud ones of the new plant the loss is nan from the start.
"""
import torch
from torch import nn

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["half_precision_overflow"],
    "layers": ["energy"],
    "onset": [0, 0],
}


class BandEnergy(nn.Module):
    def __init__(self, bands, dtype):
        super().__init__()
        self.filters = nn.Conv1d(1, bands, 16, stride=8, bias=False)
        self.dtype = dtype

    def forward(self, wave):
        y = self.filters(wave).to(self.dtype)
        e = (y * y).sum(2)
        return torch.log1p(e).float()


class Vibration(nn.Module):
    def __init__(self, dtype, classes=3):
        super().__init__()
        self.energy = BandEnergy(24, dtype)
        self.norm = nn.LayerNorm(24)
        self.mlp = nn.Sequential(nn.Linear(24, 48), nn.SiLU(), nn.Dropout(0.1), nn.Linear(48, classes))

    def forward(self, wave):
        return self.mlp(self.norm(self.energy(wave)))


def machines(n):
    y = torch.randint(0, 3, (n,))
    t = torch.arange(256) / 256
    f = torch.tensor([8.0, 22.0, 50.0])[y][:, None]
    loud = 30 * torch.rand(n, 1) + 20
    return (loud * (torch.sin(6.283 * (f * t + torch.rand(n, 1))) + 0.5 * torch.randn(n, 256)))[:, None], y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    wave, y = machines(1000)
    net = Vibration(torch.float32 if fixed else torch.float16)
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    losses = []
    with watch(net) as dbg:
        for epoch in range(8):
            for rows in torch.randperm(1000).split(50):
                loss = nn.functional.cross_entropy(net(wave[rows]), y[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-10:]) / 10 < 0.4
