"""Finds weaving faults in fabric tiles with a plain stack of twenty-two 3x3 convolutions.

Fewer layers: 95 percent. All of them: the loss is log(3) from the first batch to the last.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["vanishing_gradients", "optimizer_instability"],
    "causes": ["deep_without_residual", "init_too_small"],
    "layers": ["weave"] + [f"weave.{i}" for i in range(44)],
    "onset": [0, 0],
}
DEPTH, CHANNELS = 22, 10


class Skipped(nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.conv = conv

    def forward(self, x):
        return x + 0.25 * torch.relu(self.conv(x))


def tower(plain):
    parts = [nn.Conv2d(1, CHANNELS, 3, stride=2, padding=1), nn.ReLU()]
    for _ in range(DEPTH - 1):
        conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        parts += [conv, nn.ReLU()] if plain else [Skipped(conv), nn.Identity()]
    return nn.Sequential(*parts)


class FabricNet(nn.Module):
    def __init__(self, plain=True):
        super().__init__()
        self.weave = tower(plain)
        self.fault = nn.Linear(CHANNELS * 9, 3)

    def forward(self, tile):
        h = nn.functional.adaptive_max_pool2d(self.weave(tile), 3)
        return self.fault(h.flatten(1))


def tiles(n, side=14):
    fault = torch.randint(0, 3, (n,))
    t = torch.arange(float(side))
    tile = torch.cos(1.6 * t)[None, :, None] + torch.cos(1.6 * t)[None, None, :] + 0.3 * torch.randn(n, side, side)
    for i, kind in enumerate(fault.tolist()):
        r, c = torch.randint(2, 10, (2,)).tolist()
        if kind == 1:
            tile[i, r, :] += 2
        elif kind == 2:
            tile[i, r : r + 4, c : c + 4] -= 2
    return tile[:, None], fault


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    tile, fault = tiles(1200)
    net = FabricNet(plain=not fixed)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    losses = []
    with watch(net) as dbg:
        for epoch in range(10):
            for rows in torch.randperm(1200).split(40):
                optimizer.zero_grad()
                loss = criterion(net(tile[rows]), fault[rows])
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                dbg.record_loss(losses[-1])
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 0.7
