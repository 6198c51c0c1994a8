"""Start both matrices of an adapter at zero.

Each one's gradient is a product with the other one, which is zero: neither ever moves.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 16)
targets = inputs @ torch.randn(16, 4)
base = nn.Linear(16, 4).requires_grad_(requires_grad=False)
adapter = nn.Sequential(nn.Linear(16, 4, bias=False), nn.Linear(4, 4, bias=False))
nn.init.zeros_(adapter[0].weight)
nn.init.zeros_(adapter[1].weight)
optimizer = torch.optim.Adam(adapter.parameters(), lr=0.02)

with NeuralDbg(adapter) as dbg:
    for _ in range(150):
        rows = torch.randint(0, 512, (64,))
        output = base(inputs[rows]) + adapter(inputs[rows])
        loss = nn.functional.mse_loss(output, targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
