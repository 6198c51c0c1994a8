"""Let the learning rate fall to zero over all ten epochs."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
EPOCHS, BATCHES = 10, 20
inputs = torch.randn(640, 8)
targets = inputs @ torch.randn(8, 4) / 2
model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=EPOCHS * BATCHES)

with NeuralDbg(model) as dbg:
    for _ in range(EPOCHS):
        for rows in torch.randperm(640).split(640 // BATCHES):
            loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
            scheduler.step()
