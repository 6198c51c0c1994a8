"""Train both at the same pace, the generator with the loss that does not saturate."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
JUDGE_STEPS, JUDGE_LR, LR = 1, 1e-2, 1e-2
real_mean = 3 * torch.randn(16)
generator = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 16))
judge = nn.Sequential(nn.Linear(16, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
optimizer = torch.optim.Adam(generator.parameters(), lr=LR, betas=(0.5, 0.999))
judge_optimizer = torch.optim.Adam(judge.parameters(), lr=JUDGE_LR, betas=(0.5, 0.999))
softplus = nn.functional.softplus

with NeuralDbg({"generator": generator, "judge": judge}) as dbg:
    for _ in range(150):
        for _ in range(JUDGE_STEPS):
            real = real_mean + 0.3 * torch.randn(64, 16)
            made_up = generator(torch.randn(64, 8)).detach()
            judge_loss = (softplus(-judge(real)) + softplus(judge(made_up))).mean()
            judge_optimizer.zero_grad()
            judge_loss.backward()
            judge_optimizer.step()
        scores = judge(generator(torch.randn(64, 8)))
        loss = softplus(-scores).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
