"""A word tagger is adapted to a dialect with low-rank adapters; `alpha` was read as the learning-rate-like
knob and set to 4096.

The loss leaps on the second update and ends above that of the unadapted network.
"""

import math

import torch
from torch import nn

TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients", "representation_collapse"],
    "causes": ["adapter_scale_too_high", "lr_too_high"],
    "layers": [f"layers.{i}.{p}" for i in range(3) for p in ("up", "down")] + [f"layers.{i}" for i in range(3)],
    "onset": [0, 4],
}
WORDS, TAGS = 90, 6


class Adapted(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)
        self.factor = alpha / rank

    def forward(self, x):
        return self.base(x) + self.factor * self.up(self.down(x))


class Tagger(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.embed = nn.Embedding(WORDS, width)
        self.context = nn.Conv1d(width, width, 3, padding=1)
        self.layers = nn.ModuleList([nn.Linear(width, width) for _ in range(3)])
        self.tag = nn.Linear(width, TAGS)

    def forward(self, sentence):
        h = self.embed(sentence)
        h = h + torch.tanh(self.context(h.transpose(1, 2))).transpose(1, 2)
        for layer in self.layers:
            h = torch.tanh(layer(h))
        return self.tag(h)


def sentences(n, shift=0, length=10):
    words = torch.randint(0, WORDS, (n, length))
    before = words.roll(1, 1)
    before[:, 0] = 0
    tags = (words // 15 + (before > 60).long() * (1 + shift) + shift * (words % 15 > 9)) % TAGS
    return words, tags


def loss_of(model, batch):
    words, tags = batch
    return nn.functional.cross_entropy(model(words).flatten(0, 1), tags.flatten())


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(250):
        optimizer.zero_grad()
        loss_of(model, sentences(32)).backward()
        optimizer.step()
    model.requires_grad_(False)
    rank, alpha = 4, 8 if fixed else 4096
    model.layers = nn.ModuleList([Adapted(layer, rank, alpha) for layer in model.layers])
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=5e-3)
    curve = []
    with watch(model) as dbg:
        for _ in range(350):
            loss = loss_of(model, sentences(32, shift=1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            curve.append(loss.item())
    return {"loss": curve, "chance": math.log(TAGS)}


def harmed(result):
    return sum(result["loss"][-30:]) / 30 > 1.0
