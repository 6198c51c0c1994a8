"""Learn state values from targets that the same network computes.

Each update of the network moves its own targets too, further than its outputs: values and loss
grow without bound.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(200):
        state = torch.rand(64, 4)
        following = 2 * state + 0.1 * torch.randn(64, 4)
        reward = 0.1 * state[:, :1]
        with torch.no_grad():
            target = reward + 0.99 * model(following)
        loss = nn.functional.mse_loss(model(state), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
