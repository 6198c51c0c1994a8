"""A crane learns to hold its hook over a mark by Q-learning with two estimates, a replay buffer and
a slow copy. The estimates pass every possible return and go on growing."""

import copy
from collections import deque

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "RL"
TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients"],
    "causes": ["value_divergence"],
    "layers": [],
    "onset": [0, 75],
}

GAMMA = 0.95


class Yard:
    def __init__(self, n):
        self.at, self.speed = torch.empty(n).uniform_(-1.5, 1.5), torch.zeros(n)

    def look(self):
        return torch.stack([self.at, 2 * self.speed], 1)

    def push(self, action):
        self.speed = 0.8 * self.speed + 0.1 * (action - 1) + 0.02 * torch.randn(len(self.at))
        self.at = (self.at + self.speed).clamp(-2, 2)
        return 1.0 - self.at.abs()


class TwinQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = self.build(), self.build()

    def build(self):
        return nn.Sequential(
            nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 3)
        )

    def forward(self, state):
        return torch.stack([self.first(state), self.second(state)])


class Agent:
    def __init__(self, careful):
        self.q = TwinQ()
        self.slow = copy.deepcopy(self.q).requires_grad_(False)
        self.optimizer = torch.optim.Adam(self.q.parameters(), lr=1.5e-3)
        self.memory = deque(maxlen=200)
        self.careful = careful

    def act(self, state, explore):
        with torch.no_grad():
            best = self.q(state).mean(0).argmax(1)
        return torch.where(torch.rand(len(best)) < explore, torch.randint(0, 3, best.shape), best)

    def learn(self):
        picks = torch.randint(0, len(self.memory), (8,)).tolist()
        state, action, reward, after = (
            torch.cat(x) for x in zip(*(self.memory[i] for i in picks), strict=True)
        )
        with torch.no_grad():
            both = self.slow(after)
            worth = both.amin(0) if self.careful else both.sum(0)
            goal = reward + GAMMA * worth.amax(1)
        q = self.q(state).gather(2, action.expand(2, -1)[..., None])[..., 0]
        loss = F.smooth_l1_loss(q, goal.expand_as(q))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item(), q.abs().mean().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    agent = Agent(careful=fixed)
    losses, sizes = [], []
    with watch(agent.q) as dbg:
        for step in range(500):
            if step % 25 == 0:
                yard = Yard(16)
            state = yard.look()
            action = agent.act(state, explore=max(0.1, 1 - step / 200))
            reward = yard.push(action)
            agent.memory.append((state, action, reward, yard.look()))
            loss, size = agent.learn()
            if step % 25 == 24:
                agent.slow.load_state_dict(agent.q.state_dict())
            dbg.record_loss(loss)
            losses.append(loss)
            sizes.append(size)
    yard, paid = Yard(64), []
    for _ in range(25):
        paid.append(yard.push(agent.act(yard.look(), 0.0)).mean().item())
    return {"loss": losses, "q": sizes[-1], "reward": sum(paid[10:]) / 15}


def harmed(result):
    """No return can be above 1 / (1 - gamma)."""
    return not result["q"] < 1 / (1 - GAMMA) or result["reward"] < 0.3
