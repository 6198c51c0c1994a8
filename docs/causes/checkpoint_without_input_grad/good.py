"""Checkpoint the block without reentrance."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class Classifier(nn.Module):
    """An encoder whose activations are recomputed, and a head."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(8, 4), nn.Tanh())
        self.head = nn.Linear(4, 4)

    def forward(self, inputs):
        return self.head(checkpoint(self.encoder, inputs, use_reentrant=False))


inputs = torch.randn(512, 8)
labels = (inputs @ torch.randn(8, 4)).argmax(1)
model = Classifier()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(200):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
