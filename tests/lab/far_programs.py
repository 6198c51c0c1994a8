# SPDX-License-Identifier: MIT
"""Train on a simulated accelerator, watched and not, and print what each run waited for.

Run by tests/core/capture/test_waits.py in a process of its own: a device stays registered.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from far_device import WAITS, FarCarrier, far, move
from torch import nn
from unwatched import Unwatched

from neuraldbg import NeuralDbg
from neuraldbg.capture import readback

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEPS, BREAKS_AT = 28, 14
WIDTH = 6


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(WIDTH, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 1)
    )


class Words(nn.Module):
    """Integers in; a normalisation with running statistics, one without, and GELU inside."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.norm, self.mix = nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 8)
        self.level, self.bend, self.head = nn.BatchNorm1d(8), nn.GELU(), nn.Linear(8, 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        mixed = self.mix(self.norm(self.words(tokens))).mean(1)
        return self.head(self.bend(self.level(mixed)))


class Loop:
    """One program: what it trains, and one step of it."""

    def __init__(self, session: Any, model: nn.Module, optimizer: Any) -> None:
        self.session, self.model, self.optimizer = session, model, optimizer
        self.scaler: Any = None

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.randn(16, WIDTH)
        return far(x), far(x[:, :2].sum(1, keepdim=True))

    def learn(self, step: int) -> None:
        x, y = self.batch(step)
        loss = F.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.session.record_loss(loss)
        self.session.record_metric("twice", loss.detach() * 2)


class Clipped(Loop):
    """Gradients are accumulated, zeroed in place and clipped."""

    def learn(self, step: int) -> None:
        self.optimizer.zero_grad(set_to_none=False)
        for _ in range(2):
            x, y = self.batch(step)
            loss = F.mse_loss(self.model(x), y)
            (loss / 2).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.session.record_loss(loss)


class Scaled(Loop):
    """A scaler, which unscales before its step; torch itself waits for it once a step."""

    def learn(self, step: int) -> None:
        self.scaler = self.scaler or torch.amp.GradScaler("cpu", init_scale=2.0**8)
        x, y = self.batch(step)
        loss = F.mse_loss(self.model(x), y)
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.session.record_loss(loss)


class Reading(Loop):
    """Tokens."""

    def batch(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = torch.randint(0, 11, (16, 5))
        return far(tokens), far((tokens == 3).float().sum(1, keepdim=True))


class Log(nn.Module):
    """Takes the logarithm of what is negative from one step on."""

    shift = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.square() + 1.0 - self.shift).log()


class Born(Loop):
    """A NaN is born in a module."""

    def learn(self, step: int) -> None:
        if step == BREAKS_AT:
            self.model[1].shift = 1e6
        super().learn(step)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=1e-2)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)


def logs() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, 8), Log(), nn.Linear(8, 1))


PROGRAMS: dict[str, tuple[type[Loop], Callable[[], nn.Module], Callable[[nn.Module], Any]]] = {
    "plain": (Loop, mlp, adam),
    "clipped": (Clipped, mlp, sgd),
    "scaled": (Scaled, mlp, adam),
    "reading": (Reading, Words, adam),
    "born": (Born, logs, sgd),
}


def run(name: str, *, is_watched: bool = True) -> dict[str, Any]:
    """Run one program; return its waits by step, weights and verdict."""
    kind, build, optimize = PROGRAMS[name]
    torch.manual_seed(0)
    model = move(build())
    session: Any = NeuralDbg(model, overhead=1.0) if is_watched else Unwatched()
    waits = []
    with session:
        loop = kind(session, model, optimize(model))
        torch.manual_seed(1)
        for step in range(STEPS):
            WAITS.clear()
            loop.learn(step)
            waits.append(Counter(WAITS))
    found = session.explain_failure() if is_watched else []
    return {
        "waits": waits,
        "weights": [p.near.detach().clone() for p in model.parameters()],
        "said": [[str(h), h.layer, h.onset] for h in found],
    }


def compare(name: str) -> dict[str, Any]:
    """Return what watching added to a program, and whether its weights are the same."""
    plain, watched = run(name, is_watched=False), run(name)
    pairs = zip(watched["weights"], plain["weights"], strict=True)
    return {
        "added": [
            sum((w - p).values()) for w, p in zip(watched["waits"], plain["waits"], strict=True)
        ],
        "is_same": all(torch.equal(a.nan_to_num(7), b.nan_to_num(7)) for a, b in pairs),
        "said": watched["said"],
    }


@contextlib.contextmanager
def carried() -> Iterator[None]:
    """Know what carries figures from the simulated device."""
    original = readback.carrier_for
    readback.carrier_for = lambda device: FarCarrier() if device.type == "far" else None
    try:
        yield
    finally:
        readback.carrier_for = original


if __name__ == "__main__":
    torch.set_num_threads(1)
    with carried():
        print(json.dumps({name: compare(name) for name in PROGRAMS}))
