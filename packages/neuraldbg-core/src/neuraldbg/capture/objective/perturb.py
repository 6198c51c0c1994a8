# SPDX-License-Identifier: MIT
"""A forward pass with one change in its input: what else changes that should not.

Run once, on the first training step, before its backward pass. Two, seldom more, extra forwards in
eval mode; nothing of the run is touched, see `isolation.untouched`.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils._pytree import tree_flatten

from neuraldbg.capture.objective.evidence import Watch, has_relations, shifted_targets
from neuraldbg.capture.objective.repeat import (
    CHANGED,
    Repeat,
    Run,
    Slicer,
    change_of,
    differs,
    tensors,
)
from neuraldbg.schema.facts import Observation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SIMPLE = (torch.Tensor, bool, int, float, str, type(None))
SIZE_LIMIT = 1 << 24
"""Input elements above which no forward is repeated."""


def probe(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    outputs: Any,
    loss: torch.Tensor | None = None,
    *,
    step: int = 0,
    prefix: str = "",
    paths: Sequence[str] = (),  # noqa: ARG001 - kept for callers that know their layers
) -> list[Observation]:
    """Change the input of one sample, then the end of each sequence, and see what follows.

    Args:
        model: The module that was called.
        args: Its positional inputs.
        kwargs: Its keyword inputs.
        outputs: What it returned in the run.
        loss: The loss, its graph alive: tells an autoregressive model by its targets.
        step: Label of the step.
        prefix: Put before module paths.
        paths: Unused.

    Returns:
        `sample_leak` and `future_leak`; nothing where inputs hold objects other than tensors and
        numbers, where dimension 0 is not clearly that of samples, or where anything fails.
    """
    try:
        leaves, spec = tree_flatten((tuple(args), dict(kwargs)))
        size = sum(t.numel() for t in leaves if isinstance(t, torch.Tensor))
        if not all(isinstance(leaf, SIMPLE) for leaf in leaves) or not 0 < size <= SIZE_LIMIT:
            return []
        if any(hasattr(p, "placements") for p in model.parameters()):
            return []
        test = Repeat(model, leaves, spec, _half(model, outputs), prefix)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what the model warns of, it warned of before
            found = _sample_leak(test, outputs, step)
            return found + ([] if found else _future_leak(test, outputs, loss, step))
    except Exception:  # noqa: BLE001 - a model that cannot be run again is not judged
        return []


def _half(model: nn.Module, outputs: Any) -> torch.dtype | None:
    """Return the autocast type that the run used, as far as outputs and weights show it."""
    weights = {p.dtype for p in model.parameters()}
    made = {t.dtype for t in tensors(outputs)} & {torch.float16, torch.bfloat16}
    return made.pop() if made and not made & weights else None


def _sample_leak(test: Repeat, outputs: Any, step: int) -> list[Observation]:
    samples = _samples(test, outputs)
    if samples < 3 or has_relations(test.model, test.leaves, samples):
        return []
    if any(_is_unbound_norm(m) for m in test.model.modules()):
        return []
    for at in (samples // 2, samples - 1, 0):
        found, has_own = _leak_of(test, step, samples, at)
        if found or has_own:
            return found
    return []


def _leak_of(test: Repeat, step: int, samples: int, at: int) -> tuple[list[Observation], bool]:
    """Change sample `at`; return what that leaks into, and whether its own output answers.

    One that does not answer proves nothing of the others: outputs may be made of a few samples.
    """

    def others(tensor: torch.Tensor) -> torch.Tensor | None:
        rows = _by_sample(tensor, samples)
        return None if rows is None else torch.cat([rows[:at], rows[at + 1 :]])

    def own(tensor: torch.Tensor) -> torch.Tensor | None:
        return tensor[at : at + 1] if tensor.ndim and tensor.shape[0] == samples else None

    changed = _with_other_sample(test.leaves, samples, at)
    if changed is None:
        return [], False
    watch = Watch(samples, -1)
    before, after = test.run(test.leaves, others, watch), test.run(changed, others)
    has_own = change_of(before.outputs, after.outputs, own) > 0
    change = change_of(before.outputs, after.outputs, _outer(others, samples, at))
    layer = test.blame(before, after)
    shows = change >= CHANGED or (layer is not None and _is_inside(before, after, samples))
    if not shows or watch.mixes_samples or _is_time_first(test, samples):
        return [], has_own or watch.mixes_samples
    again = test.run(test.leaves, others)
    if test.blame(before, again) is not None:
        return [], True
    deep = any(t.ndim > 2 or not t.is_floating_point() for t in tensors(test.leaves) if t.ndim > 1)
    found = Observation(
        "sample_leak",
        step,
        layer,
        {"confidence": 0.9 if deep else 0.5, "change": change, "samples": float(samples)},
        {"cause": "axis_order_error", "module_kind": test.kind(layer)},
    )
    return [found], has_own


def _is_inside(before: Run, after: Run, samples: int) -> bool:
    """Return whether a layer with samples in dimension 0 shows it, though the output does not.

    So it is where what is read of the samples is the same for all of them.
    """
    return any(
        differs(before.layers[name], after.layers[name])
        for name, first in before.first.items()
        if first == samples and name in after.layers
    )


def _samples(test: Repeat, outputs: Any) -> int:
    """Return the size of dimension 0 where all inputs and the output agree on it, else 0."""
    sizes = {t.shape[0] for t in tensors(test.leaves) if t.ndim}
    made = [t for t in tensors(outputs) if t.ndim and t.is_floating_point()]
    if len(sizes) != 1 or not made:
        return 0
    (samples,) = sizes
    return samples if made[0].shape[0] == samples else 0


def _is_unbound_norm(module: nn.Module) -> bool:
    """Return whether a batch normalisation uses the batch in eval mode too."""
    return isinstance(module, nn.modules.batchnorm._BatchNorm) and module.running_mean is None  # noqa: SLF001


def _by_sample(tensor: torch.Tensor, samples: int) -> torch.Tensor | None:
    """Return a layer's output with samples first: `[N, ...]`, `[N*T, ...]` or `[T, N, ...]`."""
    if not tensor.ndim:
        return None
    if tensor.shape[0] == samples:
        return tensor
    if tensor.ndim > 2 and tensor.shape[1] == samples:
        return tensor.transpose(0, 1)
    if tensor.shape[0] % samples == 0 and tensor.shape[0]:
        return tensor.reshape(samples, -1)
    return None


