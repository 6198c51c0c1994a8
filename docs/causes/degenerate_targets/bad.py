"""Mark every target of a batch as ignored.

One document has no labelled word. The mean over no target is 0/0: the loss of that batch is
NaN, and one step on it makes the weights NaN.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
IGNORE = -100
inputs = torch.randn(640, 8)
labels = (inputs[:, :3]).argmax(1)
labels[320:352] = IGNORE
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(4):
        for rows in torch.arange(640).split(32):
            loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
