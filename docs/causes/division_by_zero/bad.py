"""Average over the marked pixels of images of which one has none.

The sum is 0 and the count is 0. 0/0 is NaN, and the gradient of that image is too.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
images = torch.randn(320, 24)
masks = (torch.rand(320, 24) < 0.4).float()
masks[200] = 0.0
targets = images.square()
model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 24))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

with NeuralDbg(model) as dbg:
    for _ in range(12):
        for rows in torch.arange(320).split(32):
            errors = (model(images[rows]) - targets[rows]).square() * masks[rows]
            counts = masks[rows].sum(1)
            loss = (errors.sum(1) / counts).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
