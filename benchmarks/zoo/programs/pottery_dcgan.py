"""Silhouettes of pots, 16 x 16, drawn by a small DCGAN; the user looks at a sheet of samples after each run."""

import torch
import torch.nn as nn
import torch.nn.functional as F

ARCHITECTURE = "GAN"
MAKER = [f"netG.{i}" for i in range(9)] + ["netG"]
CRITIC = [f"netD.{i}" for i in range(9)] + ["netD"]
FAULTS = {
    "critic_far_ahead": {
        "failures": ["vanishing_gradients", "representation_collapse", "saturated_activations"],
        "causes": ["discriminator_overpowers"],
        "layers": MAKER + CRITIC,
        "onset": [0, 60],
    },
    "wide_start": {
        "failures": ["exploding_gradients", "saturated_activations", "vanishing_gradients", "optimizer_instability"],
        "causes": ["init_too_large"],
        "layers": MAKER + CRITIC,
        "onset": [0, 0],
    },
    "broken_scan": {
        "failures": ["data_anomaly", "numerical_error"],
        "causes": ["nan_in_input"],
        "layers": [],
        "onset": [40, 40],
    },
    "bare_log": {
        "failures": ["numerical_error"],
        "causes": ["log_of_nonpositive", "discriminator_overpowers"],
        "layers": MAKER + CRITIC,
        "onset": [0, 180],
    },
    "painter_strides": {
        "failures": ["optimizer_instability", "exploding_gradients", "dead_neurons", "saturated_activations"],
        "causes": ["lr_too_high"],
        "layers": MAKER + CRITIC,
        "onset": [0, 60],
    },
}


def weights_init(m, spread):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, spread)


def generator(nz, norm=True):
    bn = nn.BatchNorm2d if norm else nn.Identity
    return nn.Sequential(
        nn.ConvTranspose2d(nz, 32, 4, 1, 0, bias=False), bn(32), nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, bias=False), bn(16), nn.ReLU(),
        nn.ConvTranspose2d(16, 1, 4, 2, 1), nn.Tanh(),
    )


def discriminator():
    return nn.Sequential(
        nn.Conv2d(1, 16, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Conv2d(16, 32, 4, 2, 1), nn.LeakyReLU(0.2),
        nn.Conv2d(32, 1, 4, 1, 0), nn.Flatten(),
    )


def pots(n, side=16):
    t = torch.linspace(-1, 1, side)
    waist, belly = 0.25 + 0.3 * torch.rand(n, 1), 0.3 + 0.4 * torch.rand(n, 1)
    centre = torch.rand(n, 1) - 0.5
    width = waist + belly * torch.exp(-8 * (t - centre) ** 2)
    return (2 * torch.sigmoid(14 * (width[:, :, None] - t.abs()[None, None, :])) - 1)[:, None]


def likeness(fake, real):
    """Distance of mean and spread of the pictures; small is good."""
    return ((fake.mean(0) - real.mean(0)).abs().mean() + (fake.std(0) - real.std(0)).abs().mean()).item()


def train(watch, fixed=False, seed=0, fault="critic_far_ahead", severity=1.0):
    torch.manual_seed(seed)
    on = "" if fixed else fault
    nz = 10
    netG, netD = generator(nz, norm=fault != "wide_start"), discriminator()
    for net in (netG, netD):
        net.apply(lambda m: weights_init(m, 1.0 * severity if on == "wide_start" else 0.1))
    # Minimax loss, as in the first paper, where the judge is kept in check; else the usual one.
    minimax = fault in ("critic_far_ahead", "bare_log")
    turns = 5 if on == "critic_far_ahead" else 4 if on == "bare_log" else 1
    rate = {"critic_far_ahead": 8e-3, "bare_log": 2e-2 * severity}.get(on, 5e-4)
    optD = torch.optim.Adam(netD.parameters(), lr=rate, betas=(0.5, 0.999))
    optG = torch.optim.Adam(netG.parameters(), lr=3.0 * severity if on == "painter_strides" else 3e-3, betas=(0.5, 0.999))
    yard = pots(600)
    if on == "broken_scan":
        yard[0, 0, 3:6] = float("nan")
    log = {"loss": [], "judge": []}
    with watch({"netG": netG, "netD": netD}) as dbg:
        for step in range(180):
            for turn in range(turns):
                pick = torch.randint(1, 600, (24,))
                if step == 40 and turn == 0:
                    pick[0] = 0
                real, fake = yard[pick], netG(torch.randn(24, nz, 1, 1)).detach()
                r, f = netD(real), netD(fake)
                if on == "bare_log":
                    lossD = -(torch.log(torch.sigmoid(r)) + torch.log(1 - torch.sigmoid(f))).mean()
                else:
                    lossD = (F.softplus(-r) + F.softplus(f)).mean()
                optD.zero_grad()
                lossD.backward()
                optD.step()
            score = netD(netG(torch.randn(24, nz, 1, 1)))
            if on == "bare_log":
                lossG = torch.log(1 - torch.sigmoid(score)).mean()
            elif minimax and not fixed:
                lossG = -F.softplus(score).mean()
            else:
                lossG = F.softplus(-score).mean()
            optG.zero_grad()
            lossG.backward()
            optG.step()
            dbg.record_loss(lossG.item(), "generator")
            dbg.record_loss(lossD.item(), "discriminator")
            log["loss"].append(lossG.item())
            log["judge"].append(lossD.item())
    with torch.no_grad():
        netG.eval()
        sheet = netG(torch.randn(300, nz, 1, 1))
    return log | {"likeness": likeness(sheet, yard[1:301])}


def harmed(result):
    return not result["likeness"] < 0.3
