"""A vector-quantised autoencoder on tiles: straight-through copy of gradients, codebook and commitment terms."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Codebook(nn.Module):
    def __init__(self, codes=24, width=8):
        super().__init__()
        self.table = nn.Embedding(codes, width)
        nn.init.uniform_(self.table.weight, -1, 1)

    def forward(self, z):
        index = torch.cdist(z, self.table.weight).argmin(1)
        code = self.table(index)
        extra = F.mse_loss(code, z.detach()) + 0.25 * F.mse_loss(z, code.detach())
        return z + (code - z).detach(), extra, index


class TileModel(nn.Module):
    def __init__(self, cells=25):
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(cells, 64), nn.ReLU(), nn.Linear(64, 8))
        self.codebook = Codebook()
        self.decode = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, cells))

    def forward(self, tile):
        code, extra, index = self.codebook(self.encode(tile))
        return self.decode(code), extra, index


def tiles(n, patterns):
    return patterns[torch.randint(0, len(patterns), (n,))] + 0.15 * torch.randn(n, 25)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    patterns = torch.randn(10, 25)
    model = TileModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses, rebuilt = [], []
    with watch(model) as dbg:
        for step in range(450):
            tile = tiles(96, patterns)
            out, extra, index = model(tile)
            fit = F.mse_loss(out, tile)
            loss = fit + extra
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
            rebuilt.append(fit.item())
    last = sum(rebuilt[-20:]) / 20
    used = index.unique().numel()
    return {"loss": losses, "rebuilt": rebuilt, "used": used, "learned": last < 0.5 * sum(rebuilt[:5]) / 5 and used >= 5}


def harmed(result):
    return False
