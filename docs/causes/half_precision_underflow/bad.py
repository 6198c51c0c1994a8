"""Keep a variance in float16 that is smaller than float16 can say.

0.0001 squared is 1e-8, and the smallest number of float16 is 6e-8: the variance is zero, and so
is what is divided by its root.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 8)
targets = inputs @ torch.randn(8, 1)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(120):
        rows = torch.randint(0, 512, (64,))
        hidden = 1e-4 * model[1](model[0](inputs[rows]))
        variance = hidden.half().square().mean(1, keepdim=True)
        output = model[2](hidden / variance.sqrt().float())
        loss = nn.functional.mse_loss(output, targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
