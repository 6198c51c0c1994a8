"""Give every weight of the first layer the same value.

All units of the layer compute the same thing, get the same gradient and stay equal for ever:
the layer has one unit.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 2)
labels = (inputs[:, 0] * inputs[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
nn.init.constant_(model[0].weight, 0.1)
nn.init.zeros_(model[0].bias)
nn.init.constant_(model[2].weight, 0.1)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

with NeuralDbg(model) as dbg:
    for _ in range(200):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
