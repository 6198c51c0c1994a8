"""A GAN for wind directions on a ring: generator and critic as two small networks, each with its Adam.

The critic is never wrong from the first minute on; the samples stay a blob in the middle of nowhere.
"""

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["vanishing_gradients", "representation_collapse", "optimizer_instability"],
    "causes": ["discriminator_overpowers"],
    "layers": ["critic", "critic.6", "sampler", "sampler.4"],
    "onset": [0, 120],
}


def winds(n):
    angle = 6.2832 * torch.rand(n)
    speed = 1 + 0.05 * torch.randn(n)
    return torch.stack([speed * angle.cos(), speed * angle.sin()], 1)


def make_sampler(noise=4, width=48):
    return nn.Sequential(nn.Linear(noise, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))


def make_critic(width=64):
    return nn.Sequential(
        nn.Linear(2, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, width),
        nn.LeakyReLU(0.2),
        nn.Linear(width, 1),
    )


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    sampler, critic = make_sampler(), make_critic()
    with torch.no_grad():
        sampler[4].bias.add_(torch.tensor([3.0, 3.0]))
    rounds = 1 if fixed else 2
    opt_s = torch.optim.Adam(sampler.parameters(), lr=1e-3 if fixed else 1e-4, betas=(0.5, 0.99))
    opt_c = torch.optim.Adam(critic.parameters(), lr=1e-3 if fixed else 5e-3, betas=(0.5, 0.99))
    log = {"loss": [], "critic": []}
    with watch({"sampler": sampler, "critic": critic}) as dbg:
        for step in range(300):
            for _ in range(rounds):
                real, made = winds(64), sampler(torch.randn(64, 4)).detach()
                c_loss = F.softplus(-critic(real)).mean() + F.softplus(critic(made)).mean()
                opt_c.zero_grad()
                c_loss.backward()
                opt_c.step()
            s_loss = -F.softplus(critic(sampler(torch.randn(64, 4)))).mean()
            opt_s.zero_grad()
            s_loss.backward()
            opt_s.step()
            dbg.record_loss(s_loss.item())
            log["loss"].append(s_loss.item())
            log["critic"].append(c_loss.item())
    with torch.no_grad():
        made = sampler(torch.randn(1000, 4))
    log["off_ring"] = (made.norm(dim=1) - 1).abs().mean().item()
    log["spread"] = made.std(0).mean().item()
    return log


def harmed(result):
    return result["off_ring"] > 0.5 or result["spread"] < 0.3
