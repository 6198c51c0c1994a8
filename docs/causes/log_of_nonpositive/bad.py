"""Write cross-entropy by hand as the logarithm of a softmax.

Once the model is sure, the probability of a wrong class underflows to exactly zero, and a
mislabelled sample asks for its logarithm.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 8)
labels = (inputs[:, 0] > 0).long()
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

with NeuralDbg(model) as dbg:
    for step in range(120):
        rows = torch.randint(0, 512, (64,))
        samples = inputs[rows] * (60.0 if step == 80 else 1.0)
        log_probabilities = model(samples).softmax(1).log()
        targets = nn.functional.one_hot(labels[rows], 2)
        loss = -(targets * log_probabilities).sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
