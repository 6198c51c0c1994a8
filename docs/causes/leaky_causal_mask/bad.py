"""Train a next-token model without a causal mask.

Each position sees the token that it has to predict. The loss falls to near zero, and the model
cannot write a word.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class Writer(nn.Module):
    """Predicts each next token."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 32)
        self.place = nn.Parameter(torch.randn(10, 32))
        self.block = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.head = nn.Linear(32, 12)

    def forward(self, tokens):
        return self.head(self.block(self.embed(tokens) + self.place))


steps = torch.tensor([1, 2, 1, 3, 1, 2, 1, 4, 1, 2])
model = Writer()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

with NeuralDbg(model) as dbg:
    for _ in range(120):
        start = torch.randint(0, 12, (32, 1))
        text = (start + torch.cat([torch.zeros(1), steps.cumsum(0)]).long()) % 12
        logits = model(text[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
