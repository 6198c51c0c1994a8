"""REINFORCE for a lift that has to choose one of five floors to wait at, given the hour; returns are not normalised.

After a few updates the lift is certain of its choices, most of them wrong, and never tries another one again.
"""

import torch
from torch import nn

TRUTH = {
    "failures": ["representation_collapse", "optimizer_instability"],
    "causes": ["policy_collapse", "lr_too_high"],
    "layers": [],
    "onset": [0, 40],
}
FLOORS = 5


class WaitingPolicy(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.read = nn.Linear(4, width)
        self.think = nn.Linear(width, width)
        self.floor = nn.Linear(width, FLOORS)

    def forward(self, hour):
        h = torch.relu(self.read(hour))
        return torch.distributions.Categorical(logits=self.floor(torch.relu(self.think(h))))


def clock(n):
    hour = 24 * torch.rand(n)
    angle = hour * 2 * torch.pi / 24
    features = torch.stack([angle.cos(), angle.sin(), (2 * angle).cos(), (2 * angle).sin()], 1)
    busiest = (hour / 24 * FLOORS).long().clamp(max=FLOORS - 1)
    return features, busiest


def satisfaction(floor, busiest):
    return 5.0 - (floor - busiest).abs().float()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    policy = WaitingPolicy()
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3 if fixed else 5e-2)
    log = {"loss": [], "satisfaction": [], "entropy": []}
    with watch(policy) as dbg:
        for update in range(400):
            hour, busiest = clock(64)
            choice = policy(hour)
            floor = choice.sample()
            reward = satisfaction(floor, busiest)
            weight = (reward - reward.mean()) / (reward.std() + 1e-6) if fixed else reward
            loss = -(choice.log_prob(floor) * weight).mean()
            if fixed:
                loss = loss - 0.02 * choice.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            log["loss"].append(loss.item())
            log["satisfaction"].append(reward.mean().item())
            log["entropy"].append(choice.entropy().mean().item())
    return log


def harmed(result):
    return sum(result["satisfaction"][-40:]) / 40 < 4.6
