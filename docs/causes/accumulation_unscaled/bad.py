"""Add up the gradients of eight small batches and forget to divide.

`backward` adds to what is there, so the step is eight times as long as the learning rate was
chosen for.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
ACCUMULATE = 8
inputs = torch.randn(512, 12)
targets = inputs @ torch.randn(12, 1)
model = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

with NeuralDbg(model) as dbg:
    for _ in range(60):
        optimizer.zero_grad()
        for rows in torch.randint(0, 512, (ACCUMULATE, 16)):
            loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
            loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
