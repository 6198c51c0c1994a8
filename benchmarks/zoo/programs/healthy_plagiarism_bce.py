"""Copied paragraphs found by a twin network that ends in a sigmoid and is trained with BCELoss, as it should."""
import torch
from torch import nn

TRUTH = {"failures": [], "causes": [], "layers": [], "onset": None}


class TwinReader(nn.Module):
    def __init__(self, words=100, width=32):
        super().__init__()
        self.words = nn.EmbeddingBag(words, width)
        self.compare = nn.Sequential(nn.Linear(2 * width, 48), nn.ReLU(), nn.Linear(48, 1), nn.Sigmoid())

    def forward(self, one, two):
        a, b = self.words(one), self.words(two)
        return self.compare(torch.cat([(a - b).abs(), a * b], 1)).squeeze(1)


def paragraphs(n):
    one = torch.randint(0, 100, (n, 12))
    copied = (torch.rand(n) < 0.5).float()
    kept = torch.rand(n, 12) < 0.8
    two = torch.where(kept & (copied[:, None] > 0), one, torch.randint(0, 100, (n, 12)))
    return one, two, copied


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    reader = TwinReader()
    criterion = nn.BCELoss()
    optimizer = torch.optim.Adam(reader.parameters(), lr=1e-2)
    losses = []
    with watch(reader) as dbg:
        for step in range(400):
            one, two, copied = paragraphs(64)
            optimizer.zero_grad()
            loss = criterion(reader(one, two), copied)
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    last = sum(losses[-20:]) / 20
    return {"loss": losses, "last": last, "learned": last < 0.3}


def harmed(result):
    return False
