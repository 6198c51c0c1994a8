"""Stack eight GELU layers with Kaiming's initialisation."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 8)
targets = inputs[:, :1].sin() + inputs[:, 1:2]
layers = []
for width in [8] + [32] * 7:
    layers += [nn.Linear(width, 32), nn.GELU()]
    nn.init.kaiming_normal_(layers[-2].weight, nonlinearity="relu")
model = nn.Sequential(*layers, nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

with NeuralDbg(model) as dbg:
    for _ in range(150):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
