"""Run the same layer in bfloat16, whose range is that of float32."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = 40 * torch.randn(512, 16)
targets = (inputs[:, :1] / 40).tanh()
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler("cpu")

with NeuralDbg(model) as dbg:
    for _ in range(100):
        rows = torch.randint(0, 512, (32,))
        with torch.autocast("cpu", torch.bfloat16):
            energy = model[0](inputs[rows]).square()
            output = model[2](model[1](energy)).float() / 1600
        loss = nn.functional.mse_loss(output, targets[rows])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        dbg.record_loss(loss)
