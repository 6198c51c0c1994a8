"""Skip-gram with negative sampling over playlists: sparse embedding gradients, SparseAdam, most rows
untouched in a step."""

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}
SONGS, GENRES = 600, 10


class SkipGram(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.song = nn.Embedding(SONGS, width, sparse=True)
        self.context = nn.Embedding(SONGS, width, sparse=True)
        nn.init.uniform_(self.song.weight, -0.5 / width, 0.5 / width)
        nn.init.uniform_(self.context.weight, -0.5 / width, 0.5 / width)

    def forward(self, centre, near, others):
        v = self.song(centre)
        good = (v * self.context(near)).sum(-1)
        bad = torch.einsum("nd,nkd->nk", v, self.context(others))
        return -(F.logsigmoid(good).mean() + F.logsigmoid(-bad).sum(1).mean())


def pairs(n, genre_of):
    order = genre_of.argsort()
    genre = torch.randint(0, GENRES, (n,))
    each = SONGS // GENRES
    pick = lambda: order[genre * each + torch.randint(0, each, (n,))]
    return pick(), pick(), torch.randint(0, SONGS, (n, 4))


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    genre_of = torch.arange(SONGS) % GENRES
    model = SkipGram()
    optimizer = torch.optim.SparseAdam(list(model.parameters()), lr=2e-2)
    losses = []
    with watch(model) as dbg:
        for step in range(500):
            loss = model(*pairs(128, genre_of))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
            losses.append(loss.item())
    v = F.normalize(model.song.weight.detach(), dim=1)
    alike = v @ v.T - 2 * torch.eye(SONGS)
    purity = (genre_of[alike.argmax(1)] == genre_of).float().mean().item()
    return {"loss": losses, "purity": purity, "learned": purity > 0.6 and losses[-1] < 0.8 * losses[0]}


def harmed(result):
    return False
