"""Train on a batch that was never divided by its gain.

One batch is a thousand times too large. Its gradient moves the weights by more than all steps
before, and the loss does not come back.
"""

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
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
