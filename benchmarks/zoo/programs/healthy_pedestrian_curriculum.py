"""Curriculum for walking paths: slow pedestrians first, then faster ones; inputs grow mildly, the loss
steps up now and then."""

import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def walks(n, pace):
    heading = 6.2832 * torch.rand(n, 1)
    turn = 0.25 * torch.randn(n, 1)
    t = torch.arange(9.0)
    angle = heading + turn * t
    step = pace * (0.6 + 0.4 * torch.rand(n, 1))
    path = torch.stack([(step * angle.cos()).cumsum(1), (step * angle.sin()).cumsum(1)], -1)
    path = path - path[:, :1]
    return path[:, :8] / 4, (path[:, 8] - path[:, 7])


class WalkNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.path = nn.Sequential(nn.Flatten(), nn.Linear(16, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU())
        self.next = nn.Linear(96, 2)

    def forward(self, path):
        return self.next(self.path(path))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = WalkNet()
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    losses = []
    with watch(net) as dbg:
        for stage, pace in enumerate((0.8, 1.0, 1.2, 1.4, 1.6)):
            for _ in range(110):
                path, following = walks(64, pace)
                optimizer.zero_grad()
                loss = nn.functional.mse_loss(net(path), following)
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    path, following = walks(1000, 1.6)
    with torch.no_grad():
        error = nn.functional.mse_loss(net(path), following).item()
    size = following.square().mean().item()
    return {"loss": losses, "error": error, "size": size, "learned": error < 0.05 * size}


def harmed(result):
    return False
