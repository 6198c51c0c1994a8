"""Patterns on shells as a sparse code: an L1 price on the hidden units keeps nine of ten silent for any one shell."""

import torch
from torch import nn

ARCHITECTURE = "VAE / autoencoder"
TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class SparseCode(nn.Module):
    def __init__(self, units=200):
        super().__init__()
        self.encoder = nn.Linear(24, units)
        self.decoder = nn.Linear(units, 24)
        nn.init.constant_(self.encoder.bias, -0.3)

    def forward(self, x):
        code = torch.relu(self.encoder(x))
        return self.decoder(code), code


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    atoms = nn.functional.normalize(torch.randn(30, 24), dim=1) * 4
    model = SparseCode()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses, silent = [], []
    with watch(model) as dbg:
        for i in range(500):
            use = (torch.rand(64, 30) < 0.08).float() * torch.rand(64, 30)
            x = use @ atoms + 0.02 * torch.randn(64, 24)
            out, code = model(x)
            loss = (out - x).square().mean() + 3e-3 * code.abs().sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            silent.append((code == 0).float().mean().item())
    return {"loss": losses, "silent": silent[-1], "learned": sum(losses[-20:]) < 0.4 * sum(losses[:20])}


def harmed(result):
    return False
