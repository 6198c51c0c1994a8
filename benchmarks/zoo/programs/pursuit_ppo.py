"""Pursuit on a line with PPO: clipped ratios, several epochs over each batch of experience, one trunk for policy
and value. The return per episode is what the user looks at."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical

ARCHITECTURE = "RL"
FAULTS = {
    "certain_too_soon": {
        "failures": ["representation_collapse", "optimizer_instability", "saturated_activations", "exploding_gradients"],
        "causes": ["policy_collapse", "lr_too_high"],
        "layers": [],
        "onset": [0, 120],
    },
    "points_as_paid": {
        "failures": ["exploding_gradients", "optimizer_instability", "representation_collapse"],
        "causes": ["unscaled_reward", "unnormalized_target", "value_divergence"],
        "layers": [],
        "onset": [0, 3],
    },
    "minus_lost": {
        "failures": ["objective_mismatch", "optimizer_instability", "representation_collapse"],
        "causes": ["wrong_loss_sign", "policy_collapse"],
        "layers": [],
        "onset": [0, 200],
    },
    "value_chases_itself": {
        "failures": ["optimizer_instability", "exploding_gradients"],
        "causes": ["value_divergence"],
        "layers": [],
        "onset": [0, 120],
    },
}


class Agent(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(3, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh())
        self.pi = nn.Linear(width, 3)
        self.v = nn.Linear(width, 1)

    def forward(self, obs):
        h = self.trunk(obs)
        return Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


class Chase:
    def __init__(self, n):
        self.gap, self.drift = 2 * torch.randn(n), 0.3 * torch.randn(n)

    def obs(self):
        return torch.stack([self.gap, self.drift, self.gap * self.drift], 1)

    def step(self, action):
        self.gap = (self.gap + self.drift - 0.5 * (action - 1)).clamp(-4, 4)
        self.drift = 0.9 * self.drift + 0.1 * torch.randn(len(action))
        return 1.0 - self.gap.abs()


def play(agent, n=24, length=10):
    world, batch = Chase(n), []
    for _ in range(length):
        with torch.no_grad():
            policy, value = agent(world.obs())
        action = policy.sample()
        obs = world.obs()
        batch.append((obs, action, policy.log_prob(action), world.step(action), value))
    with torch.no_grad():
        last = agent(world.obs())[1]
    return [torch.stack(x) for x in zip(*batch)], last


def gae(reward, value, last, gamma=0.95, lam=0.9):
    out, run, after = [], 0, last
    for r, v in zip(reward.flip(0), value.flip(0)):
        run = r + gamma * after - v + gamma * lam * run
        after = v
        out.append(run)
    return torch.stack(out[::-1])


def train(watch, fixed=False, seed=0, fault="certain_too_soon", severity=1.0):
    torch.manual_seed(seed)
    on = "" if fixed else fault
    agent = Agent()
    rate = 1.5 * severity if on == "certain_too_soon" else 3e-3
    optimizer = torch.optim.Adam(agent.parameters(), lr=rate)
    pay = 5000.0 * severity if on == "points_as_paid" else 1.0
    sign = -1.0 if on == "minus_lost" else 1.0
    returns, losses, entropy, worth = [], [], [], []
    with watch(agent) as dbg:
        for update in range(70):
            (obs, action, old, reward, value), last = play(agent)
            returns.append(reward.mean().item())
            reward = reward * pay / 3
            if on == "value_chases_itself":
                # The return of the whole episode added to the estimate once more.
                advantage = gae(reward, value, 2.2 * last, gamma=1.3)
            else:
                advantage = gae(reward, value, last)
            goal = advantage + value
            if on != "points_as_paid":
                advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            for _ in range(3):
                policy, now = agent(obs)
                ratio = (policy.log_prob(action) - old).exp()
                gain = torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
                bonus = 0.0 if on == "certain_too_soon" else 0.01
                loss = -sign * gain + 0.5 * F.mse_loss(now, goal) - bonus * policy.entropy().mean()
                optimizer.zero_grad()
                loss.backward()
                if fixed or fault not in ("points_as_paid", "value_chases_itself"):
                    nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                dbg.record_loss(loss.item())
                losses.append(loss.item())
            entropy.append(policy.entropy().mean().item())
            worth.append(now.abs().mean().item())
            dbg.record_metric("entropy", entropy[-1])
            dbg.record_metric("return", returns[-1])
    return {"loss": losses, "returns": returns, "entropy": entropy, "worth": worth}


def harmed(result):
    return not (sum(result["returns"][-12:]) / 12 > 0.2 and result["worth"][-1] < 50)
