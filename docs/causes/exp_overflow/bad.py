"""Predict a rate as the exponential of an unbounded number.

exp overflows float32 at 88.7. A sample with large features asks for more, and infinity enters
the loss.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.rand(512, 6)
inputs[300] = 400.0
counts = torch.poisson(inputs.clamp(max=1.0).sum(1, keepdim=True).exp().clamp(max=50))
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(6):
        for rows in torch.arange(512).split(32):
            log_rate = model(inputs[rows])
            rate = log_rate.exp()
            loss = (rate - counts[rows] * log_rate).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
