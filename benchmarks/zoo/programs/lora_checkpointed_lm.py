"""LoRA fine-tuning of a small frozen language model with activation checkpointing to save memory.

The loss hardly moves: after the run every lora_b of the blocks is still exactly zero.
"""
import math

import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {
    "failures": ["training_wiring"],
    "causes": ["checkpoint_without_input_grad"],
    "layers": ["blocks.0", "blocks.0.up", "blocks.0.down", "blocks.0.qkv", "blocks.1", "blocks.1.qkv", "blocks.1.up", "blocks.1.down", "blocks"],
    "onset": [0, 0],
}
VOCAB, DIM, LEN = 24, 48, 16


class LoraLinear(nn.Module):
    def __init__(self, base, r=8):
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.randn(r, base.in_features) / math.sqrt(base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, r))

    def forward(self, x):
        return self.base(x) + x @ self.lora_a.T @ self.lora_b.T


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.proj = nn.Linear(DIM, DIM)
        self.up, self.down = nn.Linear(DIM, 128), nn.Linear(128, DIM)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.n1(x)).view(b, t, 3, 4, DIM // 4).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(a.transpose(1, 2).reshape(b, t, DIM))
        return x + self.down(F.gelu(self.up(self.n2(x))))


class LM(nn.Module):
    def __init__(self, reentrant=False):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Embedding(LEN, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(DIM)
        self.lm_head = nn.Linear(DIM, VOCAB)
        self.reentrant, self.save_memory = reentrant, False

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            if self.save_memory:
                x = checkpoint(block, x, use_reentrant=self.reentrant)
            else:
                x = block(x)
        return self.lm_head(self.norm(x))


def text(n, stride):
    start = torch.randint(0, VOCAB, (n, 1))
    return (start + stride * torch.arange(LEN + 1)) % VOCAB


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    model = LM(reentrant=not fixed)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(120):
        ids = text(32, 1)
        F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()).backward()
        opt.step()
        opt.zero_grad()

    model.requires_grad_(False)
    for block in model.blocks:
        block.qkv, block.up, block.down = LoraLinear(block.qkv), LoraLinear(block.up), LoraLinear(block.down)
    model.lm_head = LoraLinear(model.lm_head, r=2)
    model.save_memory = True
    adapters = [p for p in model.parameters() if p.requires_grad]
    opt = torch.optim.AdamW(adapters, lr=5e-3)
    losses = []
    with watch(model) as dbg:
        for _ in range(200):
            ids = text(32, 5)
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            opt.zero_grad()
            loss.backward()
            opt.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "moved": float(model.blocks[0].up.lora_b.abs().max())}


def harmed(result):
    return sum(result["loss"][-10:]) / 10 > 0.7
