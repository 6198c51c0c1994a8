"""Give each of the twenty layers a normalised residual path."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class Block(nn.Module):
    """One layer of the tower."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.linear = nn.Linear(32, 32)

    def forward(self, hidden):
        return hidden + self.linear(self.norm(hidden)).relu()


inputs = torch.randn(512, 32)
targets = inputs[:, :1].sin() + inputs[:, 1:2]
ending = nn.LayerNorm(32)
model = nn.Sequential(*[Block() for _ in range(20)], ending, nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(120):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
