"""Initialise all weights with a standard deviation of one.

With 64 inputs per unit that is six times Kaiming's scale: activations grow by it layer by
layer, and the first loss is hundreds of times above chance.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 16)
labels = (inputs @ torch.randn(16, 4)).argmax(1)
model = nn.Sequential(
    nn.Linear(16, 64),
    nn.ReLU(),
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 64),
    nn.ReLU(),
    nn.Linear(64, 4),
)
for layer in model[::2]:
    nn.init.normal_(layer.weight, std=1.0)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

with NeuralDbg(model) as dbg:
    for _ in range(120):
        rows = torch.randint(0, 512, (64,))
        loss = nn.functional.cross_entropy(model(inputs[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
