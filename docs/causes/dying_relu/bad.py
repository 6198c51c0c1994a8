"""Start the biases of a ReLU layer far below zero.

No sample lifts a unit above zero, so every output and every gradient of the layer is zero and
stays so.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 8)
labels = (inputs[:, 0] > inputs[:, 1]).long()
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
nn.init.constant_(model[0].bias, -8.0)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(150):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
