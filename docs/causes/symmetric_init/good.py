"""Give the weights of the first layer random values."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 2)
labels = (inputs[:, 0] * inputs[:, 1] > 0).long()
model = nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)

with NeuralDbg(model) as dbg:
    for _ in range(200):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
