"""Add a term that keeps the variance of the embeddings up."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
mixing = torch.randn(8, 16)
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 8))
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

with NeuralDbg(model) as dbg:
    for _ in range(200):
        things = torch.randn(64, 8) @ mixing
        views = [things + 0.3 * torch.randn_like(things) for _ in range(2)]
        left, right = (model(view) for view in views)
        loss = 1 - nn.functional.cosine_similarity(left, right).mean()
        directions = nn.functional.normalize(left, dim=1)
        loss = loss + (1 - 8**0.5 * directions.std(0)).clamp(min=0).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
