"""Divide cosine similarities by the temperature."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
TEMPERATURE = 0.07
mixing = torch.randn(8, 16)
model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

with NeuralDbg(model) as dbg:
    for _ in range(150):
        things = torch.randn(32, 8) @ mixing
        views = [things + 0.3 * torch.randn_like(things) for _ in range(2)]
        left, right = (nn.functional.normalize(model(view), dim=1) for view in views)
        logits = left @ right.T / TEMPERATURE
        loss = nn.functional.cross_entropy(logits, torch.arange(32))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
