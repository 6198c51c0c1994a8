"""Width of a crack in concrete from a strip image; convolution kernels filled from uniform(-1, 1).

The error of the first batch is astronomical; gradient clipping and a gentle rate notwithstanding it stays so.
"""

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["exploding_gradients", "optimizer_instability"],
    "causes": ["init_too_large"],
    "layers": ["layers", "layers.0", "layers.1", "layers.2", "layers.3", "layers.4"],
    "onset": [0, 0],
}


class CrackNet(nn.Module):
    def __init__(self, span=None):
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Conv2d(1, 16, 3), nn.Conv2d(16, 24, 3, stride=2)] + [nn.Conv2d(24, 24, 3, padding=1) for _ in range(3)]
        )
        self.width = nn.Linear(24, 1)
        if span:
            for conv in self.layers:
                nn.init.uniform_(conv.weight, -span, span)

    def forward(self, strip):
        for conv in self.layers:
            strip = F.elu(conv(strip))
        return self.width(strip.mean((2, 3)))


def strips(n, height=14, length=14):
    width = 1 + 5 * torch.rand(n, 1)
    middle = 5 + 4 * torch.rand(n, 1)
    column = torch.arange(float(length))
    dark = ((column - middle).abs() < width / 2).float()
    strip = 0.8 - dark[:, None, :].expand(n, height, length) + 0.2 * torch.randn(n, height, length)
    return strip[:, None], (width - 3.5) / 1.45


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    strip, width = strips(1500)
    model = CrackNet(None if fixed else 1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, nesterov=True)
    losses = []
    with watch(model) as dbg:
        for step in range(220):
            rows = torch.randint(0, len(strip), (40,))
            loss = F.smooth_l1_loss(model(strip[rows]), width[rows])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-30:]) / 30 < 0.2
