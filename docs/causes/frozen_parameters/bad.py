"""Freeze everything but the normalisation.

The linear layers are random and stay so; scales and shifts alone cannot make up for it.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 8)
labels = (inputs.square().sum(1) > 7.3).long()
model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 2))
for name, parameter in model.named_parameters():
    parameter.requires_grad_(requires_grad=name.startswith("1."))
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
optimizer = torch.optim.Adam(trained, lr=0.02)

with NeuralDbg(model) as dbg:
    for _ in range(250):
        rows = torch.randint(0, 512, (128,))
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
