"""Take the logarithm of counts of which one is zero.

log(0) is minus infinity. It enters with its batch and makes outputs, loss and gradients of that
step non-finite.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
counts = torch.randint(1, 50, (512, 8)).float()
counts[300, 3] = 0.0
targets = (counts + 1).log() @ torch.randn(8, 1)
inputs = counts.log() - 3.0
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(8):
        for rows in torch.arange(512).split(32):
            loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
