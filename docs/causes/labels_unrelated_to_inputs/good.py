"""Shuffle images and labels with the same permutation."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
images = torch.randn(4096, 12)
labels = (images @ torch.randn(12, 5)).argmax(1)
order = torch.randperm(4096)
images, labels = images[order], labels[order]
model = nn.Sequential(nn.Linear(12, 32), nn.ReLU(), nn.Linear(32, 5))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

with NeuralDbg(model) as dbg:
    for _ in range(3):
        for rows in torch.arange(4096).split(64):
            loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
