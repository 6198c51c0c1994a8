"""Leaf sizes by a Wasserstein critic with gradient penalty (double backward), three critic steps for one of the generator."""
import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def net(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 64), nn.LeakyReLU(0.1), nn.Linear(64, 64), nn.LeakyReLU(0.1), nn.Linear(64, outputs))


def leaves(n):
    length = 0.6 * torch.randn(n, 1)
    return torch.cat([length, length**2 + 0.1 * torch.randn(n, 1)], 1) + torch.tensor([1.0, -0.5])


def penalty(critic, real, made):
    share = torch.rand(len(real), 1)
    between = (share * real + (1 - share) * made).requires_grad_(True)
    slope = torch.autograd.grad(critic(between).sum(), between, create_graph=True)[0]
    return (slope.norm(dim=1) - 1).square().mean()


def distance(a, b):
    return (a.mean(0) - b.mean(0)).norm().item() + (torch.cov(a.T) - torch.cov(b.T)).norm().item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    generator, critic = net(3, 2), net(2, 1)
    for_generator = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.0, 0.9))
    for_critic = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0.0, 0.9))
    losses = []

    def gap():
        with torch.no_grad():
            return distance(generator(torch.randn(2000, 3)), leaves(2000))

    with watch({"generator": generator, "critic": critic}) as dbg:
        start = gap()
        for step in range(350):
            for _ in range(3):
                real = leaves(64)
                made = generator(torch.randn(64, 3)).detach()
                for_critic.zero_grad()
                loss = critic(made).mean() - critic(real).mean() + 2 * penalty(critic, real, made)
                loss.backward()
                for_critic.step()
            for_generator.zero_grad()
            (-critic(generator(torch.randn(64, 3))).mean()).backward()
            for_generator.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
        end = gap()
    return {"loss": losses, "start": start, "end": end, "learned": end < 0.35 * start}


def harmed(result):
    return False
