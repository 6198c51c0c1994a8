"""A least-squares GAN for the tone of chimes; the user switches the critic's gradients off for the
generator's turn to save time. The critic does not move after that, and the tones get strange."""

import torch
from torch import nn

ARCHITECTURE = "GAN"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["frozen_parameters"],
    "layers": ["critic", "critic.body", "critic.body.0", "critic.body.2", "critic.body.4"],
    "onset": [0, 2],
}

TIME = torch.linspace(0, 1, 32)


def tones(n):
    pitch = 3 + 2 * torch.rand(n, 1)
    fade = 1 + 2 * torch.rand(n, 1)
    return torch.cos(6.2832 * pitch * TIME) * torch.exp(-fade * TIME) * 1.5


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(32, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2),
            nn.Linear(64, 1),
        )  # fmt: skip

    def forward(self, tone):
        return self.body(tone)


class ChimeGAN:
    """A loop like a framework's, with the two optimizers taking turns."""

    def __init__(self, give_back):
        self.generator = nn.Sequential(
            nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32)
        )
        self.critic = Critic()
        self.give_back = give_back
        self.opt_g = torch.optim.Adam(self.generator.parameters(), lr=1e-3, betas=(0.5, 0.9))
        self.opt_c = torch.optim.Adam(self.critic.parameters(), lr=1e-3, betas=(0.5, 0.9))

    def critic_turn(self, real):
        if self.give_back:
            self.critic.requires_grad_(True)
        fake = self.generator(torch.randn(len(real), 8)).detach()
        loss = ((self.critic(real) - 1) ** 2).mean() + (self.critic(fake) ** 2).mean()
        if loss.requires_grad:
            self.opt_c.zero_grad()
            loss.backward()
            self.opt_c.step()
        return loss.item()

    def generator_turn(self, n):
        self.critic.requires_grad_(False)
        loss = ((self.critic(self.generator(torch.randn(n, 8))) - 1) ** 2).mean()
        self.opt_g.zero_grad()
        loss.backward()
        self.opt_g.step()
        return loss.item()


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    gan = ChimeGAN(give_back=fixed)
    losses = []
    with watch({"generator": gan.generator, "critic": gan.critic}) as dbg:
        for _ in range(500):
            dbg.record_loss(gan.critic_turn(tones(48)), "critic")
            losses.append(gan.generator_turn(48))
            dbg.record_loss(losses[-1], "generator")
    with torch.no_grad():
        made, true = gan.generator(torch.randn(400, 8)), tones(400)
    gap = (made.mean(0) - true.mean(0)).abs().mean() + (made.std(0) - true.std(0)).abs().mean()
    return {"loss": losses, "gap": gap.item()}


def harmed(result):
    return not result["gap"] < 0.3
