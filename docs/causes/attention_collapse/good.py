"""Scale the attention logits and train at a usual rate."""

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
        rows = self.softmax(logits / 32**0.5)
        return self.head((rows @ self.value(tokens)).mean(1))


directions = torch.randn(8, 32)
model = Pointer()
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

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
