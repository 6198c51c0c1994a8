"""Feed pixels from 0 to 255 to a tanh layer.

Sums of raw pixels are in the hundreds, where tanh is flat: the first layer answers plus or
minus one and passes no gradient back.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
labels = torch.randint(0, 2, (512,))
pixels = torch.randint(0, 206, (512, 64)).float()
pixels[:, :32] += 25 * labels.unsqueeze(1)
pixels[:, 32:] += 25 * (1 - labels).unsqueeze(1)
inputs = pixels
model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

with NeuralDbg(model) as dbg:
    for _ in range(150):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
