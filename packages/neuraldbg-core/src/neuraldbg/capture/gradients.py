# SPDX-License-Identifier: MIT
"""Gradients, weights and optimizer state, read at the optimizer's own hooks.

Norms are exact: one fused call over all gradients, before the optimizer steps; where a clipping
call came first, the norms that it saw. Everything else (weights, updates, second moments, the
direction of the gradient) comes from a strided sample of each parameter.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from neuraldbg.capture.layers import is_shapeless
from neuraldbg.capture.norms import by_device, local, norms_of
from neuraldbg.schema.facts import OptimizerStat, ParameterStat
from neuraldbg.schema.plain import GRADIENT, PARAMETER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from neuraldbg.capture.readback import Readback

SAMPLE = 256
"""Elements per parameter. Heuristic: an RMS is known to about 5 % (one standard error)."""


ABSENT = -1.0
"""Stands for the norm of a gradient that is None."""


@dataclass(slots=True)
class OwnedParameters:
    """The watched parameters of one optimizer, as rows of the parameter array."""

    rows: list[int]
    tensors: list[torch.nn.Parameter]
    foreign: int
    """Tensors that belong to no watched model."""
    size: int
    """Number of tensors over all groups when this was made (a cheap change detector)."""
    optimizer: weakref.ref[torch.optim.Optimizer]
    ids: frozenset[int]
    """`id()` of the tensors."""

    @classmethod
    def of(
        cls,
        optimizer: torch.optim.Optimizer,
        rows: list[int],
        tensors: list[torch.nn.Parameter],
        foreign: int,
        size: int,
    ) -> OwnedParameters:
        """Describe what `optimizer` owns."""
        ids = frozenset(id(t) for t in tensors)
        return cls(rows, tensors, foreign, size, weakref.ref(optimizer), ids)


def strided(t: torch.Tensor, count: int = SAMPLE) -> torch.Tensor:
    """View about `count` evenly spaced elements of a dense tensor, without a copy where it can."""
    flat = t.detach()
    flat = flat.view(-1) if flat.is_contiguous() else flat.reshape(-1)
    step = max(1, flat.numel() // count)
    return flat[::step][:count]


class ParameterBoard:
    """One row per watched parameter: what the optimizer was given and what it did with it."""

    def __init__(self, tensors: Sequence[torch.nn.Parameter], readback: Readback) -> None:
        self.tensors = list(tensors)
        self._readback = readback
        self.row_of = {id(t): row for row, t in enumerate(self.tensors)}
        count = len(self.tensors)
        self._before = torch.zeros((count, SAMPLE))
        self._after = torch.zeros((count, SAMPLE))
        self._gradient = torch.zeros((count, SAMPLE))
        self._last_gradient = torch.zeros((count, SAMPLE))
        self._has_last = np.zeros(count, dtype=bool)
        self._former: list[weakref.ref[torch.nn.Parameter]] = []
        self.measure()
        self.preclip: dict[int, torch.Tensor] = {}
        self.is_sampling = True
        self.is_deep = True
        self.was_finite = True
        """Whether the sampled weights were finite before the last step."""
        self._is_finite = True
        self.values = self._blank()

    def measure(self) -> None:
        """Learn how large the parameters are, at the start and when lazy ones have their shape."""
        lengths = [_length(t) for t in self.tensors]
        self._extent = np.array([min(SAMPLE, max(1, length)) for length in lengths] or [1])
        self._is_empty = np.array([not length for length in lengths], dtype=bool)
        """Parameters of which this rank holds no element: nothing of them is measured."""
        self._views: dict[int, list[torch.Tensor]] = {}

    def renew(self, tensors: Sequence[torch.nn.Parameter]) -> None:
        """Follow parameters that were replaced.

        The old ones keep their rows for as long as they live: an optimizer may still step them.
        """
        for row, (old, new) in enumerate(zip(self.tensors, tensors, strict=True)):
            if old is not new:
                self._former.append(weakref.ref(old, partial(self._forget, id(old))))
                self.row_of[id(new)] = row
        self.tensors = list(tensors)
        self.measure()

    def _forget(self, key: int, _: object) -> None:
        """A former parameter is gone: another tensor may get its `id()`."""
        self.row_of.pop(key, None)

    def _blank(self) -> np.ndarray:
        values = np.full((len(self.tensors), len(ParameterStat)), np.nan, dtype=np.float32)
        values[:, PARAMETER.GRAD_STATE] = GRADIENT.NOT_STEPPED
        return values

    def take(self) -> np.ndarray:
        """Return `[P, len(ParameterStat)]` of the step, complete once all has been read back."""
        taken, self.values, self.preclip = self.values, self._blank(), {}
        return taken

    def note_preclip(self, norms: Mapping[int, torch.Tensor]) -> None:
        """Keep the L2 norms, by `id(gradient)`, of gradients that are about to be clipped."""
        if norms:
            self.preclip = {key: local(norm.detach()) for key, norm in norms.items()}

    def before_step(self, owned: OwnedParameters, scale: Any) -> bool:
        """Read gradients and weights; return whether all gradients are finite, as far as is known.

        Args:
            owned: the optimizer's watched parameters.
            scale: loss scale to divide out (fused optimizers under a GradScaler), else 1.
        """
        values, rows, gradients = self.values, [], []
        for row, tensor in zip(owned.rows, owned.tensors, strict=True):
            gradient = tensor.grad
            if gradient is None:
                values[row, PARAMETER.GRAD_STATE] = GRADIENT.NONE
                continue
            rows.append(row)
            gradients.append(gradient)
        self._is_finite = True
        for places, norms in self._norms(gradients):
            put = partial(self._put, values, [rows[place] for place in places], scale)
            self._readback.read(norms, put)
        if self.is_sampling:
            self._gather(lambda: self._before, owned.rows, owned.tensors)
            if self.is_deep:
                self._sample_gradients(rows, gradients)
        return self._is_finite

    def put(self, rows: list[int], norms: list[float]) -> None:
        """Note gradient norms, `ABSENT` for none."""
        self._write(self.values, rows, norms)

    def _put(self, values: np.ndarray, rows: list[int], scale: Any, norms: torch.Tensor) -> None:
        """Note gradient norms that have arrived."""
        divisor = float(scale)
        found = norms.tolist() if divisor == 1.0 else [n / divisor for n in norms.tolist()]
        state = self._write(values, rows, found)
        self._is_finite &= not bool((state == GRADIENT.NONFINITE).any())

    def _write(self, values: np.ndarray, rows: list[int], norms: list[float]) -> np.ndarray:
        """Write norms and states of these parameters; return the states."""
        index = np.asarray(rows, dtype=np.intp)
        norm, state = self.classify(index, np.asarray(norms, dtype=np.float32))
        values[index, PARAMETER.GRAD_NORM] = norm
        values[index, PARAMETER.GRAD_STATE] = state
        return state

    def classify(self, rows: np.ndarray, norms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (norm, NaN where none; `GradState`) of norms with `ABSENT`, `[..., R]`."""
        state = np.where(norms == 0, GRADIENT.ZERO, GRADIENT.PRESENT)
        state[norms == ABSENT] = GRADIENT.NONE
        state[~np.isfinite(norms)] = GRADIENT.NONFINITE
        norms = np.where(norms == ABSENT, np.nan, norms)
        empty = self._is_empty[rows]
        norms[..., empty], state[..., empty] = np.nan, GRADIENT.PRESENT
        return norms, state

    def norms(self, gradients: list[torch.Tensor]) -> list[float]:
        """Return the L2 norm of each gradient; those that a clipping call saw, where one did."""
        norms = [math.nan] * len(gradients)
        for places, found in self._norms(gradients):
            values = found.tolist()
            if len(values) == len(norms):
                return values
            for place, value in zip(places, values, strict=True):
                norms[place] = value
        return norms

    def _norms(self, gradients: list[torch.Tensor]) -> list[tuple[Sequence[int], torch.Tensor]]:
        known = self.preclip
        if known and all(id(g) in known for g in gradients):
            return by_device([known[id(g)] for g in gradients])
        return norms_of(gradients)

    def _sample_gradients(self, rows: list[int], gradients: list[torch.Tensor]) -> None:
        self._readback.then(self._turn)
        dense = [(r, g) for r, g in zip(rows, gradients, strict=True) if g.layout is torch.strided]
        if not dense:
            return
        kept, tensors = zip(*dense, strict=True)
        self._gather(lambda: self._gradient, list(kept), list(tensors))
        self._readback.then(partial(self._compare_gradients, self.values, list(kept)))

    def _turn(self) -> None:
        """The gradients at hand are those of the step before."""
        self._last_gradient, self._gradient = self._gradient, self._last_gradient
        self._gradient.zero_()

    def _compare_gradients(self, values: np.ndarray, kept: list[int]) -> None:
        new, old = self._gradient.numpy(), self._last_gradient.numpy()
        index = np.asarray(kept, dtype=np.intp)
        with np.errstate(all="ignore"):
            dot = (new[index] * old[index]).sum(1)
            size = np.sqrt((new[index] ** 2).sum(1) * (old[index] ** 2).sum(1))
            cosine = np.where(self._has_last[index] & (size > 0), dot / size, np.nan)
            extent = self._extent[index]
            nonzero = (new[index] != 0).sum(1)
        values[index, PARAMETER.GRAD_COSINE] = cosine
        values[index, PARAMETER.GRAD_ZERO_SHARE] = 1.0 - nonzero / extent
        self._has_last[:] = False
        self._has_last[index] = True

    def after_step(self, optimizer: torch.optim.Optimizer, owned: OwnedParameters) -> bool:
        """Compare weights with those before; return whether all are known to be finite, so far."""
        if not self.is_sampling:
            return True
        self._is_finite = True
        self._gather(lambda: self._after, owned.rows, owned.tensors)
        self._readback.then(partial(self._compare, self.values, owned.rows))
        if self.is_deep:
            self._second_moments(optimizer, owned)
        return self._is_finite

    def _compare(self, values: np.ndarray, rows: list[int]) -> None:
        index = np.asarray(rows, dtype=np.intp)
        before, after = self._before.numpy()[index], self._after.numpy()[index]
        root = np.sqrt(self._extent[index])
        with np.errstate(all="ignore"):
            root[self._is_empty[index]] = np.nan
            values[index, PARAMETER.WEIGHT_RMS] = np.linalg.norm(before, axis=1) / root
            values[index, PARAMETER.UPDATE_RMS] = np.linalg.norm(after - before, axis=1) / root
            top = np.abs(after).max(axis=1)
        values[index, PARAMETER.WEIGHT_MAX] = top
        self.was_finite = bool(np.isfinite(before).all())
        self._is_finite = bool(np.isfinite(top).all())

    def _second_moments(self, optimizer: torch.optim.Optimizer, owned: OwnedParameters) -> None:
        """RMS of grad / max(sqrt(v), eps) (Wortsman et al. 2023, StableAdamW, section 3.4)."""
        eps_of = {id(p): g.get("eps", 0.0) for g in optimizer.param_groups for p in g["params"]}
        beta_of = {
            id(p): g.get("betas", (0, 0.0))[1] for g in optimizer.param_groups for p in g["params"]
        }
        moments, ages, known = [], [], []
        for row, tensor in zip(owned.rows, owned.tensors, strict=True):
            state: dict[str, Any] = optimizer.state.get(tensor) or {}
            moment = state.get("exp_avg_sq")
            if not isinstance(moment, torch.Tensor) or tensor.grad is None or self._is_empty[row]:
                continue
            if tensor.grad.layout is not torch.strided or moment.shape != tensor.shape:
                continue
            moments.append(strided(local(moment)))
            ages.append(state.get("step", 1))
            known.append((row, float(beta_of.get(id(tensor), 0.0)), eps_of.get(id(tensor), 0.0)))
        figures, values = self._readback.numbers(ages), self.values

        def judge(found: list[torch.Tensor]) -> None:
            groups: dict[int, list[tuple[int, np.ndarray, float, float]]] = {}
            for (row, beta, eps), v, age in zip(known, found, figures, strict=True):
                extent, correction = int(self._extent[row]), 1.0 - beta ** (float(age) or 1.0)
                moment = v.float().numpy()[:extent]
                groups.setdefault(extent, []).append(
                    (row, moment, max(correction, 1e-12), float(eps))
                )
            for extent, members in groups.items():
                self._judge_moments(values, extent, members)

        self._readback.read_all(moments, judge)

    def _judge_moments(
        self,
        values: np.ndarray,
        extent: int,
        members: list[tuple[int, np.ndarray, float, float]],
    ) -> None:
        """Judge parameters of one extent: (row, moment, bias correction, eps) of each."""
        rows, moments, corrections, eps = zip(*members, strict=True)
        index = np.asarray(rows, dtype=np.intp)
        correction = np.asarray(corrections, dtype=np.float32)[:, None]
        floor = np.asarray(eps, dtype=np.float32)[:, None]
        gradient = self._gradient.numpy()[index, :extent]
        with np.errstate(all="ignore"):
            root = np.sqrt(np.maximum(np.stack(moments) / correction, 0))
            ratio = gradient / np.maximum(root, np.maximum(floor, 1e-30))
            active = gradient != 0
            share = ((root < floor) & active).sum(1) / active.sum(1)
        values[index, PARAMETER.SECOND_MOMENT_RATIO] = np.sqrt(np.mean(ratio**2, axis=1))
        values[index, PARAMETER.EPS_SHARE] = share

    def _places(self, buffer: torch.Tensor) -> list[torch.Tensor]:
        """Return the sample's place of each parameter in one of the buffers."""
        views = self._views.get(id(buffer))
        if views is None:
            extents = self._extent.tolist()
            views = [buffer[row, :extent] for row, extent in enumerate(extents)]
            self._views[id(buffer)] = views
        return views

    def _gather(
        self,
        target: Callable[[], torch.Tensor],
        rows: Sequence[int],
        tensors: Sequence[torch.Tensor],
    ) -> None:
        """Copy the strided sample of each tensor into its row of `target` (host, float32)."""

        def place(found: list[torch.Tensor]) -> None:
            buffer = target()
            views = self._places(buffer)
            places = [
                view if (view := views[row]).numel() == t.numel() else buffer[row, : t.numel()]
                for row, t in zip(rows, found, strict=True)
            ]
            if places:
                torch._foreach_copy_(places, found)

        self._readback.read_all([strided(local(t)) for t in tensors], place)


