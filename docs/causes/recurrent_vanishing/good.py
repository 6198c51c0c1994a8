"""Ask an LSTM whose forget gates start open."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class Recall(nn.Module):
    """Names the first symbol of a sequence once it has read all of it."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(4, 24, batch_first=True)
        self.head = nn.Linear(24, 4)

    def forward(self, symbols):
        return self.head(self.cell(symbols)[0][:, -1])


model = Recall()
with torch.no_grad():
    model.cell.bias_hh_l0[24:48] = 4.0
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)

with NeuralDbg(model) as dbg:
    for _ in range(200):
        first = torch.randint(0, 4, (32,))
        symbols = 0.3 * torch.randn(32, 40, 4)
        symbols[:, 0] = nn.functional.one_hot(first, 4).float()
        loss = nn.functional.cross_entropy(model(symbols), first)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
