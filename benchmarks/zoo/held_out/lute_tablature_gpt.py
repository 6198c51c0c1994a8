"""A tiny decoder that should continue lute tablature. The training loss is better than in the
paper; what it writes, note by note, is noise."""

import math

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "Transformer"
TRUTH = {
    "failures": ["objective_mismatch"],
    "causes": ["leaky_causal_mask"],
    "layers": ["blocks.0", "blocks.1", "blocks.0.attention", "blocks.1.attention"],
    "onset": [0, 0],
}

FRETS, LENGTH = 16, 24


class Attention(nn.Module):
    def __init__(self, width, heads, diagonal):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.heads = heads
        self.register_buffer("hidden", torch.ones(LENGTH, LENGTH).triu(diagonal).bool())

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        score = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        score = score.masked_fill(self.hidden[:t, :t], float("-inf"))
        return self.out((score.softmax(-1) @ v).transpose(1, 2).reshape(b, t, w))


class Block(nn.Module):
    def __init__(self, width, heads, diagonal):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, diagonal)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Lutenist(nn.Module):
    def __init__(self, diagonal, width=32):
        super().__init__()
        self.fret = nn.Embedding(FRETS, width)
        self.beat = nn.Parameter(0.02 * torch.randn(LENGTH, width))
        self.blocks = nn.ModuleList(Block(width, 4, diagonal) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, FRETS, bias=False)

    def forward(self, notes):
        x = self.fret(notes) + self.beat[: notes.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def pieces(chain, n):
    notes = [torch.randint(0, FRETS, (n,))]
    for _ in range(LENGTH):
        notes.append(torch.multinomial(chain[notes[-1]], 1)[:, 0])
    return torch.stack(notes, 1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    chain = (1.8 * torch.randn(FRETS, FRETS)).softmax(-1)
    model = Lutenist(diagonal=1 if fixed else 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    losses = []
    with watch(model) as dbg:
        for step in range(220):
            for group in optimizer.param_groups:
                group["lr"] = 3e-3 * min(1.0, (step + 1) / 30)
            notes = pieces(chain, 16)
            logits = model(notes[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), notes[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    notes = pieces(chain, 200)
    with torch.no_grad():
        last = F.cross_entropy(model(notes[:, :12])[:, -1], notes[:, 12]).item()
    return {"loss": losses, "continuation": last}


def harmed(result):
    """The next note of a piece that ends there costs more than the training loss says."""
    return result["continuation"] > sum(result["loss"][-30:]) / 30 + 0.7
