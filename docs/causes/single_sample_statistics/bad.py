"""Divide each batch by its own spread, also the last one, which has one sample.

The standard deviation of one sample divides by n - 1 = 0: NaN.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(257, 8)
targets = inputs[:, :1] / inputs.std()
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(inputs, targets)
loader = torch.utils.data.DataLoader(data, batch_size=32)

with NeuralDbg(model) as dbg:
    for _ in range(12):
        for batch, target in loader:
            hidden = model[0](batch)
            hidden = (hidden - hidden.mean(0)) / hidden.std(0)
            loss = nn.functional.mse_loss(model[2](model[1](hidden)), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
