"""Evaluate in train mode.

Dropout falsifies the score, and the running statistics of batch normalisation learn from the
test data.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(640, 8)
labels = (inputs @ torch.randn(8, 3)).argmax(1)
model = nn.Sequential(
    nn.Linear(8, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 3)
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)

with NeuralDbg(model) as dbg:
    for _ in range(8):
        for rows in torch.arange(512).split(32):
            loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
        with torch.no_grad():
            dbg.record_metric(
                "accuracy", (model(inputs[512:]).argmax(1) == labels[512:]).float().mean()
            )
