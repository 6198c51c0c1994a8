"""Average the loss over padding as well as over words.

Most positions are padding. The loss falls fast because padding is easy, and the words hardly
count.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
PAD = 0
text = torch.randint(1, 12, (512, 16))
tags = (text * 5) % 11 + 1
lengths = torch.randint(3, 8, (512,))
is_padding = torch.arange(16) >= lengths.unsqueeze(1)
text[is_padding], tags[is_padding] = PAD, PAD
model = nn.Sequential(nn.Embedding(12, 16), nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 12))
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
criterion = nn.CrossEntropyLoss()

with NeuralDbg(model) as dbg:
    for _ in range(120):
        rows = torch.randint(0, 512, (32,))
        loss = criterion(model(text[rows]).flatten(0, 1), tags[rows].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
