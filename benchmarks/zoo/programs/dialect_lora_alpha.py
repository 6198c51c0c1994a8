"""A small pretrained text classifier adapted to a dialect with low-rank adapters; alpha was set like a learning rate sweep.

The first loss is the pretrained one, a few updates later it is worse than chance; it ends where it started.
"""
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients"],
    "causes": ["adapter_scale_too_high"],
    "layers": [f"blocks.{i}{s}" for i in range(3) for s in ("", ".up", ".down", ".up.base", ".down.base")],
    "onset": [0, 8],
}


@dataclass
class LoraConfig:
    r: int = 4
    alpha: float = 2048.0
    lr: float = 3e-3


class LoRALinear(nn.Module):
    def __init__(self, base, cfg):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.A = nn.Parameter(torch.randn(cfg.r, base.in_features) / math.sqrt(base.in_features))
        self.B = nn.Parameter(torch.zeros(base.out_features, cfg.r))
        self.scaling = cfg.alpha / cfg.r

    def forward(self, x):
        return self.base(x) + self.scaling * F.linear(F.linear(x, self.A), self.B)


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class BagClassifier(nn.Module):
    def __init__(self, vocab=80, d=32, classes=5):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(Block(d) for _ in range(3))
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, classes)

    def forward(self, ids):
        h = self.emb(ids).mean(1) * 3
        for b in self.blocks:
            h = b(h)
        return self.out(self.norm(h))


def inject(model, cfg):
    model.requires_grad_(False)
    for b in model.blocks:
        b.up, b.down = LoRALinear(b.up, cfg), LoRALinear(b.down, cfg)
    return model


def texts(n, meaning):
    ids = torch.randint(0, 80, (n, 9))
    return ids, meaning[ids].sum(1).argmax(1)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    meaning = torch.randn(80, 5)
    model = BagClassifier()
    pre = torch.optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(300):
        ids, y = texts(96, meaning)
        pre.zero_grad()
        F.cross_entropy(model(ids), y).backward()
        pre.step()

    cfg = LoraConfig(alpha=16.0) if fixed else LoraConfig()
    model = inject(model, cfg)
    dialect = meaning + 0.7 * torch.randn(80, 5) * (torch.arange(80) % 2)[:, None]
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=cfg.lr)
    losses = []
    with watch(model) as dbg:
        for _ in range(250):
            ids, y = texts(64, dialect)
            loss = F.cross_entropy(model(ids), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    return {"loss": losses, "final": sum(losses[-20:]) / 20}


def harmed(result):
    return result["final"] > 0.75
