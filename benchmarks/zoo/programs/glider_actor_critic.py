"""Actor-critic on a one-dimensional glider, one optimizer for the actor, one for the critic, updates in two helpers.

The actor learns slowly and noisily; the value estimates never leave their starting point.
"""
import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "RL"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["zero_grad_before_step"],
    "layers": [],
    "onset": [0, 0],
}
ENVS, HORIZON = 16, 20


def make(n_in, n_out):
    return nn.Sequential(nn.Linear(n_in, 48), nn.Tanh(), nn.Linear(48, 48), nn.Tanh(), nn.Linear(48, n_out))


class Gliders:
    def __init__(self):
        self.x = torch.rand(ENVS, 1) * 4 - 2
        self.v = torch.zeros(ENVS, 1)

    @property
    def obs(self):
        return torch.cat([self.x, self.v], 1)

    def step(self, action):
        push = (action - 1).float()[:, None]
        self.v = 0.9 * self.v + 0.2 * push
        self.x = (self.x + self.v).clamp(-3, 3)
        return (1 - self.x.abs()).squeeze(1)


def rollout(actor):
    env = Gliders()
    obs, acts, rewards = [], [], []
    for _ in range(HORIZON):
        o = env.obs
        with torch.no_grad():
            a = torch.distributions.Categorical(logits=actor(o)).sample()
        obs.append(o)
        acts.append(a)
        rewards.append(env.step(a))
    gains = torch.stack(rewards).flip(0)
    for t in range(1, HORIZON):
        gains[t] = gains[t] + 0.9 * gains[t - 1]
    return torch.stack(obs).flatten(0, 1), torch.stack(acts).flatten(), gains.flip(0).flatten(), torch.stack(rewards)


def update_actor(actor, opt, obs, acts, advantage):
    dist = torch.distributions.Categorical(logits=actor(obs))
    loss = -(dist.log_prob(acts) * advantage).mean() - 0.01 * dist.entropy().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return loss.item()


def update_critic(critic, opt, obs, gains, fixed):
    loss = F.mse_loss(critic(obs).squeeze(1), gains)
    if fixed:
        opt.zero_grad()
    loss.backward()
    if not fixed:
        opt.zero_grad()
    opt.step()
    return loss.item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    actor, critic = make(2, 3), make(2, 1)
    opt_a = torch.optim.Adam(actor.parameters(), lr=2e-3)
    opt_c = torch.optim.Adam(critic.parameters(), lr=5e-3)
    values, rewards = [], []
    with watch({"actor": actor, "critic": critic}) as dbg:
        for it in range(150):
            obs, acts, gains, got = rollout(actor)
            with torch.no_grad():
                advantage = gains - critic(obs).squeeze(1)
            value_loss = update_critic(critic, opt_c, obs, gains, fixed)
            actor_loss = update_actor(actor, opt_a, obs, acts, advantage)
            dbg.record_loss(value_loss + actor_loss)
            values.append(value_loss / gains.square().mean().item())
            rewards.append(got.mean().item())
    return {"loss": values, "reward": rewards, "unexplained": sum(values[-20:]) / 20}


def harmed(result):
    return result["unexplained"] > 0.6
