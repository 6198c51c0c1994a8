"""Leave out the scale of attention and train queries and keys fast.

Without 1/sqrt(d) the logits are large from the start, and large steps make them grow: rows
become one-hot and pass no gradient back.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)

class Pointer(nn.Module):
    """Classifies a set of tokens by what its tokens have in common."""

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
optimizer = torch.optim.SGD(model.parameters(), lr=2.0, momentum=0.9)

with NeuralDbg(model) as dbg:
    for _ in range(150):
        labels = torch.randint(0, 8, (32,))
        tokens = torch.randn(32, 12, 32) + 0.6 * directions[labels].unsqueeze(1)
        loss = nn.functional.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
