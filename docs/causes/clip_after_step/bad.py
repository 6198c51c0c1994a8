"""Clip the gradient after the optimizer has used it.

The clip changes gradients that nobody reads any more: training runs unclipped, though the call
is there.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 10)
targets = inputs @ torch.randn(10, 1) + 0.1 * torch.randn(512, 1)
model = nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

with NeuralDbg(model) as dbg:
    for _ in range(150):
        rows = torch.randint(0, 512, (32,))
        loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        dbg.record_loss(loss)