def _length(t: torch.Tensor) -> int:
    return len(strided(local(t.detach()))) if not is_shapeless(t) and t.numel() else 0


def optimizer_row(groups: Sequence[Mapping[str, Any]], stepped: int) -> np.ndarray:
    """Return `[len(OptimizerStat)]` float32: the hyper-parameters in force on this step."""
    row = np.full(len(OptimizerStat), np.nan, dtype=np.float32)
    groups = _in_use(groups)
    biggest = groups[0] if len(groups) == 1 else max(groups, key=_size)
    row[OptimizerStat.STEPPED] = stepped
    if known := rates(groups):
        row[OptimizerStat.LR], row[OptimizerStat.LR_MIN] = max(known), min(known)
    betas = biggest.get("betas")
    momentum = betas[0] if isinstance(betas, tuple | list) else biggest.get("momentum", math.nan)
    row[OptimizerStat.MOMENTUM] = _number(momentum)
    row[OptimizerStat.WEIGHT_DECAY] = _number(biggest.get("weight_decay", math.nan))
    if isinstance(betas, tuple | list) and len(betas) > 1:
        row[OptimizerStat.BETA2] = _number(betas[1])
    row[OptimizerStat.EPS] = _number(biggest.get("eps", math.nan))
    return row


def rates(groups: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the lr of each group that holds parameters; some optimizers have none."""
    return [float(g["lr"]) for g in _in_use(groups) if "lr" in g]


def _in_use(groups: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return [g for g in groups if g["params"]] or groups


def _size(group: Mapping[str, Any]) -> int:
    return sum(p.numel() for p in group["params"] if not is_shapeless(p))


def options_of(optimizer: torch.optim.Optimizer) -> dict[str, float | str | bool | None]:
    """Scalar hyper-parameters of the first group, for the run's description."""
    result: dict[str, float | str | bool | None] = {}
    for name, value in optimizer.param_groups[0].items():
        if name == "params" or name.startswith("_"):
            continue
        if value is None or isinstance(value, bool | str):
            result[name] = value
        elif isinstance(value, tuple | list):
            result |= {f"{name}_{i}": _number(v) for i, v in enumerate(value)}
        else:
            result[name] = _number(value)
    return result


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan
