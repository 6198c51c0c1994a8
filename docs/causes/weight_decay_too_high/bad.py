"""Decay the weights faster than the data can rebuild them.

Decoupled decay of 20 at a learning rate of 0.01 takes a fifth of every weight on every step.
The net shrinks to nothing and the loss stays at the variance of the targets.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 8)
targets = inputs @ torch.randn(8, 1)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=20.0)

with NeuralDbg(model) as dbg:
    for _ in range(150):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
