"""Raise the weight of the loss a thousandfold under a second moment that remembers long.

The weight rises within twenty steps and the second moment remembers a thousand. Adam divides
by its root, which still holds the small gradients of before:
for some steps it moves thirty times too far, and the loss jumps to a hundred times its level.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(1024, 8)
targets = inputs @ torch.randn(8, 1) / 3
model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02, betas=(0.9, 0.999))

with NeuralDbg(model) as dbg:
    for step in range(160):
        rows = torch.randint(0, 1024, (64,))
        error = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        weight = min(1.0, 1e-3 * 1.5 ** max(0, step - 130))
        optimizer.zero_grad()
        (weight * error).backward()
        optimizer.step()
        dbg.record_loss(error)
