"""Start the same transformer with the learning rate warmed up over a hundred steps."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
tokens = torch.randint(0, 16, (256, 6))
labels = tokens.flip(1)
place = torch.randn(6, 16)
block = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
model = nn.ModuleDict(
    {
        "embed": nn.Embedding(16, 16),
        "encoder": nn.TransformerEncoder(block, 6, enable_nested_tensor=False),
        "head": nn.Linear(16, 16),
    }
)
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=100)

with NeuralDbg(model) as dbg:
    for _ in range(120):
        rows = torch.randint(0, 256, (16,))
        hidden = model["encoder"](model["embed"](tokens[rows]) + place)
        logits = model["head"](hidden)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels[rows].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
        warmup.step()
