"""Altitude of kites by residual blocks that begin with an in-place bounded activation."""
import torch
from torch import nn

TRUTH = {"failures": ["training_wiring", "optimizer_instability"], "causes": ["inplace_on_skip_path"], "layers": ["blocks.0", "blocks.0.bound", "blocks.1.bound", "blocks.2.bound", "blocks.1", "blocks.2"], "onset": [0, 0]}


class Block(nn.Module):
    def __init__(self, width, inplace):
        super().__init__()
        self.bound = nn.ReLU6(inplace=inplace)
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, h):
        return h + self.second(torch.tanh(self.first(self.bound(h))))


class Kite(nn.Module):
    def __init__(self, inplace):
        super().__init__()
        self.enter = nn.Linear(6, 32)
        self.blocks = nn.Sequential(*[Block(32, inplace) for _ in range(3)])
        self.out = nn.Linear(32, 1, bias=False)

    def forward(self, x):
        return self.out(self.blocks(self.enter(x)))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Kite(not fixed)
    mix = torch.randn(6, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=2e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(60):
            x = 4 * torch.randn(64, 6)
            loss = nn.functional.mse_loss(model(x), x @ mix)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return sum(result["loss"][-10:]) / 10 > 0.8
