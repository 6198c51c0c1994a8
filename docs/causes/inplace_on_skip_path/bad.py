"""Begin a residual branch with an activation that works in place.

The activation overwrites the very tensor that the skip connection adds a line later: the
negative half of the identity is gone.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class Block(nn.Module):
    """Adds a branch to its input."""

    def __init__(self):
        super().__init__()
        self.branch = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(16, 16))

    def forward(self, hidden):
        return hidden + self.branch(hidden)


inputs = torch.randn(512, 8)
targets = inputs[:, :1] - inputs[:, 1:2].abs()
model = nn.Sequential(nn.Linear(8, 16), Block(), Block(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(150):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