def _outer(kept: Slicer, samples: int, at: int) -> Slicer:
    """Only judge outputs whose dimension 0 is that of samples; of N x N pairs the other columns."""

    def judged(tensor: torch.Tensor) -> torch.Tensor | None:
        if not tensor.ndim or tensor.shape[0] != samples:
            return None
        if tensor.ndim > 1 and tensor.shape[1] == samples:
            tensor = torch.cat([tensor[:, :at], tensor[:, at + 1 :]], 1)
        return kept(tensor)

    return judged


def _with_other_sample(leaves: list[Any], samples: int, at: int) -> list[Any] | None:
    """Return the inputs with sample `at` replaced by another one, which keeps them plausible."""
    for other in (0, samples - 1, 1):
        if other == at:
            continue
        changed, differs = [], False
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and leaf.ndim and leaf.shape[0] == samples:
                differs = differs or not torch.equal(leaf[at], leaf[other])
                leaf = leaf.detach().clone()  # noqa: PLW2901
                leaf[at] = leaf[other]
            changed.append(leaf)
        if differs:
            return changed
    return None


def _is_time_first(test: Repeat, length: int) -> bool:
    """Return whether dimension 1 of the inputs is that of samples: `[T, N, ...]` in and out.

    Then what looked like samples are positions, and they may influence one another.
    """
    deep = [t for t in tensors(test.leaves) if t.ndim > 1 and t.shape[0] == length]
    sizes = {t.shape[1] for t in deep}
    if len(sizes) != 1:
        return False
    (samples,) = sizes
    if samples < 2:
        return False
    at = samples // 2
    changed = [
        _roll_row(leaf, at) if isinstance(leaf, torch.Tensor) and leaf.ndim > 1 else leaf
        for leaf in test.leaves
    ]

    def others(tensor: torch.Tensor) -> torch.Tensor | None:
        if tensor.ndim < 3 or tensor.shape[:2] != (length, samples):
            return None
        return torch.cat([tensor[:, :at], tensor[:, at + 1 :]], 1)

    before, after = test.run(test.leaves, others), test.run(changed, others)
    if not before.outputs or others(before.outputs[0]) is None:
        return False
    return change_of(before.outputs, after.outputs, others) < CHANGED


