"""Ask a plain recurrent net what it saw forty steps ago.

At every time step the gradient shrinks by the recurrent weights and the derivative of tanh:
what reaches the first symbol is nothing.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class Recall(nn.Module):
    """Names the first symbol of a sequence once it has read all of it."""

    def __init__(self):
        super().__init__()
        self.cell = nn.RNN(4, 24, batch_first=True)
        self.head = nn.Linear(24, 4)

    def forward(self, symbols):
        return self.head(self.cell(symbols)[0][:, -1])


model = Recall()
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
