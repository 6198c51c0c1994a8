"""Train a policy with long steps on raw rewards.

After a dozen updates it is certain of some choice, right or wrong. It tries no other, and what
it never tries it cannot learn.
"""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)
rewards = 10 + 5 * torch.randn(6, 4)
model = nn.Sequential(nn.Linear(6, 32), nn.Tanh(), nn.Linear(32, 4))
optimizer = torch.optim.Adam(model.parameters(), lr=0.3)

with NeuralDbg(model) as dbg:
    for _ in range(200):
        places = torch.randint(0, 6, (64,))
        policy = torch.distributions.Categorical(logits=model(torch.eye(6)[places]))
        actions = policy.sample()
        reward = rewards[places, actions]
        loss = -(policy.log_prob(actions) * reward).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
        dbg.record_metric("reward", reward.mean())
