"""Sharpens thermal frames: a plain upsampling, then pre-activation blocks that each add a
correction. Cold areas never come back, whatever the user changes in the blocks."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "ResNet"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["inplace_on_skip_path"],
    "layers": ["refine.0", "refine.1", "refine.2", "refine.0.act", "refine.1.act", "refine.2.act"],
    "onset": [0, 0],
}


class Correction(nn.Module):
    def __init__(self, width, inplace):
        super().__init__()
        self.act = nn.ReLU(inplace=inplace)
        self.widen = nn.Conv2d(1, width, 3, padding=1)
        self.mid = nn.ReLU()
        self.narrow = nn.Conv2d(width, 1, 3, padding=1)

    def forward(self, frame):
        out = self.act(frame)
        out = self.narrow(self.mid(self.widen(out)))
        return frame + out


class Upscaler(nn.Module):
    def __init__(self, inplace, width=16):
        super().__init__()
        self.refine = nn.ModuleList(Correction(width, inplace) for _ in range(3))

    def forward(self, small):
        frame = F.interpolate(small, scale_factor=2, mode="bilinear", align_corners=False)
        for block in self.refine:
            frame = block(frame)
        return frame


def scenes(n):
    coarse = F.interpolate(torch.randn(n, 1, 5, 5), size=16, mode="bicubic")
    warm = (F.interpolate(torch.randn(n, 1, 8, 8), size=16, mode="nearest") > 1).float()
    frame = 1.1 * coarse + warm - 0.15
    return F.avg_pool2d(frame, 2), frame


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Upscaler(inplace=not fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    losses, plain = [], []
    with watch(model) as dbg:
        for _ in range(300):
            small, frame = scenes(16)
            loss = F.mse_loss(model(small), frame)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            bilinear = F.interpolate(small, scale_factor=2, mode="bilinear", align_corners=False)
            plain.append(F.mse_loss(bilinear, frame).item())
    return {"loss": losses, "plain": plain}


def harmed(result):
    """Worse than the upsampling alone."""
    return sum(result["loss"][-30:]) > sum(result["plain"][-30:])
