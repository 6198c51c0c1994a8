"""Differentiate what the forward computes."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class SafeRoot(torch.autograd.Function):
    """sqrt(x + 1e-6)."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x + 1e-6).sqrt()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient / (2 * (x + 1e-6).sqrt())


anchors = torch.randn(256, 8)
others = anchors + 0.5 * torch.randn(256, 8)
others[100] = anchors[100]
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(8):
        for rows in torch.arange(256).split(32):
            difference = model(anchors[rows]) - model(others[rows])
            distance = SafeRoot.apply(difference.square().sum(1))
            loss = distance.mean() + (1 - model(anchors[rows]).std(0).mean()).square()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
