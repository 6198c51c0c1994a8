"""Let Adam's second moment remember a thousand steps while the gradient grows within ten.

The targets get louder at step 150. The second moment still holds the small gradients of before,
so the first steps after it are far too long and the loss spikes.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(1024, 8)
signal = inputs @ torch.randn(8, 1)
model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.999))

with NeuralDbg(model) as dbg:
    for step in range(300):
        rows = torch.randint(0, 1024, (64,))
        noise = 0.01 * torch.randn(64, 1)
        loudness = 0.1 if step < 150 else 1.0
        loss = nn.functional.mse_loss(model(inputs[rows]), loudness * signal[rows] + noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
