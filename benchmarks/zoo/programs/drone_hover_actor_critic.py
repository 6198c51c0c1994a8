"""Actor-critic for a hovering drone; the simulator pays in micro-cents, a shared trunk feeds policy and value.

The total loss is in the hundred millions and falls a little; the drone flies no better than at the start.
"""

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["exploding_gradients", "optimizer_instability", "representation_collapse"],
    "causes": ["unscaled_reward", "unnormalized_target"],
    "layers": [],
    "onset": [0, 0],
}
PAY = 10_000.0


class DroneNet(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.thrust = nn.Linear(width, 3)
        self.value = nn.Linear(width, 1)

    def forward(self, state):
        h = self.trunk(state)
        return self.thrust(h), self.value(h).squeeze(-1)


class Hover:
    """A batch of drones on a line that should stay near zero; thrust left, none or right."""

    def __init__(self, drones):
        self.place = torch.randn(drones)
        self.speed = 0.3 * torch.randn(drones)

    def state(self):
        return torch.stack([self.place, self.speed, self.place.abs(), self.place * self.speed], 1)

    def act(self, thrust):
        self.speed = 0.95 * self.speed + 0.15 * (thrust - 1)
        self.place = (self.place + 0.3 * self.speed).clamp(-3, 3)
        return PAY * (1 - self.place.abs())


def discounted(rewards, last, gamma=0.9):
    out = []
    for reward in reversed(rewards):
        last = reward + gamma * last
        out.append(last)
    return torch.stack(out[::-1])


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = DroneNet()
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    scale = 1 / PAY / 3 if fixed else 1.0
    losses, paid = [], []
    with watch(net) as dbg:
        for update in range(250):
            world, states, actions, rewards = Hover(32), [], [], []
            for _ in range(12):
                state = world.state()
                with torch.no_grad():
                    action = torch.distributions.Categorical(logits=net(state)[0]).sample()
                states.append(state)
                actions.append(action)
                rewards.append(world.act(action))
            paid.append(torch.stack(rewards).mean().item() / PAY)
            with torch.no_grad():
                last = net(world.state())[1]
            returns = discounted([scale * r for r in rewards], last)
            logits, value = net(torch.stack(states))
            policy = torch.distributions.Categorical(logits=logits)
            advantage = (returns - value).detach()
            actor = -(policy.log_prob(torch.stack(actions)) * advantage).mean()
            loss = actor + 0.5 * F.mse_loss(value, returns) - 0.01 * policy.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "paid": paid}


def harmed(result):
    return sum(result["paid"][-40:]) / 40 < 0.45
