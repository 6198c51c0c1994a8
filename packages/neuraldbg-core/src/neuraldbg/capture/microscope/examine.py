# SPDX-License-Identifier: MIT
"""One examination: run a recorded forward (and backward) again and find the birth."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from neuraldbg.capture.microscope.explosion import EXPLOSION
from neuraldbg.capture.microscope.origin import (
    Birth,
    Leaf,
    as_grown,
    as_masked,
    order,
    origin,
    thrown_away,
)
from neuraldbg.capture.microscope.provenance import Growth, OutOfTimeError, Provenance, watching
from neuraldbg.capture.microscope.rerun import (
    Forward,
    Paths,
    conditions,
    fresh_inputs,
    modules_kept,
    tensors_of,
)
from neuraldbg.capture.microscope.verdict import flags
from neuraldbg.capture.ranks import alone


@dataclass(slots=True)
class Outcome:
    """What a re-run showed.

    `source` is the birth or the leaf from which the non-finite result descends, None where all was
    finite. `is_complete` is False where the re-run stopped early, and why is in `note`.
    """

    source: Birth | Leaf | None = None
    is_complete: bool = True
    note: str = ""
    root: str = ""
    error: BaseException | None = None
    """What the user's forward raised, met again."""
    failure: str | None = None
    """An error of the microscope itself."""
    births: list[Birth] = field(default_factory=list)
    growth: dict[str, Growth] = field(default_factory=dict)
    """By module, how the gradient grew in its backward."""


def rerun(forward: Forward, paths: Paths, seconds: float, *, is_backward: bool = False) -> Outcome:
    """Run a recorded forward again, and its backward from the recorded gradients if asked.

    The gradients that arrived at the outputs must be finite for a backward to be worth it.
    """
    outcome = Outcome(root=paths.of.get(id(forward.module), ""))
    module = alone(forward.module)
    if module is None:
        outcome.is_complete, outcome.note = (
            False,
            "a forward that other ranks take part in is not re-run",
        )
        return outcome
    args, kwargs, leaves, copies = fresh_inputs(forward)
    deadline = time.monotonic() + seconds
    with modules_kept(module) as guarded, conditions(forward), paths.following():
        if module.training != forward.is_training:
            module.train(forward.is_training)
        leaves |= _leaves(module)
        paths.start(paths.of.get(id(module), outcome.root))
        mode = Provenance(leaves, lambda: paths.current, paths.owner, guarded, deadline)
        outputs: list[Tensor] = []
        try:
            with watching(mode):
                outputs = tensors_of(module(*args, **kwargs))
                if is_backward:
                    _backward(mode, forward, module, outputs, copies, outcome)
        except OutOfTimeError:
            outcome.is_complete, outcome.note = (
                False,
                "the time limit of the examination was reached",
            )
        except Exception as error:  # noqa: BLE001
            outcome.error = error
        outcome.births, outcome.failure, outcome.growth = mode.births, mode.failure, mode.growth
        if outcome.source is None:
            outcome.source = _forward_source(mode, outputs, args, kwargs)
    return outcome


def _leaves(module: nn.Module) -> dict[int, tuple[str, str]]:
    named: dict[int, tuple[str, str]] = {}
    for name, buffer in module.named_buffers():
        if buffer.layout is torch.strided:
            named[buffer.untyped_storage().data_ptr()] = ("buffer", name)
    for name, parameter in module.named_parameters():
        if parameter.layout is torch.strided:
            named[parameter.untyped_storage().data_ptr()] = ("parameter", name)
    return named


def _forward_source(
    mode: Provenance, outputs: Sequence[Tensor], args: Any, kwargs: Any
) -> Birth | Leaf | None:
    with torch.no_grad():
        found = [(t, state) for t in outputs if (state := flags(t))]
    sources = [origin(mode.source(t.detach(), state)) for t, state in found]
    sources = [s for s in sources if not (isinstance(s, Birth) and s.is_deliberate)]
    if sources:
        return min(sources, key=order)
    if not outputs:  # it raised: what was broken last led to it
        open_births = [b for b in mode.births if not b.is_deliberate and b.phase == "forward"]
        if open_births:
            return origin(open_births[-1])
        broken = [
            leaf
            for value in tensors_of((args, kwargs))
            if (state := flags(value))
            for leaf in [mode.source(value, state)]
        ]
        return broken[0] if broken else None
    return None


def _backward(
    mode: Provenance,
    forward: Forward,
    module: nn.Module,
    outputs: Sequence[Tensor],
    copies: Sequence[Tensor],
    outcome: Outcome,
) -> None:
    recorded = forward.gradients or {}
    ends = [
        (t, recorded[place])
        for place, t in enumerate(outputs)
        if place in recorded and t.requires_grad
    ]
    if forward.is_late:  # any gradient shows where a finite one turns into none
        ends = [(t, torch.ones_like(t)) for t in outputs if t.requires_grad]
    if not ends:
        outcome.is_complete, outcome.note = False, "no gradient of the output was kept (size limit)"
        return
    starts: list[Tensor] = [p for p in module.parameters() if p.requires_grad]
    starts += [c for c in copies if c.requires_grad]
    mode.phase = "backward"
    mode.roots = [t.grad_fn for t, _ in ends]
    tensors = [t for t, _ in ends]
    seeds = [g.to(t.dtype) for t, g in ends]
    gradients: Sequence[Tensor | None]
    try:
        gradients = torch.autograd.grad(
            tensors, starts, seeds, retain_graph=True, allow_unused=True
        )
    except RuntimeError as error:
        if "use_reentrant" not in str(error):
            raise
        gradients = _reentrant(tensors, seeds, starts)
    broken = [(g, state) for g in gradients if g is not None and (state := flags(g))]
    sources = [origin(mode.source(g, state)) for g, state in broken]
    births = [s for s in sources if isinstance(s, Birth)]
    if births:
        outcome.source = min(births, key=lambda birth: birth.index)
        masked = thrown_away(outcome.source)
        grown = mode.growth.get(outcome.source.layer)
        if masked is not None:
            outcome.source = as_masked(masked)
        elif grown is not None and grown.ratio >= EXPLOSION:
            outcome.source = as_grown(outcome.source, grown.words, grown.ratio)
    elif sources:
        outcome.source = sources[0]
    else:
        last = [b for b in mode.births if b.phase == "backward"]
        outcome.source = origin(last[0]) if last and broken else None


def _reentrant(
    tensors: Sequence[Tensor], seeds: Sequence[Tensor], starts: Sequence[Tensor]
) -> list[Tensor | None]:
    """Backward for reentrant checkpoints, which refuse `autograd.grad`: `.grad` is put back."""
    if any(getattr(p, "_post_accumulate_grad_hooks", None) for p in starts):
        return []
    before = [p.grad for p in starts]
    try:
        for parameter in starts:
            parameter.grad = None
        torch.autograd.backward(list(tensors), list(seeds), retain_graph=True)
        return [p.grad for p in starts]
    finally:
        for parameter, gradient in zip(starts, before, strict=True):
            parameter.grad = gradient


def nonfinite_tensors(
    named: Mapping[str, Tensor] | Sequence[tuple[str, Tensor]],
) -> list[tuple[str, Tensor]]:
    """Return the entries that hold a NaN or Inf, in order (one sync each)."""
    pairs = named.items() if isinstance(named, Mapping) else named
    return [(name, tensor) for name, tensor in pairs if flags(tensor)]
