"""Tell the recurrent net that the batch comes first."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class Tagger(nn.Module):
    """Says whether a series rises on the whole."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRU(3, 16, batch_first=True)
        self.head = nn.Linear(16, 2)

    def forward(self, series):
        return self.head(self.cell(series)[0][:, -1])


model = Tagger()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(120):
        series = torch.randn(32, 8, 3)
        labels = (series[..., 0].sum(1) > 0).long()
        loss = nn.functional.cross_entropy(model(series), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
