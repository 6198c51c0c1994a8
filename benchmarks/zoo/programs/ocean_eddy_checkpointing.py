"""Eddies in sea-level maps; memory is short, so both halves of the network run under activation
checkpointing. A warning scrolls by at the start and only the last layer changes."""
import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["checkpoint_without_input_grad"],
    "layers": ["coarse", "coarse.0", "coarse.2", "fine", "fine.1"],
    "onset": [0, 0],
}


class EddyNet(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.coarse = nn.Sequential(nn.Conv2d(1, 6, 5, stride=2), nn.ELU(), nn.Conv2d(6, 4, 3), nn.ELU())
        self.fine = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ELU())
        self.spin = nn.Linear(24, 3)
        self.reentrant = reentrant

    def forward(self, level):
        h = checkpoint(self.coarse, level, use_reentrant=self.reentrant)
        h = checkpoint(self.fine, h, use_reentrant=self.reentrant)
        return self.spin(h)


def sea_level(n, side=15):
    spin = torch.randint(0, 3, (n,))
    y, x = torch.meshgrid(torch.arange(float(side)), torch.arange(float(side)), indexing="ij")
    cy, cx = 3 + 9 * torch.rand(n, 1, 1), 3 + 9 * torch.rand(n, 1, 1)
    dy, dx = y - cy, x - cx
    eddy = torch.exp(-(dx**2 + dy**2) / 8) * torch.stack([dx * 0 + 1.5, dx, dy], 0)[spin, torch.arange(n)]
    return eddy[:, None] + 0.5 * torch.randn(n, 1, side, side), spin


def train(watch, fixed=False, seed=0):
    warnings.filterwarnings("ignore", message=".*None of the inputs have requires_grad.*")
    torch.manual_seed(seed)
    level, spin = sea_level(1200)
    test = sea_level(300)
    net = EddyNet(reentrant=not fixed)
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3)
    start = net.coarse[0].weight.detach().clone()
    losses = []
    with watch(net) as dbg:
        for epoch in range(7):
            for rows in torch.randperm(1200).split(40):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(net(level[rows]), spin[rows])
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
    with torch.no_grad():
        accuracy = (net(test[0]).argmax(1) == test[1]).float().mean().item()
    moved = (net.coarse[0].weight - start).norm().item() / start.norm().item()
    return {"loss": losses, "accuracy": accuracy, "moved": moved}


def harmed(result):
    return result["moved"] < 0.02
