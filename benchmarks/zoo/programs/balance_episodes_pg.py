"""Policy gradient for balancing a leaning rod. Advantages are standardised inside each episode.

It improves for a while; at some episode every weight turns nan and the agent acts no more.
"""
import torch
from torch import nn

ARCHITECTURE = "RL"
TRUTH = {
    "failures": ["numerical_error", "optimizer_instability"],
    "causes": ["single_sample_statistics"],
    "layers": [],
    "onset": [75, 75],
}


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.Linear(2, 32)
        self.l2 = nn.Linear(32, 2)

    def forward(self, state):
        return self.l2(torch.tanh(self.l1(state))).log_softmax(-1)


class Rod:
    """Leans away from upright; episode number 75 starts almost lying down."""

    def reset(self, number):
        angle = 0.97 if number == 75 else float(torch.rand(()) - 0.5) * 0.6
        self.s = torch.tensor([angle, 0.45 if number == 75 else 0.0])
        self.t = 0
        return self.s * 2

    def step(self, action):
        angle, speed = self.s.tolist()
        speed += 0.12 * angle + (0.08 if action else -0.08)
        angle += 0.3 * speed
        self.s = torch.tensor([angle, speed])
        self.t += 1
        return self.s * 2, 1.0, abs(angle) > 1.0 or self.t >= 60


def standardise(values, fixed):
    if fixed and len(values) < 2:
        return values - values
    return (values - values.mean()) / (values.std() + 1e-8)


def play(actor, rod, number):
    state, done, logps, rewards = rod.reset(number), False, [], []
    while not done:
        logp = actor(state)
        action = int(torch.rand(()) < logp[1].exp()) if torch.isfinite(logp).all() else 0
        state, reward, done = rod.step(action)
        logps.append(logp[action])
        rewards.append(reward)
    return torch.stack(logps), torch.tensor(rewards)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    actor, rod = Actor(), Rod()
    opt = torch.optim.Adam(actor.parameters(), lr=1.5e-2)
    lengths, losses = [], []
    with watch(actor) as dbg:
        for number in range(360):
            logps, rewards = play(actor, rod, number)
            gains = rewards.flip(0).cumsum(0).flip(0)
            loss = -(logps * standardise(gains, fixed)).mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
            lengths.append(len(rewards))
    return {"lengths": lengths, "loss": losses, "early": sum(lengths[:40]) / 40, "late": sum(lengths[-40:]) / 40}


def harmed(result):
    return result["late"] < 30
