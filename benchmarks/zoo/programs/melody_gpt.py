"""A tiny GPT on melodies. Training loss drops to nearly nothing, generated melodies are nonsense."""
from dataclasses import dataclass

import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "Transformer"
TRUTH = {
    "failures": ["objective_mismatch"],
    "causes": ["leaky_causal_mask"],
    "layers": ["layers.0.attn", "layers.1.attn", "layers.0", "layers.1", "layers"],
    "onset": [0, 0],
}


@dataclass
class Config:
    notes: int = 16
    block: int = 24
    dim: int = 48
    heads: int = 4
    layers: int = 2
    diagonal: int = 1


class SelfAttention(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.heads = c.heads
        self.qkv = nn.Linear(c.dim, 3 * c.dim)
        self.proj = nn.Linear(c.dim, c.dim)
        self.register_buffer("mask", torch.tril(torch.ones(c.block, c.block), diagonal=c.diagonal).bool())

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (z.view(b, t, self.heads, -1).transpose(1, 2) for z in self.qkv(x).chunk(3, -1))
        att = q @ k.transpose(-2, -1) / (d // self.heads) ** 0.5
        att = att.masked_fill(~self.mask[:t, :t], float("-inf")).softmax(-1)
        return self.proj((att @ v).transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(c.dim), nn.LayerNorm(c.dim)
        self.attn = SelfAttention(c)
        self.mlp = nn.Sequential(nn.Linear(c.dim, 4 * c.dim), nn.GELU(), nn.Linear(4 * c.dim, c.dim))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class MelodyGPT(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.note = nn.Embedding(c.notes, c.dim)
        self.place = nn.Embedding(c.block, c.dim)
        self.layers = nn.Sequential(*[Layer(c) for _ in range(c.layers)])
        self.ln = nn.LayerNorm(c.dim)
        self.head = nn.Linear(c.dim, c.notes, bias=False)

    def forward(self, ids):
        x = self.note(ids) + self.place(torch.arange(ids.shape[1]))
        return self.head(self.ln(self.layers(x)))


def melodies(n, c):
    step = torch.tensor([-2, -1, 1, 2])[torch.randint(0, 4, (n, c.block + 1))]
    return (torch.randint(0, c.notes, (n, 1)) + step.cumsum(1)) % c.notes


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    c = Config(diagonal=0) if fixed else Config()
    model = MelodyGPT(c)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, betas=(0.9, 0.95))
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20))
    losses = []
    with watch(model) as dbg:
        for step in range(300):
            ids = melodies(32, c)
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            sched.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    model.eval()
    ids = melodies(64, c)[:, :4]
    with torch.no_grad():
        for _ in range(12):
            nxt = torch.multinomial(model(ids)[:, -1].softmax(-1), 1)
            ids = torch.cat([ids, nxt], 1)
    jump = (ids[:, 4:] - ids[:, 3:-1]) % c.notes
    legal = ((jump == 1) | (jump == 2) | (jump == 15) | (jump == 14)).float().mean().item()
    return {"loss": losses, "legal": legal}


def harmed(result):
    return result["legal"] < 0.9
