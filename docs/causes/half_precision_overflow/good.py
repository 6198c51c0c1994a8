"""Square them in float32."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
signal = torch.randn(512, 16)
signal[300] *= 1000
power = signal.square().mean(1, keepdim=True).log1p()
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

with NeuralDbg(model) as dbg:
    for _ in range(8):
        for rows in torch.arange(512).split(32):
            with torch.autocast("cpu", torch.float16):
                filtered = model[0](signal[rows])
                energy = filtered.float() * filtered.float()
            output = model[2](model[1](energy.float().log1p()))
            loss = nn.functional.mse_loss(output, power[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
