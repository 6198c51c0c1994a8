"""Take a square root everywhere and throw the bad half away afterwards.

`where` hides the NaN of the unused branch in the forward pass. Backward multiplies its
gradient, NaN, by zero, which is NaN.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 6)
targets = inputs[:, :1].clamp(min=0).sqrt()
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(150):
        rows = torch.randint(0, 512, (64,))
        raw = model(inputs[rows])
        output = torch.where(raw > 0.01, raw.sqrt(), raw)
        loss = nn.functional.mse_loss(output, targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
