"""Scale the attention logits and train at a usual rate."""

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
        rows = self.softmax(logits / 32**0.5)
        return self.head((rows @ self.value(tokens)).mean(1))


directions = torch.randn(8, 32)
model = Pointer()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)

with NeuralDbg(model) as dbg:
    for _ in range(150):
        labels = torch.randint(0, 8, (32,))
        tokens = torch.randn(32, 12, 32) + 0.6 * directions[labels].unsqueeze(1)
        loss = nn.functional.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
