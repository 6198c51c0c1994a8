"""Routes chosen by a hard Gumbel-softmax whose temperature falls; embeddings go to SparseAdam, the rest to AdamW."""
import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class Router(nn.Module):
    def __init__(self, places=30, width=16, lanes=4):
        super().__init__()
        self.place = nn.Embedding(places, width, sparse=True)
        self.choose = nn.Linear(2 * width, lanes)
        self.lanes = nn.Parameter(0.5 * torch.randn(lanes, 2 * width))

    def forward(self, pair, tau):
        h = self.place(pair).flatten(1)
        pick = F.gumbel_softmax(self.choose(h), tau=tau, hard=True)
        return (pick @ self.lanes * h).sum(1)


def trips(n, position):
    pair = torch.randint(0, len(position), (n, 2))
    return pair, 0.8 * (position[pair[:, 0]] - position[pair[:, 1]])


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    position = torch.randn(30)
    model = Router()
    sparse = torch.optim.SparseAdam(model.place.parameters(), lr=2e-2)
    dense = torch.optim.AdamW([*model.choose.parameters(), model.lanes], lr=5e-3)
    losses = []
    with watch(model) as dbg:
        for step in range(450):
            pair, minutes = trips(96, position)
            loss = F.mse_loss(model(pair, tau=max(0.5, 1.0 - step / 500)), minutes)
            sparse.zero_grad()
            dense.zero_grad()
            loss.backward()
            sparse.step()
            dense.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    last = sum(losses[-20:]) / 20
    return {"loss": losses, "last": last, "learned": last < 0.35 * sum(losses[:5]) / 5}


def harmed(result):
    return False
