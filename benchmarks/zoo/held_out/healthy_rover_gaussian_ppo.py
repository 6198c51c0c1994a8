"""A rover steers to its camp by PPO with Gaussian actions. Noise falls as it learns, the clip acts
in many samples, and the loss itself hovers about zero."""

import torch
from torch import nn
from torch.distributions import Normal

ARCHITECTURE = "RL"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Rover(nn.Module):
    def __init__(self):
        super().__init__()
        self.steer = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 2))
        self.worth = nn.Sequential(nn.Linear(4, 48), nn.Tanh(), nn.Linear(48, 1))
        self.log_std = nn.Parameter(torch.full((2,), -0.5))
        with torch.no_grad():
            self.steer[-1].weight.mul_(0.1)

    def forward(self, state):
        return Normal(self.steer(state), self.log_std.exp()), self.worth(state)[:, 0]


class Plain:
    def __init__(self, rovers):
        self.place, self.speed = 1.5 * torch.randn(rovers, 2), torch.zeros(rovers, 2)

    def state(self):
        return torch.cat([self.place, 2 * self.speed], 1)

    def drive(self, action):
        self.speed = 0.7 * self.speed + 0.2 * action.clamp(-1.5, 1.5)
        self.place = (self.place + self.speed).clamp(-4, 4)
        return 0.2 - 0.15 * self.place.norm(dim=1)


@torch.no_grad()
def drive(rover, rovers=32, length=16, gamma=0.93, lam=0.95):
    plain, rows, rewards, worths = Plain(rovers), [], [], []
    for _ in range(length):
        state = plain.state()
        policy, worth = rover(state)
        action = policy.sample()
        rows.append((state, action, policy.log_prob(action).sum(1)))
        rewards.append(plain.drive(action))
        worths.append(worth)
    after, run, gains = rover(plain.state())[1], torch.zeros(rovers), []
    for reward, worth in zip(rewards[::-1], worths[::-1]):
        run = reward + gamma * after - worth + gamma * lam * run
        after = worth
        gains.insert(0, run)
    state, action, old = (torch.cat(x) for x in zip(*rows))
    gain = torch.cat(gains)
    return state, action, old, gain, gain + torch.cat(worths), torch.stack(rewards).mean().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    rover = Rover()
    optimizer = torch.optim.Adam(rover.parameters(), lr=2e-3, eps=1e-5)
    losses, paid = [], []
    with watch(rover) as dbg:
        for _ in range(50):
            state, action, old, gain, goal, reward = drive(rover)
            paid.append(reward)
            for _ in range(2):
                for rows in torch.randperm(len(gain)).split(128):
                    policy, worth = rover(state[rows])
                    g = gain[rows]
                    g = (g - g.mean()) / (g.std() + 1e-8)
                    ratio = (policy.log_prob(action[rows]).sum(1) - old[rows]).exp()
                    loss = -torch.min(ratio * g, ratio.clamp(0.8, 1.2) * g).mean()
                    loss = loss + 0.5 * (worth - goal[rows]).square().mean()
                    loss = loss - 0.003 * policy.entropy().sum(1).mean()
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(rover.parameters(), 0.5)
                    optimizer.step()
                    dbg.record_loss(loss.item())
                    losses.append(loss.item())
            dbg.record_metric("reward", reward)
    first, last = sum(paid[:3]) / 3, sum(paid[-5:]) / 5
    return {"loss": losses, "first": first, "last": last, "learned": last > first + 0.12}


def harmed(result):
    return False
