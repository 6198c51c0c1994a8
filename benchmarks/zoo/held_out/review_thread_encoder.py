"""Rates threads of reviews with an encoder that ignores padding. One day an empty thread comes in
with the others; from that batch on all is NaN."""

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Transformer"
TRUTH = {
    "failures": ["numerical_error"],
    "causes": ["fully_masked_attention"],
    "layers": ["layers.0", "layers.0.attend"],
    "onset": [187, 187],
}


class Attend(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.merge = nn.Linear(width, width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x, real):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        score = q @ k.mT * q.shape[-1] ** -0.5
        score = score.masked_fill(~real[:, None, None], -torch.inf)
        return self.merge((torch.softmax(score, -1) @ v).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attend = Attend(width)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))

    def forward(self, x, real):
        x = x + self.attend(self.before(x), real)
        return x + self.feed(self.between(x))


class Rater(nn.Module):
    def __init__(self, vocabulary=80, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList([Layer(width), Layer(width)])
        self.stars = nn.Linear(width, 1)

    def forward(self, ids, real):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, real)
        weight = real.float() / real.sum(1, keepdim=True).clamp(min=1)
        return self.stars((x * weight[..., None]).sum(1))[:, 0]


def threads(n, mood, number, keep_empty):
    length = torch.randint(3, 13, (n,))
    if number == 187:
        length[11] = 0 if keep_empty else 1
    ids = torch.randint(1, len(mood), (n, 12))
    real = torch.arange(12) < length[:, None]
    stars = (mood[ids] * real).sum(1) / length.clamp(min=1).sqrt()
    return ids * real, real, stars


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    mood, model = torch.randn(80), Rater()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    with watch(model) as dbg:
        for number in range(260):
            ids, real, stars = threads(32, mood, number, keep_empty=not fixed)
            loss = F.mse_loss(model(ids, real), stars)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses}


def harmed(result):
    return not sum(result["loss"][-20:]) / 20 < 0.5
