"""Scale every file the same way."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
weights = torch.randn(8, 1)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(200):
        metres = torch.randn(64, 8)
        targets = metres @ weights
        inputs = metres
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
