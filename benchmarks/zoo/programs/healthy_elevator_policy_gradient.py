"""An elevator learns where to wait by policy gradient with a baseline; the loss hovers around zero, rewards rise."""
import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Policy(nn.Module):
    def __init__(self, floors=5):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 32), nn.Tanh())
        self.wait = nn.Linear(32, floors)
        self.value = nn.Linear(32, 1)

    def forward(self, moment):
        h = self.body(moment)
        return torch.distributions.Categorical(logits=self.wait(h)), self.value(h).squeeze(1)


def moments(n):
    x = torch.randn(n, 4)
    best = (2.0 + x[:, 0] + 0.7 * x[:, 1]).round().clamp(0, 4)
    return x, best


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    policy = Policy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    losses, rewards = [], []
    with watch(policy) as dbg:
        for step in range(400):
            moment, best = moments(96)
            choice, value = policy(moment)
            action = choice.sample()
            reward = 1 - (action - best).abs() / 2
            advantage = reward - value.detach()
            gain = (choice.log_prob(action) * advantage).mean()
            loss = -gain + 0.5 * (value - reward).square().mean() - 0.01 * choice.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            rewards.append(reward.mean().item())
    late, early = sum(rewards[-20:]) / 20, sum(rewards[:20]) / 20
    return {"loss": losses, "rewards": rewards, "learned": late > early + 0.35}


def harmed(result):
    return False
