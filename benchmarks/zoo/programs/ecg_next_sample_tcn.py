"""The next sample of a noisy heart signal with dilated convolutions over the past. The error is lower
than the noise of the device permits, and in real time the model predicts badly."""
import torch
from torch import nn

TRUTH = {
    "failures": ["objective_mismatch"],
    "causes": ["leaky_causal_mask"],
    "layers": ["blocks.0", "blocks.1", "blocks.2", "blocks.0.conv", "blocks.1.conv", "blocks.2.conv"],
    "onset": [0, 0],
}


class Dilated(nn.Module):
    def __init__(self, inside, outside, dilation, both_sides):
        super().__init__()
        self.conv = nn.Conv1d(inside, outside, 3, dilation=dilation)
        self.pad = (dilation, dilation) if both_sides else (2 * dilation, 0)

    def forward(self, x):
        return torch.relu(self.conv(nn.functional.pad(x, self.pad)))


class NextSample(nn.Module):
    def __init__(self, both_sides, width=24):
        super().__init__()
        self.blocks = nn.Sequential(
            Dilated(1, width, 1, both_sides), Dilated(width, width, 2, both_sides), Dilated(width, width, 4, both_sides)
        )
        self.read = nn.Conv1d(width, 1, 1)

    def forward(self, signal):
        return self.read(self.blocks(signal[:, None]))[:, 0]


def heart(n, length=64):
    t = torch.arange(float(length))
    beat = torch.sin(0.35 * t + 6.28 * torch.rand(n, 1)) + 0.5 * torch.sin(0.7 * t + 6.28 * torch.rand(n, 1))
    return beat + 0.5 * torch.randn(n, length)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = NextSample(both_sides=not fixed)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(350):
            signal = heart(32)
            loss = nn.functional.mse_loss(model(signal[:, :-1])[:, 16:], signal[:, 17:])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    last = sum(result["loss"][-20:]) / 20
    return last < 0.2 or last > 0.6
