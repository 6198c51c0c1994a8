"""Leave out the scale of attention and train queries and keys fast.

Without 1/sqrt(d) the logits are large from the start, and large steps make them grow: rows
become one-hot and pass no gradient back.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class Pointer(nn.Module):
    """Classifies a set of tokens by the one that stands fourth."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(32, 32), nn.Linear(32, 32)
        self.value, self.head = nn.Linear(32, 32), nn.Linear(32, 8)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, tokens):
        logits = self.query(tokens) @ self.key(tokens).transpose(1, 2)
        rows = self.softmax(logits)
        return self.head((rows @ self.value(tokens)).mean(1))


directions = torch.randn(8, 32)
model = Pointer()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)

with NeuralDbg(model) as dbg:
    for _ in range(150):
        labels = torch.randint(0, 8, (32,))
        tokens = torch.randn(32, 12, 32)
        tokens[:, 3] += directions[labels]
        loss = nn.functional.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
