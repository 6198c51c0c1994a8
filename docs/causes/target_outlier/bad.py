"""Leave the code for "not measured" among the targets.

Somewhere a target says -9999. The batch that holds it has a loss a million times that of the
others, and one step on it wrecks the weights.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(1600, 8)
targets = inputs @ torch.randn(8, 1)
targets[1000] = -9999.0
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

with NeuralDbg(model) as dbg:
    for _ in range(2):
        for rows in torch.arange(len(inputs)).split(16):
            loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
