"""Initialise all weights by fan-in (Kaiming)."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 16)
labels = (inputs @ torch.randn(16, 4)).argmax(1)
model = nn.Sequential(
    nn.Linear(16, 64),
    nn.ReLU(),
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 4),
)
for layer in model[::2]:
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

with NeuralDbg(model) as dbg:
    for _ in range(120):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
