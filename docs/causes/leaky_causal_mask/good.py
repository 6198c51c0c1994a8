"""Train the next-token model with a causal mask."""

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
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.block(self.embed(tokens) + self.place, src_mask=mask))


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
