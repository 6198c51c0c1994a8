# SPDX-License-Identifier: MIT
"""How much gradient reaches the early time steps of a recurrent layer.

A fused layer (`nn.RNN`, `nn.LSTM`, `nn.GRU`) is run once more on a few recorded samples, and the
last output's gradient with respect to each input step is measured: the layer's own memory,
whatever the loss. A cell that the user's loop calls leaves one autograd node per time step; the
gradient that passes each of them in the run's own backward is measured instead.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from neuraldbg.capture.inert import NOTHING, Inert, copied
from neuraldbg.capture.ranks import alone
from neuraldbg.schema.facts import Observation

if TYPE_CHECKING:
    import weakref
    from collections.abc import Iterator, Mapping, Sequence

    from neuraldbg.capture.layers import Survey

SHORTEST = 8
"""Time steps below which a slope over time means little."""
_SAMPLES = 8


class Memory:
    """Measures the recurrent layers of one audited step."""

    def __init__(self, survey: Survey) -> None:
        self._fused = {
            layer.info.path: layer.module
            for layer in survey.layers
            if isinstance(layer.module(), nn.RNNBase)
        }
        self._cells = {
            index: layer.info.path
            for index, layer in enumerate(survey.layers)
            if isinstance(layer.module(), nn.RNNCellBase)
        }
        self._inputs: dict[str, torch.Tensor] = {}
        self._handles: list[Any] = []
        self._passed: dict[str, dict[int, torch.Tensor]] = {}

    def __bool__(self) -> bool:
        return bool(self._fused or self._cells)

    def attach(self) -> None:
        """Keep the inputs of fused layers during the step to come."""
        if self._handles:
            return
        for path, reference in self._fused.items():
            module = reference()
            if module is not None:
                self._handles.append(
                    module.register_forward_pre_hook(_KeepInput(self, path, reference))
                )

    def detach(self) -> None:
        """Remove the hooks and drop what is held."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.clear()

    def clear(self) -> None:
        """Drop what belongs to the step."""
        self._inputs, self._passed = {}, {}

    def keep(self, path: str, value: object) -> None:
        """Note the input of a fused layer, without its graph."""
        if isinstance(value, torch.Tensor) and value.dim() == 3:
            self._inputs[path] = value.detach()

    def before_backward(self, nodes: Mapping[int, Sequence[Any]]) -> None:
        """Listen to the gradients that pass the cells' outputs in the backward to come."""
        for index, path in self._cells.items():
            calls = nodes.get(index, ())
            if len(calls) < SHORTEST:
                continue
            passed = self._passed.setdefault(path, {})
            for time, node in enumerate(calls):
                node.register_prehook(functools.partial(_note, passed, time))

    def observe(self, label: int) -> list[Observation]:
        """Return one observation per recurrent layer; called after the step's backward."""
        found = [_observation(label, path, norms) for path, norms in self._measure()]
        self.clear()
        return [o for o in found if o is not None]

    def _measure(self) -> Iterator[tuple[str, np.ndarray]]:
        for path, passed in self._passed.items():
            yield path, np.array([float(passed[time]) for time in sorted(passed)])
        for path, value in self._inputs.items():
            module = self._fused[path]()
            if not isinstance(module, nn.RNNBase) or alone(module) is None:
                continue
            if value.device.type == "cpu":
                yield path, influence(module, value)


class _KeepInput:
    """A forward pre-hook that notes the input; inert in copies and pickles."""

    def __init__(self, memory: Memory, path: str, module: weakref.ref[nn.Module]) -> None:
        self.memory, self.path, self.module = memory, path, module

    def __call__(self, _module: nn.Module, args: Any) -> None:
        if not torch.compiler.is_compiling() and torch.is_grad_enabled() and args:
            self.memory.keep(self.path, args[0])

    def __deepcopy__(self, memo: dict[Any, Any]) -> Inert:
        return copied(self.module(), memo)

    def __reduce__(self) -> tuple[Any, tuple[Any, str]]:
        return NOTHING


def _note(passed: dict[int, torch.Tensor], time: int, gradients: Sequence[Any]) -> None:
    first = next((g for g in gradients if isinstance(g, torch.Tensor)), None)
    if first is not None:
        passed[time] = torch.linalg.vector_norm(first.detach().float())


def influence(module: nn.RNNBase, value: torch.Tensor) -> np.ndarray:
    """Return `[T]`, the L2 norm of d(last output) / d(input at t), in order of time.

    Args:
        module: the recurrent layer; its weights, mode and random state are left as they are.
        value: `[N, T, C]` where `batch_first`, else `[T, N, C]`; up to eight samples are used.
    """
    batch_dim = 0 if module.batch_first else 1
    x = value.narrow(batch_dim, 0, min(_SAMPLES, value.shape[batch_dim])).clone()
    with (
        torch.enable_grad(),
        torch.random.fork_rng(devices=[]),
        torch.autocast("cpu", enabled=False),
    ):
        x = x.to(next(module.parameters()).dtype).requires_grad_()
        output = type(module).forward(module, x)[0]
        if module.batch_first:
            output = output.transpose(0, 1)
        width = module.proj_size or module.hidden_size
        (gradient,) = torch.autograd.grad(output[-1, :, :width].sum(), x)
    if not module.batch_first:
        gradient = gradient.transpose(0, 1)
    norms: np.ndarray = torch.linalg.vector_norm(gradient, dim=(0, 2)).double().numpy()
    return norms


def _observation(label: int, path: str, norms: np.ndarray) -> Observation | None:
    if len(norms) < SHORTEST or not np.isfinite(norms).all() or norms.max() <= 0:
        return None
    edge = max(1, len(norms) // 8)
    early, late = float(norms[:edge].mean()), float(norms[-edge:].mean())
    ratio = early / max(late, 1e-300)
    figures = {
        "time_steps": float(len(norms)),
        "early_norm": early,
        "late_norm": late,
        "early_late_ratio": ratio,
        "factor_per_step": float(max(ratio, 1e-300) ** (1.0 / max(len(norms) - edge, 1))),
    }
    return Observation("recurrent_gradient", label, layer=path, figures=figures)
