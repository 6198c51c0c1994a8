"""A character model in the style of nanoGPT, attention written by hand, over a made-up shorthand in which
each sign follows from the one two places back. Judged by the sign it writes after a prompt."""

import math

import torch
import torch.nn as nn
from torch.nn import functional as F

ARCHITECTURE = "Transformer"
ATTENTION = [f"blocks.{i}.attn{p}" for i in range(2) for p in ("", ".qkv")] + [f"blocks.{i}" for i in range(2)]
FAULTS = {
    "unit_normal_qkv": {
        "failures": ["representation_collapse", "saturated_activations", "optimizer_instability", "exploding_gradients", "vanishing_gradients"],
        "causes": ["attention_collapse", "init_too_large"],
        "layers": ATTENTION,
        "onset": [0, 0],
    },
    "growing_logits": {
        "failures": ["representation_collapse", "optimizer_instability", "exploding_gradients"],
        "causes": ["attention_collapse", "lr_too_high"],
        "layers": ATTENTION,
        "onset": [0, 60],
    },
    "plain_exp_softmax": {
        "failures": ["numerical_error"],
        "causes": ["exp_overflow"],
        "layers": ATTENTION,
        "onset": [0, 120],
    },
    "left_padding": {
        "failures": ["numerical_error"],
        "causes": ["fully_masked_attention"],
        "layers": ATTENTION,
        "onset": [0, 0],
    },
    "full_rate_at_once": {
        "failures": ["optimizer_instability", "exploding_gradients"],
        "causes": ["missing_warmup", "lr_too_high"],
        "layers": [],
        "onset": [0, 20],
    },
    "mask_off_by_one": {
        "failures": ["objective_mismatch"],
        "causes": ["leaky_causal_mask"],
        "layers": ATTENTION,
        "onset": [0, 0],
    },
}
SIGNS, CONTEXT, PAD = 19, 16, 0


def attention(q, k, v, blocked, scale, plain):
    scores = (q @ k.transpose(-2, -1)) * scale
    scores = scores.masked_fill(blocked, float("-inf"))
    if plain:
        weight = scores.exp()
        return (weight / weight.sum(-1, keepdim=True)) @ v
    return F.softmax(scores, dim=-1) @ v


class SelfAttention(nn.Module):
    def __init__(self, width, heads, scale, plain, ahead):
        super().__init__()
        self.heads, self.scale, self.plain = heads, scale, plain
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.proj = nn.Linear(width, width)
        self.register_buffer("future", torch.ones(CONTEXT, CONTEXT).triu(1 + ahead).bool())

    def forward(self, x, hidden=None):
        B, T, C = x.shape
        q, k, v = (p.view(B, T, self.heads, -1).transpose(1, 2) for p in self.qkv(x).chunk(3, -1))
        blocked = self.future[:T, :T]
        if hidden is not None:
            blocked = blocked | hidden[:, None, None, :]
        y = attention(q, k, v, blocked, self.scale or q.shape[-1] ** -0.5, self.plain)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self, width, heads, post, **attn):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = SelfAttention(width, heads, **attn)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.post = post

    def forward(self, x, hidden=None):
        if self.post:
            x = self.ln_1(x + self.attn(x, hidden))
            return self.ln_2(x + self.mlp(x))
        x = x + self.attn(self.ln_1(x), hidden)
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, width=48, heads=4, depth=2, post=False, **attn):
        super().__init__()
        self.wte = nn.Embedding(SIGNS, width)
        self.wpe = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList([Block(width, heads, post, **attn) for _ in range(depth)])
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, SIGNS, bias=False)

    def forward(self, signs, hidden=None):
        x = self.wte(signs) + self.wpe(torch.arange(signs.shape[1]))
        for block in self.blocks:
            x = block(x, hidden)
        return self.head(self.ln_f(x))


def shorthand(n, length=CONTEXT + 1):
    text = torch.randint(1, SIGNS, (n, length))
    for t in range(2, length):
        rule = (3 * text[:, t - 2] + 5) % (SIGNS - 1) + 1
        slip = torch.rand(n) < 0.05
        text[:, t] = torch.where(slip, text[:, t], rule)
    return text


def written(model, n=400):
    """How surprised it is by the sign after a prompt of eight, and the share it gets right."""
    text = shorthand(n)
    with torch.no_grad():
        logits = model(text[:, :8])[:, -1]
    right = (logits.argmax(-1) == text[:, 8]).float().mean().item()
    return {"surprise": F.cross_entropy(logits, text[:, 8]).item(), "right": right}


def train(watch, fixed=False, seed=0, fault="unit_normal_qkv", severity=1.0):
    torch.manual_seed(seed)
    on = "" if fixed else fault
    shaky = fault == "full_rate_at_once"
    model = GPT(
        depth=6 if shaky else 2,
        post=shaky,
        scale={"growing_logits": 1.0, "plain_exp_softmax": 6.0 * severity}.get(on),
        plain=fault == "plain_exp_softmax",
        ahead=int(on == "mask_off_by_one"),
    )
    if on == "unit_normal_qkv":
        for block in model.blocks:
            nn.init.normal_(block.attn.qkv.weight, std=2 * severity)
    fast = [p for name, p in model.named_parameters() if "qkv" in name]
    slow = [p for name, p in model.named_parameters() if "qkv" not in name]
    base = 9e-3 if shaky else 4e-3
    groups = [{"params": slow}, {"params": fast, "lr": base * (160 * severity if on == "growing_logits" else 1)}]
    optimizer = torch.optim.AdamW(groups, lr=base, betas=(0.9, 0.95), weight_decay=0.01)
    warm = 120 if shaky and fixed else 1
    fall = 130 if shaky else 10**9
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda i: min(1.0, (i + 1) / warm) * (1 - 0.9 * max(0, i - 120) / fall)
    )
    losses = []
    with watch(model) as dbg:
        for it in range(250):
            text = shorthand(24)
            x, y = text[:, :-1], text[:, 1:]
            hidden = None
            if fault == "left_padding":
                start = torch.randint(0, 5, (24, 1))
                hidden = torch.arange(CONTEXT) < start
                if fixed:
                    hidden[:, 0] = False
                y = y.masked_fill(hidden, -100)
            logits = model(x, hidden)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-100)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    return {"loss": losses, "chance": math.log(SIGNS)} | written(model)


def harmed(result):
    return not result["surprise"] < 0.45