def _roll_row(leaf: torch.Tensor, at: int) -> torch.Tensor:
    changed = leaf.detach().clone()
    changed[:, at] = leaf.detach()[:, at - 1]
    return changed


def _future_leak(
    test: Repeat, outputs: Any, loss: torch.Tensor | None, step: int
) -> list[Observation]:
    found = None if loss is None else shifted_targets(loss, test.leaves)
    place = found.input if found else _only_sequence(test.leaves)
    if place is None:
        return []
    sequence = test.leaves[place]
    dim = found.dim if found else 1
    length = sequence.shape[dim]
    if length < 4 or sequence.shape[0] < 1:
        return []
    last = length // 2

    def past(tensor: torch.Tensor) -> torch.Tensor | None:
        at = _time_axis(tensor, dim, length)
        return None if at is None else tensor.narrow(at, 0, last + 1)

    if not any(past(t) is not None for t in tensors(outputs) if t.is_floating_point()):
        return []
    changed = list(test.leaves)
    changed[place] = _other_end(sequence.detach(), dim, last + 1)
    watch = Watch(sequence.shape[0], length)
    before = test.run(test.leaves, past, watch)
    if not (found or watch.is_causal or _has_causal_buffer(test.model, watch)):
        return []
    after = test.run(changed, past)
    change = change_of(before.outputs, after.outputs, past)
    if change < CHANGED:
        return []
    layer = test.blame(before, after)
    is_norm = "Norm" in test.kind(layer)
    return [
        Observation(
            "future_leak",
            step,
            layer,
            {"confidence": 0.3 if is_norm else 0.95, "change": change, "length": float(length)},
            {
                "cause": "leaky_causal_mask",
                "module_kind": test.kind(layer),
                "evidence": "targets are later inputs" if found else "a causal mask",
            },
        )
    ]


def _only_sequence(leaves: list[Any]) -> int | None:
    """Return the place of the one input that is a sequence, None where there are several."""
    places = [i for i, t in enumerate(leaves) if isinstance(t, torch.Tensor) and t.ndim in {2, 3}]
    return places[0] if len(places) == 1 else None


def _time_axis(tensor: torch.Tensor, dim: int, length: int) -> int | None:
    """Return the dimension of time in a layer's output: where the input had it, else the last."""
    for at in (dim, tensor.ndim - 1, 1):
        if 0 < at < tensor.ndim and tensor.shape[at] == length:
            return at
    return None


def _other_end(sequence: torch.Tensor, dim: int, start: int) -> torch.Tensor:
    """Return the sequences with their ends exchanged among samples, which keeps them plausible."""
    changed = sequence.clone()
    source = sequence.roll(1, 0) if sequence.shape[0] > 1 else sequence.flip(dim)
    count = sequence.shape[dim] - start
    changed.narrow(dim, start, count).copy_(source.narrow(dim, start, count))
    return changed


def _has_causal_buffer(model: nn.Module, watch: Watch) -> bool:
    return any(watch._is_triangle(_head(b, watch.length)) for b in model.buffers())  # noqa: SLF001


def _head(buffer: torch.Tensor, length: int) -> torch.Tensor:
    """Return the part of a mask that sequences of `length` use."""
    if buffer.ndim < 2 or min(buffer.shape[-2:]) < length:
        return buffer
    return buffer[..., :length, :length]
