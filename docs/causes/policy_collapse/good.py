"""Normalise the rewards, shorten the steps and reward entropy."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
rewards = 10 + 5 * torch.randn(6, 4)
model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.005)

with NeuralDbg(model) as dbg:
    for _ in range(200):
        places = torch.randint(0, 6, (64,))
        policy = torch.distributions.Categorical(logits=model(torch.eye(6)[places]))
        actions = policy.sample()
        reward = rewards[places, actions]
        advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
        loss = -(policy.log_prob(actions) * advantage).mean() - 0.01 * policy.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
        dbg.record_metric("reward", reward.mean())
