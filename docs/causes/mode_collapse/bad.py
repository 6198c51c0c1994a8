"""Train a GAN's generator ten times per step of its discriminator.

Before the discriminator can answer, the generator has moved all its samples to the one spot
that it likes best just now.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
JUDGE_STEPS, GENERATOR_STEPS, LR = 80, 10, 1e-2
centres = 3 * torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
generator = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
judge = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
optimizer = torch.optim.Adam(generator.parameters(), lr=LR, betas=(0.5, 0.999))
judge_optimizer = torch.optim.Adam(judge.parameters(), lr=2e-3, betas=(0.5, 0.999))
softplus = nn.functional.softplus

with NeuralDbg({"generator": generator, "judge": judge}) as dbg:
    for _ in range(JUDGE_STEPS):
        real = centres[torch.randint(0, 4, (64,))] + 0.1 * torch.randn(64, 2)
        made_up = generator(torch.randn(64, 4)).detach()
        judge_loss = (softplus(-judge(real)) + softplus(judge(made_up))).mean()
        judge_optimizer.zero_grad()
        judge_loss.backward()
        judge_optimizer.step()
        for _ in range(GENERATOR_STEPS):
            loss = softplus(-judge(generator(torch.randn(64, 4)))).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
