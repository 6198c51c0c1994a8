"""Train a recurrent net with SGD and leave its gradients as they come.

The gradient grows along the recurrence. Once in a while a sequence makes it explode, and one
step with it throws the weights off.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)

class Counter(nn.Module):
    """Adds up a sequence."""

    def __init__(self):
        super().__init__()
        self.cell = nn.RNN(1, 24, nonlinearity="relu", batch_first=True)
        self.head = nn.Linear(24, 1)

    def forward(self, series):
        return self.head(self.cell(series)[0][:, -1])


model = Counter()
nn.init.orthogonal_(model.cell.weight_hh_l0, gain=1.05)
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)

with NeuralDbg(model) as dbg:
    for step in range(150):
        series = torch.rand(16, 60 if step % 30 == 29 else 15, 1)
        loss = nn.functional.mse_loss(model(series), series.mean(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
