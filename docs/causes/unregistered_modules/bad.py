"""Keep layers in a plain list.

torch finds modules that are attributes or in a ModuleList. Those in a list are used in forward,
and no optimizer ever hears of them.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class Tower(nn.Module):
    """Several layers, one after the other."""

    def __init__(self):
        super().__init__()
        self.layers = [nn.Linear(8, 8) for _ in range(3)]
        self.head = nn.Linear(8, 4)

    def forward(self, hidden):
        for layer in self.layers:
            hidden = layer(hidden).tanh()
        return self.head(hidden)


inputs = torch.randn(512, 8)
labels = (inputs @ torch.randn(8, 4)).argmax(1)
model = Tower()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(150):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
