"""WGAN-GP on a ring of points: the critic's loss is negative and drifts, the generator's loss means nothing."""
import torch
from torch import autograd, nn

ARCHITECTURE = "GAN"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


def mlp(n_in, n_out, width=64):
    return nn.Sequential(
        nn.Linear(n_in, width), nn.LeakyReLU(0.2), nn.Linear(width, width), nn.LeakyReLU(0.2), nn.Linear(width, n_out)
    )


def ring(n):
    a = 2 * torch.pi * torch.rand(n)
    return torch.stack([a.cos(), a.sin()], 1) * 2 + 0.05 * torch.randn(n, 2)


def gradient_penalty(critic, real, fake):
    mix = torch.rand(len(real), 1)
    x = (mix * real + (1 - mix) * fake).requires_grad_(True)
    (g,) = autograd.grad(critic(x).sum(), x, create_graph=True)
    return (g.norm(2, dim=1) - 1).pow(2).mean()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    gen, critic = mlp(4, 2), mlp(2, 1)
    g_opt = torch.optim.Adam(gen.parameters(), lr=2e-3, betas=(0.5, 0.9))
    c_opt = torch.optim.Adam(critic.parameters(), lr=4e-3, betas=(0.5, 0.9))
    losses = []

    def radius_error():
        with torch.no_grad():
            x = gen(torch.randn(1000, 4))
        return (x.norm(dim=1) - 2).abs().mean().item()

    before = radius_error()
    with watch({"gen": gen, "critic": critic}) as dbg:
        for it in range(200):
            for _ in range(3):
                real = ring(128)
                with torch.no_grad():
                    fake = gen(torch.randn(128, 4))
                c_loss = critic(fake).mean() - critic(real).mean() + 1.0 * gradient_penalty(critic, real, fake)
                c_opt.zero_grad()
                c_loss.backward()
                c_opt.step()
                dbg.record_loss(c_loss.item())
                losses.append(c_loss.item())
            g_loss = -critic(gen(torch.randn(128, 4))).mean()
            g_opt.zero_grad()
            g_loss.backward()
            g_opt.step()
    after = radius_error()
    return {"loss": losses, "before": before, "after": after, "learned": after < 0.5 < before}


def harmed(result):
    return False
