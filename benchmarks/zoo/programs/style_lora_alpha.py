"""LoRA on a pre-trained convolutional denoiser, alpha left at a large value; the first updates wreck the
base model and the loss ends far above the one without any adapter."""
import copy

import torch
from torch import nn
import torch.nn.functional as F

ARCHITECTURE = "LLM fine-tuning"
TRUTH = {
    "failures": ["optimizer_instability", "exploding_gradients"],
    "causes": ["adapter_scale_too_high"],
    "layers": ["c2", "c3", "c2.up", "c3.up", "c2.down", "c3.down"],
    "onset": [0, 3],
}


class LoraConv(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base = base
        self.down = nn.Conv2d(base.in_channels, rank, 3, padding=1, bias=False)
        self.up = nn.Conv2d(rank, base.out_channels, 1, bias=False)
        nn.init.zeros_(self.up.weight)
        self.scaling = alpha / rank

    def forward(self, x):
        return self.base(x) + self.scaling * self.up(self.down(x))


class Denoiser(nn.Module):
    def __init__(self, c=16):
        super().__init__()
        self.c1 = nn.Conv2d(1, c, 3, padding=1)
        self.c2 = nn.Conv2d(c, c, 3, padding=1)
        self.c3 = nn.Conv2d(c, c, 3, padding=1)
        self.c4 = nn.Conv2d(c, 1, 3, padding=1)

    def forward(self, x):
        h = F.gelu(self.c1(x))
        h = F.gelu(self.c2(h))
        h = F.gelu(self.c3(h))
        return x - self.c4(h)


def images(n, size):
    x = F.interpolate(torch.randn(n, 1, size, size), size=(16, 16), mode="bilinear")
    return x, x + 0.5 * torch.randn_like(x)


def train(watch, fixed=False, seed=0):
    torch.manual_seed(seed)
    net = Denoiser()
    opt = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(150):
        clean, noisy = images(16, 4)
        opt.zero_grad()
        F.mse_loss(net(noisy), clean).backward()
        opt.step()
    net.requires_grad_(False)
    with torch.no_grad():
        clean, noisy = images(256, 6)
        base = F.mse_loss(net(noisy), clean).item()
    alpha = 4 if fixed else 1024
    net.c2, net.c3 = LoraConv(net.c2, 4, alpha), LoraConv(net.c3, 4, alpha)
    opt = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=1e-2, weight_decay=0.0)
    losses = []
    with watch(net) as dbg:
        for _ in range(200):
            clean, noisy = images(16, 6)
            loss = F.mse_loss(net(noisy), clean)
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
    return {"loss": losses, "base": base, "last": sum(losses[-20:]) / 20, "peak": max(losses)}


def harmed(result):
    return not (result["last"] < 1.1 * result["base"] and result["peak"] < 5 * result["base"])
