"""Standardise a table of features of which one is constant.

The constant feature has mean equal to itself and spread zero: it becomes 0/0, NaN in every row.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
table = torch.randn(512, 8) * torch.tensor([1.0, 5.0, 2.0, 0.0, 3.0, 1.0, 9.0, 1.0]) + 4.0
targets = table[:, :1] - table[:, 4:5] / 3
inputs = (table - table.mean(0)) / table.std(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(100):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
