"""REINFORCE without a baseline: a fox looks for its den. The 'loss' is noise around zero and means nothing."""

import torch
from torch import nn
from torch.distributions import Categorical

ARCHITECTURE = "RL"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    policy = nn.Sequential(nn.Linear(4, 24), nn.Tanh(), nn.Linear(24, 4))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    losses, found = [], []
    with watch(policy) as dbg:
        for episode in range(400):
            smell = torch.randn(48, 4)
            choice = Categorical(logits=policy(smell))
            step = choice.sample()
            reward = (step == smell.argmax(1)).float() - 0.25
            loss = -(choice.log_prob(step) * reward).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            found.append(reward.mean().item())
    return {"loss": losses, "found": found, "learned": sum(found[-20:]) / 20 > 0.4}


def harmed(result):
    return False
