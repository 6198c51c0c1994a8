"""Leave out batches that no sensor can have measured."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
weights = torch.randn(8, 1)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

with NeuralDbg(model) as dbg:
    for step in range(150):
        inputs = torch.randn(64, 8)
        targets = inputs @ weights
        if step == 90:
            inputs = 1000 * inputs
        if inputs.abs().max() > 10:
            continue
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
