"""Classify points with a learning rate at which a hundred steps get somewhere."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 8)
labels = (inputs[:, 0] + inputs[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

with NeuralDbg(model) as dbg:
    for _ in range(120):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
