"""Normalise attention weights over the batch instead of over time.

Dimension 0 is the samples: they compete with one another for attention, and how much each gets
depends on its neighbours.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class Pool(nn.Module):
    """Weighs the time steps of a series and adds them up."""

    def __init__(self):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1))
        self.head = nn.Linear(4, 3)

    def forward(self, series):
        scores = self.score(series).squeeze(-1)
        weights = scores.softmax(dim=0)
        return self.head((weights.unsqueeze(-1) * series).sum(1))


model = Pool()
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

with NeuralDbg(model) as dbg:
    for _ in range(200):
        series = torch.randn(32, 10, 4)
        peak = series[..., 0].argmax(1)
        labels = series[torch.arange(32), peak, 1:].argmax(1)
        loss = nn.functional.cross_entropy(model(series), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
