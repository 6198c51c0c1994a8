"""A forger network invents 6 x 6 tiles, an expert tells them from real ones; the expert has ten times the rate
and twice the turns. After a minute it is never wrong, and the forger stands still."""
import torch
from torch import nn

TRUTH = {"failures": ["vanishing_gradients", "representation_collapse", "optimizer_instability"], "causes": ["discriminator_overpowers", "mode_collapse"], "layers": ["expert", "forger", "forger.0", "forger.2", "forger.4", "expert.0", "expert.4"], "onset": [0, 200]}


def tiles(n):
    phase = 6.28 * torch.rand(n, 1, 1)
    a = torch.arange(6.0)
    return torch.sin(a[:, None] * 1.1 + a * 0.7 + phase).flatten(1) + 0.05 * torch.randn(n, 36)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    forger = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 36), nn.Tanh())
    expert = nn.Sequential(nn.Linear(36, 96), nn.LeakyReLU(0.2), nn.Linear(96, 96), nn.LeakyReLU(0.2), nn.Linear(96, 1))
    opt_f = torch.optim.Adam(forger.parameters(), lr=1e-3, betas=(0.5, 0.9))
    opt_e = torch.optim.Adam(expert.parameters(), lr=1e-3 if fixed else 1e-2, betas=(0.5, 0.9))
    bce = nn.BCEWithLogitsLoss()
    log = []
    with watch({"forger": forger, "expert": expert}) as dbg:
        for _ in range(300):
            for _ in range(1 if fixed else 2):
                real, fake = expert(tiles(48)), expert(forger(torch.randn(48, 8)).detach())
                e_loss = bce(real, torch.full_like(real, 0.9 if fixed else 1.0)) + bce(fake, torch.zeros_like(fake))
                opt_e.zero_grad()
                e_loss.backward()
                opt_e.step()
            judged = expert(forger(torch.randn(48, 8)))
            f_loss = bce(judged, torch.ones_like(judged)) if fixed else -bce(judged, torch.zeros_like(judged))
            opt_f.zero_grad()
            f_loss.backward()
            opt_f.step()
            dbg.record_loss(f_loss.item())
            log.append(e_loss.item())
    return {"expert": log}


def harmed(result):
    return sum(result["expert"][-40:]) / 40 < 0.15
