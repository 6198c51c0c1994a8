"""Resume a run from its weights and its optimizer state."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
inputs = torch.randn(512, 8)
targets = (inputs @ torch.randn(8, 1)).sin()
first = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
trainer = torch.optim.Adam(first.parameters(), lr=0.03)
for _ in range(300):
    loss = nn.functional.mse_loss(first(inputs), targets)
    trainer.zero_grad()
    loss.backward()
    trainer.step()

model = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 1))
model.load_state_dict(first.state_dict())
optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
optimizer.load_state_dict(trainer.state_dict())

with NeuralDbg(model) as dbg:
    for _ in range(60):
        loss = nn.functional.mse_loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
