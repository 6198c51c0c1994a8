"""Clamp the very quantity that a term of the loss should lower.

The uncertainty starts below the clamp, so the term is 4 on every step and its gradient is zero.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 8)
targets = inputs @ torch.randn(8, 1)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(120):
        rows = torch.randint(0, 512, (64,))
        mean, uncertainty = model(inputs[rows]).split(1, dim=1)
        kept = uncertainty.clamp(2.0, 8.0)
        loss = nn.functional.mse_loss(mean, targets[rows])
        loss = loss + nn.functional.mse_loss(kept, torch.zeros_like(kept))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
