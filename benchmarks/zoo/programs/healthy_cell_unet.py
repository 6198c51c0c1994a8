"""A small U-Net marks cells that cover four percent of the picture; weighted cross-entropy, group normalisation."""

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def double(cin, cout):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=1),
        nn.GroupNorm(4, cout),
        nn.ReLU(),
        nn.Conv2d(cout, cout, 3, padding=1),
        nn.GroupNorm(4, cout),
        nn.ReLU(),
    )


class UNet(nn.Module):
    def __init__(self, base=8):
        super().__init__()
        self.enc1, self.enc2 = double(1, base), double(base, 2 * base)
        self.bottom = double(2 * base, 2 * base)
        self.up = nn.ConvTranspose2d(2 * base, 2 * base, 2, 2)
        self.dec2 = double(4 * base, base)
        self.up1 = nn.ConvTranspose2d(base, base, 2, 2)
        self.dec1 = double(2 * base, base)
        self.mask = nn.Conv2d(base, 1, 1)

    def forward(self, x):
        a = self.enc1(x)
        b = self.enc2(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        d = self.dec2(torch.cat([self.up(c), b], 1))
        return self.mask(self.dec1(torch.cat([self.up1(d), a], 1)))


def cells(n, side=16):
    axis = torch.arange(float(side))
    mask = torch.zeros(n, side, side)
    for _ in range(2):
        centre = 2 + (side - 4) * torch.rand(n, 2)
        near = (axis[None, :, None] - centre[:, :1, None]) ** 2 + (axis[None, None] - centre[:, 1:, None]) ** 2
        mask = torch.maximum(mask, (near < 1.8).float())
    return (mask * 1.2 + 0.35 * torch.randn(n, side, side))[:, None], mask[:, None]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = UNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    weight = torch.tensor(8.0)
    losses = []
    with watch(net) as dbg:
        for step in range(180):
            picture, mask = cells(12)
            loss = F.binary_cross_entropy_with_logits(net(picture), mask, pos_weight=weight)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    net.eval()
    picture, mask = cells(100)
    with torch.no_grad():
        found = (net(picture) > 1.0).float()
    dice = (2 * (found * mask).sum() / (found.sum() + mask.sum())).item()
    return {"loss": losses, "dice": dice, "learned": dice > 0.65}


def harmed(result):
    return False
