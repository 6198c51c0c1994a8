"""Weakly supervised localisation: image labels only, class maps pooled by log-mean-exp.

Trains well for a while and the maps become sharp; then the loss is nan.
"""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "CNN"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["exp_overflow"],
    "layers": ["pool"],
    "onset": [71, 71],
}


class LMEPool(nn.Module):
    def __init__(self, r=12.0, builtin=False):
        super().__init__()
        self.r, self.builtin = r, builtin

    def forward(self, maps):
        flat = self.r * maps.flatten(2)
        if self.builtin:
            count = torch.tensor(float(flat.shape[2]))
            return (torch.logsumexp(flat, 2) - count.log()) / self.r
        return torch.log(torch.mean(torch.exp(flat), 2)) / self.r


class Localizer(nn.Module):
    def __init__(self, builtin):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(),
        )
        self.maps = nn.Conv2d(24, 3, 1)
        self.pool = LMEPool(builtin=builtin)

    def forward(self, x):
        return self.pool(self.maps(self.body(x)))


def images(n):
    x = 0.3 * torch.randn(n, 1, 16, 16)
    y = (torch.rand(n, 3) < 0.4).float()
    for i in range(n):
        for k in range(3):
            if y[i, k]:
                r, c = torch.randint(0, 11, (2,)).tolist()
                if k == 0:
                    x[i, 0, r : r + 5, c + 2] += 2
                elif k == 1:
                    x[i, 0, r + 2, c : c + 5] += 2
                else:
                    x[i, 0, r + 1 : r + 4, c + 1 : c + 4] -= 2
    return x, y


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    x, y = images(640)
    net = Localizer(builtin=fixed)
    opt = torch.optim.Adam(net.parameters(), lr=5e-3)
    losses, bad = [], []
    with watch(net) as dbg:
        for epoch in range(16):
            for rows in torch.randperm(640).split(32):
                out = net(x[rows])
                loss = F.binary_cross_entropy_with_logits(out, y[rows])
                opt.zero_grad()
                loss.backward()
                opt.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
                bad.append(bool((~torch.isfinite(out)).any()))
    first = bad.index(True) if True in bad else -1
    return {"loss": losses, "first_bad": first}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.3
