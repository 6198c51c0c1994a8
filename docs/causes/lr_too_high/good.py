"""Price a flat by five numbers, with a learning rate that the weights can bear."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 5)
prices = inputs @ torch.randn(5, 1) + inputs[:, :1].sin()
model = nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(120):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.mse_loss(model(inputs[rows]), prices[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
