"""Glacier edges with a small residual network, bfloat16 autocast and a gradient scaler taken over
from an older script, with clipping added in between. It hardly learns, whatever the clip value."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "ResNet"
TRUTH = {
    "failures": ["training_wiring", "vanishing_gradients"],
    "causes": ["clip_before_unscale"],
    "layers": [],
    "onset": [0, 0],
}


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(4, width), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(4, width),
        )  # fmt: skip

    def forward(self, x):
        return F.relu(x + self.body(x))


class EdgeNet(nn.Module):
    def __init__(self, width=12):
        super().__init__()
        self.stem = nn.Conv2d(2, width, 3, padding=1)
        self.blocks = nn.Sequential(Residual(width), Residual(width))
        self.ice = nn.Conv2d(width, 1, 1)

    def forward(self, scene):
        return self.ice(self.blocks(F.relu(self.stem(scene))))


def scenes(n, side=12):
    column = torch.arange(side)[None, None].float()
    line = 6 + 2 * torch.randn(n, 1, 1) + torch.randn(n, 1, 1) * 0.3 * torch.arange(side)[:, None]
    ice = (column < line).float()[:, None]
    radar = 0.8 * (ice - 0.5) + 0.8 * torch.randn(n, 1, side, side)
    optical = -0.8 * (ice - 0.5) + 0.8 * torch.randn(n, 1, side, side)
    return torch.cat([radar, optical], 1), ice


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = EdgeNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    losses = []
    with watch(model) as dbg:
        for _ in range(200):
            scene, ice = scenes(16)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(scene)
                loss = F.binary_cross_entropy_with_logits(logits.float(), ice)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            if fixed:
                scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-20:]) / 20 > 0.45
