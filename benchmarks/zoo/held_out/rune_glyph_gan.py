"""A GAN for runes on an 8 x 8 raster, with the original loss. The user lets the discriminator train
harder, so that it is a better teacher; the runes stay clouds."""

import torch
from torch import nn

ARCHITECTURE = "GAN"
TRUTH = {
    "failures": ["vanishing_gradients", "representation_collapse"],
    "causes": ["discriminator_overpowers"],
    "layers": [],
    "onset": [0, 200],
}

NOISE = 12


def runes(n):
    """One upright and one or two slanting strokes."""
    rune = -torch.ones(n, 8, 8)
    stem, start, side = torch.randint(1, 4, (n,)), torch.randint(0, 4, (n,)), torch.rand(n) < 0.5
    for i in range(n):
        rune[i, :, stem[i]] = 1
        for k in range(3 if side[i] else 4):
            rune[i, start[i] + k, stem[i] + k] = 1
    return (rune + 0.1 * torch.randn(n, 8, 8)).flatten(1)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(NOISE, 64), nn.LeakyReLU(0.2), nn.Linear(64, 64), nn.LeakyReLU(0.2),
            nn.Linear(64, 64), nn.Tanh(),
        )  # fmt: skip

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(64, 96), nn.LeakyReLU(0.2), nn.Linear(96, 48), nn.LeakyReLU(0.2),
            nn.Linear(48, 1),
        )  # fmt: skip

    def forward(self, x):
        return self.net(x)[:, 0]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    G, D = Generator(), Discriminator()
    rounds, d_lr = (1, 3e-4) if fixed else (4, 2e-3)
    opt_g = torch.optim.Adam(G.parameters(), lr=1e-3, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(D.parameters(), lr=d_lr, betas=(0.5, 0.999))
    bce = nn.BCEWithLogitsLoss()
    real_runes = runes(800)
    losses, d_losses, fooled = [], [], []
    with watch({"G": G, "D": D}) as dbg:
        for _ in range(600):
            for _ in range(rounds):
                real = real_runes[torch.randint(0, 800, (48,))]
                fake = G(torch.randn(48, NOISE)).detach()
                d_loss = bce(D(real), torch.ones(48)) + bce(D(fake), torch.zeros(48))
                opt_d.zero_grad()
                d_loss.backward()
                opt_d.step()
            score = D(G(torch.randn(48, NOISE)))
            g_loss = -bce(score, torch.zeros(48))  # log(1 - D), to be made small
            opt_g.zero_grad()
            g_loss.backward()
            opt_g.step()
            dbg.record_loss(g_loss.item(), "g")
            dbg.record_loss(d_loss.item(), "d")
            losses.append(g_loss.item())
            d_losses.append(d_loss.item())
            fooled.append(score.detach().sigmoid().mean().item())
    with torch.no_grad():
        made = G(torch.randn(400, NOISE))
        nearest = torch.cdist(made, real_runes).amin(1).mean().item()
    return {"loss": losses, "d": d_losses[-1], "nearest": nearest, "fooled": fooled[-1]}


def harmed(result):
    """How far a made rune is from the nearest true one; two true ones differ by about 5."""
    return result["nearest"] > 6.0
