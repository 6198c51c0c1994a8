"""Twelve rounds of messages on a road network, with residual paths, norms and self-loops; two places have no road."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "GNN"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Round(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.message = nn.Linear(width, width)

    def forward(self, x, A):
        return x + F.relu(self.message(A @ self.norm(x)))


class Roads(nn.Module):
    def __init__(self, width=24, rounds=12):
        super().__init__()
        self.place = nn.Linear(10, width)
        self.rounds = nn.ModuleList([Round(width) for _ in range(rounds)])
        self.kind = nn.Linear(width, 3)

    def forward(self, x, A):
        x = self.place(x)
        for r in self.rounds:
            x = r(x, A)
        return self.kind(x)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    n = 150
    kind = torch.arange(n) % 3
    A = (torch.rand(n, n) < torch.where(kind[:, None] == kind, 0.1, 0.015)).float()
    A = ((A + A.T) > 0).float()
    A[:2], A[:, :2] = 0, 0
    A.fill_diagonal_(1)
    A = A / A.sum(1, keepdim=True)
    x = torch.cat([F.one_hot(kind, 3) + 0.9 * torch.randn(n, 3), torch.randn(n, 7)], 1)
    known = torch.rand(n) < 0.5
    model = Roads()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)
    losses = []
    with watch(model) as dbg:
        for epoch in range(120):
            loss = F.cross_entropy(model(x, A)[known], kind[known])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    right = (model(x, A)[~known].argmax(1) == kind[~known]).float().mean().item()
    return {"loss": losses, "right": right, "learned": right > 0.75}


def harmed(result):
    return False
