"""Start the biases of the ReLU layer at zero."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 8)
labels = (inputs[:, 0] > inputs[:, 1]).long()
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
nn.init.zeros_(model[0].bias)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(150):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
