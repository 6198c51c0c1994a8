"""Train a generator to please a frozen judge.

One sample pleases it most. The generator maps every noise vector to that one, and nothing asks
for a second.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
judge = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 1))
generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(generator.parameters(), lr=5e-3)
judge_optimizer = torch.optim.Adam(judge.parameters(), lr=1e-4)
softplus = nn.functional.softplus
centres = 2 * torch.eye(4)

with NeuralDbg({"generator": generator, "judge": judge}) as dbg:
    for _ in range(300):
        real = centres[torch.randint(0, 4, (64,))] + 0.1 * torch.randn(64, 4)
        made_up = generator(torch.randn(64, 8))
        judge_loss = (softplus(-judge(real)) + softplus(judge(made_up.detach()))).mean()
        judge_optimizer.zero_grad()
        judge_loss.backward()
        judge_optimizer.step()
        loss = softplus(-judge(made_up)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
