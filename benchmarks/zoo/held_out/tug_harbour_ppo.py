"""A tug learns to bring ships to their berth with PPO. The loss looks as in any other run,
and the reward sinks from update to update."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

ARCHITECTURE = "RL"
TRUTH = {
    "failures": ["objective_mismatch", "optimizer_instability"],
    "causes": ["wrong_loss_sign"],
    "layers": [],
    "onset": [0, 0],
}


class Harbour:
    """Ships drift in two dimensions; pushing is north, south, east, west, or not at all."""

    moves = torch.tensor([[0.0, 1.0], [0.0, -1.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])

    def __init__(self, ships):
        self.offset = 1.2 * torch.randn(ships, 2)

    def push(self, action):
        before = self.offset.norm(dim=1)
        self.offset = self.offset - 0.3 * self.moves[action] + 0.05 * torch.randn_like(self.offset)
        return before - self.offset.norm(dim=1) - 0.02 * (action != 4)


class TugPolicy(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 5))
        self.critic = nn.Sequential(nn.Linear(2, 48), nn.Tanh(), nn.Linear(48, 1))
        nn.init.orthogonal_(self.actor[-1].weight, 0.01)
        nn.init.zeros_(self.actor[-1].bias)

    def forward(self, offset):
        return Categorical(logits=self.actor(offset)), self.critic(offset)[:, 0]


@torch.no_grad()
def collect(policy, ships=32, length=8, gamma=0.9):
    harbour, rows, rewards = Harbour(ships), [], []
    for _ in range(length):
        offset = harbour.offset
        chance, _ = policy(offset)
        action = chance.sample()
        rewards.append(harbour.push(action))
        rows.append((offset, action, chance.log_prob(action)))
    back, goals = policy(harbour.offset)[1], []
    for reward in rewards[::-1]:
        back = reward + gamma * back
        goals.insert(0, back)
    offset, action, old = (torch.cat(x) for x in zip(*rows))
    return offset, action, old, torch.cat(goals), torch.stack(rewards).mean().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    policy = TugPolicy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    losses, paid = [], []
    with watch(policy) as dbg:
        for _ in range(80):
            offset, action, old, goal, reward = collect(policy)
            paid.append(reward)
            for rows in torch.randperm(len(goal)).split(64):
                chance, value = policy(offset[rows])
                gain = goal[rows] - value.detach() if fixed else value.detach() - goal[rows]
                gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                ratio = (chance.log_prob(action[rows]) - old[rows]).exp()
                surrogate = torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
                entropy = chance.entropy().mean()
                loss = -surrogate + 0.5 * F.mse_loss(value, goal[rows]) - 0.01 * entropy
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
            dbg.record_metric("entropy", entropy.item())
            dbg.record_metric("reward", reward)
    return {"loss": losses, "reward": sum(paid[-10:]) / 10}


def harmed(result):
    return result["reward"] < 0.07
