"""Mountain ridges from height profiles; blocks run under activation checkpointing (non-reentrant), targets broadcast."""
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(4, width), nn.Conv1d(width, width, 5, padding=2)

    def forward(self, x):
        return x + self.conv(torch.relu(self.norm(x)))


class Ridge(nn.Module):
    def __init__(self, width=16, depth=3):
        super().__init__()
        self.enter = nn.Conv1d(1, width, 5, padding=2)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.leave = nn.Conv1d(width, 1, 1)
        self.register_buffer("offset", torch.tensor([0.5]))
        self.register_buffer("spread", torch.tensor([1.5]))

    def forward(self, profile):
        h = checkpoint(self.enter, profile.transpose(1, 2), use_reentrant=False)
        for block in self.blocks:
            h = checkpoint(block, h, use_reentrant=False)
        return self.leave(h).transpose(1, 2)

    def standard(self, target):
        """(N, T, 1) minus a buffer of shape (1,)"""
        return (target - self.offset) / self.spread


def profiles(n, length=40):
    height = torch.randn(n, length).cumsum(1) * 0.3
    smooth = nn.functional.avg_pool1d(height[:, None], 7, 1, 3)[:, 0]
    return (height + 0.5 * torch.randn(n, length))[..., None], (smooth * 1.5 + 0.5)[..., None]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Ridge()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(250):
            profile, target = profiles(24)
            loss = nn.functional.mse_loss(model(profile), model.standard(target))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
            losses.append(loss.item())
    last = sum(losses[-20:]) / 20
    return {"loss": losses, "last": last, "learned": last < 0.15 * sum(losses[:3]) / 3}


def harmed(result):
    return False
