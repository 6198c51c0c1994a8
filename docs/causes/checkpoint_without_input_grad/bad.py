"""Checkpoint the first block of a model, the reentrant way.

Reentrant checkpointing passes gradients on only if one of its inputs needs one. Here that is
the data, which does not: the parameters inside get none.
"""

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
        return self.head(checkpoint(self.encoder, inputs, use_reentrant=True))


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
