"""Next-song choice from a listener's history with one hand-written attention layer. New
listeners joined in spring; the loss of that batch is NaN and stays so."""
import math

import torch
import torch.nn.functional as F
from torch import nn

TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["fully_masked_attention"],
    "layers": ["recall", "recall.weights"],
    "onset": [36, 36],
}
SONGS, GENRES, MEMORY = 60, 6, 10


class Weights(nn.Module):
    def forward(self, score, known):
        return torch.softmax(score.masked_fill(~known, float("-inf")), dim=-1)


class Recall(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.weights = Weights()

    def forward(self, ask, memory, known):
        score = torch.einsum("nw,nmw->nm", self.q(ask), self.k(memory)) / math.sqrt(ask.shape[-1])
        return torch.einsum("nm,nmw->nw", self.weights(score, known), self.v(memory))


class Recommender(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.songs = nn.Embedding(SONGS, width)
        self.hour = nn.Linear(3, width)
        self.recall = Recall(width)
        self.genre = nn.Linear(2 * width, GENRES)

    def forward(self, history, known, hour):
        ask = self.hour(hour)
        return self.genre(torch.cat([ask, self.recall(ask, self.songs(history), known)], 1))


def listeners(n):
    taste = torch.randint(0, GENRES, (n, 1))
    history = torch.where(torch.rand(n, MEMORY) < 0.7, taste, torch.randint(0, GENRES, (n, MEMORY)))
    history = history + GENRES * torch.randint(0, SONGS // GENRES, (n, MEMORY))
    length = torch.randint(1, MEMORY + 1, (n,))
    length[36 * 40 + 11] = 0
    return history, torch.arange(MEMORY) < length[:, None], torch.randn(n, 3), taste[:, 0]


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    data = listeners(40 * 60)
    if fixed:
        data[1][:, 0] = True  # a start-of-history token is always visible
    model = Recommender()
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    log = []
    with watch(model) as dbg:
        for epoch in range(4):
            for history, known, hour, taste in zip(*(part.split(40) for part in data)):
                loss = F.cross_entropy(model(history, known, hour), taste)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
                log.append(loss.item())
    return {"loss": log}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.8
