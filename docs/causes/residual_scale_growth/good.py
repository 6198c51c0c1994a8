"""Scale each branch by 1/sqrt(2 L) and normalise the end of the stream."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
DEPTH = 12


class Block(nn.Module):
    """A branch beside an identity."""

    def __init__(self):
        super().__init__()
        self.enter, self.leave = nn.Linear(32, 64), nn.Linear(64, 32)
        nn.init.kaiming_normal_(self.enter.weight, nonlinearity="relu")
        nn.init.xavier_normal_(self.leave.weight)

    def forward(self, hidden):
        return hidden + self.leave(self.enter(hidden).relu()) / (2 * DEPTH) ** 0.5


inputs = torch.randn(512, 32)
targets = inputs[:, :1].sin() + inputs[:, 1:2]
model = nn.Sequential(*[Block() for _ in range(DEPTH)], nn.LayerNorm(32), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(120):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
