# SPDX-License-Identifier: MIT
"""The models on which cost is measured; imports torch and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from collections.abc import Callable


class Step:
    """One training step of a program: clear, forward, backward, clip, update."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        loss_of: Callable[[], torch.Tensor],
        clip: float | None = None,
    ) -> None:
        self.model, self.optimizer = model, optimizer
        self.loss_of, self.clip = loss_of, clip

    def __call__(self) -> torch.Tensor:
        """Take the step and return its loss."""
        self.optimizer.zero_grad()
        loss = self.loss_of()
        loss.backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        return loss


def mlp() -> tuple[nn.Module, Step]:
    """784-1024-1024-10, batch 256, Adam."""
    model = nn.Sequential(
        nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x, y = torch.randn(256, 784), torch.randint(0, 10, (256,))
    return model, Step(model, optimizer, lambda: F.cross_entropy(model(x), y))


class Block(nn.Module):
    """A residual block of two 3x3 convolutions."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.skip = nn.Conv2d(inside, outside, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[N, C, H, W]` to `[N, D, H / stride, W / stride]`."""
        out = self.relu(self.bn1(self.conv1(x)))
        return self.relu(self.bn2(self.conv2(out)) + self.skip(x))


def cnn() -> tuple[nn.Module, Step]:
    """ResNet-ish, width 32, 32x32 pictures, batch 32, SGD."""
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, 1, 1), nn.BatchNorm2d(32), nn.ReLU(),
        Block(32, 32, 1), Block(32, 32, 1), Block(32, 64, 2), Block(64, 64, 1),
        Block(64, 128, 2), Block(128, 128, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    x, y = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
    return model, Step(model, optimizer, lambda: F.cross_entropy(model(x), y))


class Layer(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.act, self.down = (
            nn.Linear(width, 4 * width),
            nn.GELU(),
            nn.Linear(4 * width, width),
        )
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """`[N, T, C]` to the same."""
        n, t, c = x.shape
        q, k, v = (
            z.view(n, t, self.heads, -1).transpose(1, 2) for z in self.qkv(self.ln1(x)).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(n, t, c))
        return x + self.down(self.act(self.up(self.ln2(x))))


class Gpt(nn.Module):
    """Token and position tables, blocks, a norm and a head."""

    def __init__(self, vocab: int, width: int, layers: int, length: int, heads: int = 4) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """`[N, T]` to `[N, T, V]`."""
        x = self.token(ids) + self.place.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def _language(
    model: Gpt, batch: int, precision: torch.dtype = torch.float32
) -> tuple[nn.Module, Step]:
    """Return a language model's training on made tokens, AdamW and clipping."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    vocab, length = model.token.num_embeddings, model.place.num_embeddings
    ids = torch.randint(0, vocab, (batch, length + 1))

    def loss_of() -> torch.Tensor:
        with torch.autocast(ids.device.type, precision, enabled=precision != torch.float32):
            return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())

    return model, Step(model, optimizer, loss_of, clip=1.0)


def gpt() -> tuple[nn.Module, Step]:
    """4 layers of width 128, 128 tokens, batch 8, AdamW and clipping."""
    return _language(Gpt(256, 128, 4, 128), 8)


def gpt2() -> tuple[nn.Module, Step]:
    """GPT-2 small without weight tying, bfloat16: 12 layers of width 768, 1,024 tokens, batch 8."""
    return _language(Gpt(50_257, 768, 12, 1024, heads=12), 8, torch.bfloat16)


def tiny() -> tuple[nn.Module, Step]:
    """8-32-32-1, batch 32: a step of well under a millisecond."""
    model = nn.Sequential(
        nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    x = torch.randn(32, 8)
    y = x.prod(1, keepdim=True)
    return model, Step(model, optimizer, lambda: F.mse_loss(model(x), y))


def small() -> tuple[nn.Module, Step]:
    """32-64-64-10, batch 128, Adam: about half a millisecond, as many small programs take."""
    return _classifier(32, 64)


def medium() -> tuple[nn.Module, Step]:
    """64-192-192-10, batch 128, Adam: just under a millisecond."""
    return _classifier(64, 192)


def _classifier(features: int, width: int) -> tuple[nn.Module, Step]:
    """Ten classes of made data, which it learns in part."""
    model = nn.Sequential(
        nn.Linear(features, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, 10),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    x = torch.randn(8192, features)
    y = (x @ torch.randn(features, 10) + 3 * torch.randn(8192, 10)).argmax(1)

    def loss_of() -> torch.Tensor:
        batch = torch.randint(0, len(x), (128,))
        return F.cross_entropy(model(x[batch]), y[batch])

    return model, Step(model, optimizer, loss_of)


PROGRAMS = {
    "mlp": mlp,
    "cnn": cnn,
    "gpt": gpt,
    "tiny": tiny,
    "small": small,
    "medium": medium,
    "gpt2": gpt2,
}
WARMUP = {
    "mlp": 150,
    "cnn": 100,
    "gpt": 120,
    "tiny": 8_000,
    "small": 8_000,
    "medium": 6_000,
    "gpt2": 80,
}
"""Steps before anything is measured: the first ones are watched in full, free, and not counted; in
fast programs full steps are lent for some seconds more."""
