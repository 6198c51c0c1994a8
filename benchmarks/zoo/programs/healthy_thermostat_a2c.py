"""Advantage actor-critic keeps a room at its set point; policy and value are two networks, returns are normalised."""

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Rooms:
    def __init__(self, n):
        self.error = 2 * torch.randn(n)
        self.outside = torch.randn(n)

    def look(self):
        return torch.stack([self.error, self.outside], 1)

    def heat(self, level):
        self.error = 0.9 * self.error + 0.5 * (level - 1) + 0.1 * self.outside + 0.05 * torch.randn(len(level))
        return -self.error.abs().clamp(max=3)


def mlp(outputs):
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, outputs))


def rollout(actor, critic, rooms=48, length=10, gamma=0.9):
    world, seen, chosen, paid = Rooms(rooms), [], [], []
    with torch.no_grad():
        for _ in range(length):
            seen.append(world.look())
            chosen.append(torch.distributions.Categorical(logits=actor(seen[-1])).sample())
            paid.append(world.heat(chosen[-1]))
        back = critic(world.look()).squeeze(-1)
    goals = []
    for reward in reversed(paid):
        back = reward + gamma * back
        goals.append(back)
    return torch.cat(seen), torch.cat(chosen), torch.cat(goals[::-1]), torch.stack(paid)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    actor, critic = mlp(3), mlp(1)
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=4e-3)
    losses, comfort = [], []
    with watch({"actor": actor, "critic": critic}) as dbg:
        for update in range(300):
            seen, chosen, goals, paid = rollout(actor, critic)
            policy = torch.distributions.Categorical(logits=actor(seen))
            value = critic(seen).squeeze(-1)
            advantage = (goals - value).detach()
            advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)
            loss = -(policy.log_prob(chosen) * advantage).mean() + 0.5 * F.mse_loss(value, goals)
            loss = loss - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters()], 1.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            comfort.append(paid[5:].mean().item())
    first, last = sum(comfort[:10]) / 10, sum(comfort[-20:]) / 20
    return {"loss": losses, "comfort": comfort, "first": first, "last": last, "learned": last > 0.5 * first}


def harmed(result):
    return False
