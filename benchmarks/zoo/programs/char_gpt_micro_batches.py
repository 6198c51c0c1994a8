"""A tiny GPT on synthetic bracket text, batch of 96 split in twelve micro-batches to fit the laptop.

With the same learning rate the unsplit run trained nicely; split, the loss jumps up and never gets below guessing by frequency."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

ARCHITECTURE = "Transformer"
TRUTH = {
    "failures": ["training_wiring", "optimizer_instability"],
    "causes": ["accumulation_unscaled"],
    "layers": [],
    "onset": [0, 0],
}
V, T = 14, 32


class SelfAttention(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.h = h
        self.qkv = nn.Linear(d, 3 * d, bias=False)
        self.out = nn.Linear(d, d, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.h, d // self.h).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, d))


class Layer(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = SelfAttention(d, h)
        self.ff = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.ff(self.ln2(x))


class NanoGPT(nn.Module):
    def __init__(self, d=48, layers=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, d), nn.Embedding(T, d)
        self.h = nn.ModuleList(Layer(d, 4) for _ in range(layers))
        self.ln_f = nn.LayerNorm(d)
        self.lm_head = nn.Linear(d, V, bias=False)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        for blk in self.h:
            x = blk(x)
        return self.lm_head(self.ln_f(x))


def make_text(n, gen):
    """Period-k repetitions of a random motif."""
    rows = []
    for _ in range(n):
        k = int(torch.randint(3, 6, (1,), generator=gen))
        motif = torch.randint(0, V, (k,), generator=gen)
        rows.append(motif.repeat(T // k + 2)[: T + 1])
    return torch.stack(rows)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    gen = torch.Generator().manual_seed(seed + 1)
    text = make_text(2000, gen)
    model = NanoGPT()
    opt = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
    micro, grad_accum = 8, 12
    losses = []
    with watch(model) as dbg:
        for it in range(70):
            opt.zero_grad(set_to_none=True)
            total = 0.0
            for _ in range(grad_accum):
                chunk = text[torch.randint(0, len(text), (micro,), generator=gen)]
                logits = model(chunk[:, :-1])
                loss = F.cross_entropy(logits.reshape(-1, V), chunk[:, 1:].reshape(-1))
                total += loss.item() / grad_accum
                if fixed:
                    loss = loss / grad_accum
                loss.backward()
            opt.step()
            dbg.record_loss(total)
            losses.append(total)
    return {"loss": losses, "chance": math.log(V)}


def harmed(result):
    return not sum(result["loss"][-10:]) / 10 < 1.9
