"""Let the penalty weigh little beside the loss."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 8)
targets = (inputs @ torch.randn(8, 4)).argmax(dim=1)
scaled = nn.BatchNorm1d(32)
model = nn.Sequential(nn.Linear(8, 32), scaled, nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(200):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.cross_entropy(model(inputs[rows]), targets[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
        with torch.no_grad():  # the proximal step of the penalty
            scaled.weight.sub_(0.01 * 0.01).clamp_(min=0)
