"""Advantage actor-critic with one shared trunk on an inventory task; rewards are in cents.

The value loss is in the millions and the policy stays mediocre.
"""
import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "RL"
TRUTH = {
    "failures": ["exploding_gradients", "optimizer_instability"],
    "causes": ["unscaled_reward", "unnormalized_target"],
    "layers": [],
    "onset": [0, 0],
}


class ActorCritic(nn.Module):
    def __init__(self, states=6, actions=4):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(states, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.pi = nn.Linear(64, actions)
        self.v = nn.Linear(64, 1)

    def forward(self, s):
        h = self.trunk(s)
        return torch.distributions.Categorical(logits=self.pi(h)), self.v(h)[:, 0]


class Market:
    def __init__(self):
        self.best = torch.randn(6, 4)

    def observe(self, n):
        return torch.randn(n, 6)

    def pay(self, s, a):
        right = (s @ self.best).argmax(1) == a
        return 20000.0 * right.float() - 5000.0 + 3000.0 * s[:, 0]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    env, net = Market(), ActorCritic()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    unit = 1e-4 if fixed else 1.0
    losses, rate = [], []
    with watch(net) as dbg:
        for step in range(600):
            s = env.observe(128)
            dist, value = net(s)
            a = dist.sample()
            r = env.pay(s, a) * unit
            advantage = (r - value).detach()
            actor = -(dist.log_prob(a) * advantage).mean()
            critic = F.mse_loss(value, r)
            loss = actor + 0.5 * critic - 0.01 * dist.entropy().mean()
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            rate.append(((s @ env.best).argmax(1) == a).float().mean().item())
    return {"loss": losses, "rate": sum(rate[-30:]) / 30}


def harmed(result):
    return result["rate"] < 0.8
