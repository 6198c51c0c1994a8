"""A next-note model with its own einsum attention, trained on melodies that jump at random half of the time.

The training loss goes to a few hundredths, but the melodies it writes are rubbish.
"""
import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ARCHITECTURE = "Transformer"
TRUTH = {
    "failures": ["objective_mismatch"],
    "causes": ["leaky_causal_mask"],
    "layers": ["layers"] + [f"layers.{i}{s}" for i in range(2) for s in ("", ".attn", ".attn.qkv", ".attn.proj")],
    "onset": [0, 0],
}
NOTES, T = 12, 24


class Output(NamedTuple):
    logits: Tensor
    loss: Tensor | None = None


class Attn(nn.Module):
    def __init__(self, d, heads, offset):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)
        self.register_buffer("keep", torch.ones(T, T).tril(diagonal=offset).bool())

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).unbind(2)
        score = torch.einsum("bihd,bjhd->bhij", q, k) / math.sqrt(d // self.heads)
        score = score.masked_fill(~self.keep[:t, :t], float("-inf"))
        mixed = torch.einsum("bhij,bjhd->bihd", score.softmax(-1), v)
        return self.proj(mixed.reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, d, offset):
        super().__init__()
        self.n1, self.attn = nn.LayerNorm(d), Attn(d, 4, offset)
        self.n2, self.ff = nn.LayerNorm(d), nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))

    def forward(self, x):
        x = x + self.attn(self.n1(x))
        return x + self.ff(self.n2(x))


class MelodyLM(nn.Module):
    def __init__(self, d=48, offset=0):
        super().__init__()
        self.note, self.place = nn.Embedding(NOTES, d), nn.Embedding(T, d)
        self.layers = nn.ModuleList(Layer(d, offset) for _ in range(2))
        self.norm, self.lm_head = nn.LayerNorm(d), nn.Linear(d, NOTES)

    def forward(self, ids, labels=None):
        h = self.note(ids) + self.place.weight[: ids.shape[1]]
        for layer in self.layers:
            h = layer(h)
        logits = self.lm_head(self.norm(h))
        if labels is None:
            return Output(logits)
        return Output(logits, F.cross_entropy(logits.flatten(0, 1), labels.flatten()))


def melodies(n):
    seq = torch.randint(0, NOTES, (n, T + 1))
    for t in range(1, T + 1):
        stay = torch.rand(n) < 0.5
        seq[:, t] = torch.where(stay, (seq[:, t - 1] + 5) % NOTES, seq[:, t])
    return seq


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = MelodyLM(offset=0 if fixed else 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95))
    losses = []
    with watch(model) as dbg:
        for step in range(250):
            seq = melodies(24)
            out = model(seq[:, :-1], labels=seq[:, 1:])
            optimizer.zero_grad()
            out.loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(out.loss.item())
            dbg.record_loss(out.loss.item())
    with torch.no_grad():
        seq = melodies(200)
        cut = T // 2
        last = model(seq[:, :cut]).logits[:, -1]
        honest = F.cross_entropy(last, seq[:, cut]).item()
    return {"loss": losses, "honest_loss": honest}


def harmed(result):
    return result["honest_loss"] > 2.2
