"""Train a recurrent net with SGD and leave its gradients as they come.

The gradient grows along the recurrence. Once in a while a long sequence makes it explode, and
one step with it throws the weights off.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class Adder(nn.Module):
    """Adds up a sequence."""

    def __init__(self):
        super().__init__()
        self.cell = nn.RNN(1, 24, nonlinearity="relu", batch_first=True)
        self.head = nn.Linear(24, 1)

    def forward(self, series):
        return self.head(self.cell(series)[0][:, -1])


model = Adder()
nn.init.eye_(model.cell.weight_hh_l0)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

with NeuralDbg(model) as dbg:
    for step in range(150):
        series = torch.rand(16, 80 if step in {70, 110} else 10, 1)
        loss = nn.functional.mse_loss(model(series), series.sum(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
