"""Load one layer from a checkpoint whose weights were kept in other units.

In the middle of training the first layer comes back 16 times as large.
Its outputs leave the band that they kept before, and so does what reads them.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 8)
targets = inputs @ torch.randn(8, 1)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.003)

with NeuralDbg(model) as dbg:
    for step in range(150):
        if step == 40:
            kept = {name: 16 * value for name, value in model[0].state_dict().items()}
            model[0].load_state_dict(kept)
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.mse_loss(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
