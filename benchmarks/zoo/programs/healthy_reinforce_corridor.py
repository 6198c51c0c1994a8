"""REINFORCE in a corridor: the surrogate loss hovers around zero, changes sign, and jumps from episode to episode."""
import random

import torch
from torch import nn
from torch.distributions import Categorical

ARCHITECTURE = "RL"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
CELLS = 9


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(CELLS, 32), nn.Tanh())
        self.pi = nn.Linear(32, 3)

    def forward(self, obs):
        return Categorical(logits=self.pi(self.body(obs)))


def episode(policy, rng):
    place = rng.randrange(CELLS)
    goal = CELLS - 1
    logps, rewards, entropies = [], [], []
    for _ in range(14):
        obs = torch.zeros(CELLS)
        obs[place] = 3.0
        dist = policy(obs)
        a = dist.sample()
        logps.append(dist.log_prob(a))
        entropies.append(dist.entropy())
        place = min(CELLS - 1, max(0, place + a.item() - 1))
        rewards.append(0.3 if place == goal else -0.1)
    return torch.stack(logps), rewards, torch.stack(entropies).mean()


def to_go(rewards, gamma=0.9):
    out, acc = [], 0.0
    for r in reversed(rewards):
        acc = r + gamma * acc
        out.append(acc)
    return torch.tensor(out[::-1])


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    rng = random.Random(seed)
    policy = Policy()
    opt = torch.optim.Adam(policy.parameters(), lr=8e-3)
    baseline, losses, returns = 0.0, [], []
    with watch(policy) as dbg:
        for update in range(250):
            loss = 0.0
            for _ in range(3):
                logp, rewards, entropy = episode(policy, rng)
                gains = to_go(rewards)
                baseline = 0.95 * baseline + 0.05 * gains.mean().item()
                loss = loss - (logp * (gains - baseline)).mean() / 3 - 0.01 * entropy / 3
                returns.append(sum(rewards))
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    early, late = sum(returns[:90]) / 90, sum(returns[-90:]) / 90
    return {"loss": losses, "early": early, "late": late, "learned": late > early + 1.0}


def harmed(result):
    return False
