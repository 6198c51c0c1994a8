"""Divide the returns by their scale."""

import torch
from torch import nn

from neuraldbg import NeuralDbg

torch.manual_seed(0)


class ActorCritic(nn.Module):
    """A policy and a value on shared features."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 32), nn.Tanh())
        self.policy, self.value = nn.Linear(32, 4), nn.Linear(32, 1)

    def forward(self, state):
        features = self.trunk(state)
        return self.policy(features), self.value(features).squeeze(1)


gains = 300 + 100 * torch.randn(6, 4)
gains = (gains - gains.mean()) / gains.std()
model = ActorCritic()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

with NeuralDbg(model) as dbg:
    for _ in range(200):
        places = torch.randint(0, 6, (64,))
        logits, value = model(torch.eye(6)[places])
        policy = torch.distributions.Categorical(logits=logits)
        actions = policy.sample()
        returns = gains[places, actions]
        advantage = returns - value.detach()
        policy_loss = -(policy.log_prob(actions) * advantage).mean()
        loss = policy_loss + 0.5 * nn.functional.mse_loss(value, returns)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        dbg.record_loss(loss)
