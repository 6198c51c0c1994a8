# SPDX-License-Identifier: MIT
"""What is kept of a step to its end, so that it can be run again: inputs, random state, graphs."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from neuraldbg.capture.microscope.region import KEPT_BYTES, Intervals, Region, collect, next_number
from neuraldbg.capture.microscope.rerun import Allowance, Forward, tensors_of, versions

if TYPE_CHECKING:
    from collections.abc import Mapping

FORWARDS = 32
"""Forwards of one step that can be run again. Heuristic: accumulation and siamese calls."""
GRADIENT_BYTES = 64 << 20
"""Limit on the gradients of root outputs kept to the step's end."""
REGIONS = 8
"""Loss graphs of one step that are kept. Heuristic: accumulation, two losses of a GAN."""
BARREN, THINNED = 64, 8
"""After so many walks in a row that found nothing steep, only every eighth backward is walked; of
the others the graph is kept until the optimizer steps."""
LEAVES = 16
"""Tensors of one output whose gradients are kept."""


class Kept:
    """The forwards, loss graphs and optimizer steps of the open step; all go when it ends.

    Args:
        models: Watched models by name.
        examinations: Examinations that are left; nothing is kept where none is.
    """

    def __init__(self, models: Mapping[str, nn.Module], *, examinations: int) -> None:
        self.step = 0
        """Label for observations; the session sets it."""
        self.is_examining = False
        """True during a re-run: taps, ledgers and patched calls must do nothing."""
        self.failure: str | None = None
        """What went wrong inside the microscope, once; it is off from then on."""
        self._left = examinations
        self.graph: Any = None
        """Where a backward began that was not walked before; its step is still open."""
        self._forwards: list[Forward] = []
        self._intervals = Intervals()
        self._glue: list[Any] = []
        self._regions: list[Region] = []
        self._has_stepped = False
        self._barren = 0
        self._allowance = Allowance(GRADIENT_BYTES)
        self._has_device = any(p.is_cuda for m in models.values() for p in m.parameters())
        self._is_seen = False
        self._steps: dict[int, tuple[weakref.ref[torch.optim.Optimizer], bool | None, int]] = {}

    def begin_forward(
        self,
        module: nn.Module,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        *,
        is_late: bool = False,
    ) -> None:
        """Remember an outermost training forward of a watched module; call from its pre-hook.

        Keeps references to the inputs (detached), the random state and autocast; about 6 us.
        `is_late`: it has ended already, and what it drew at random is not known.
        """
        if self.is_examining or self._left <= 0:
            return
        if len(self._forwards) >= FORWARDS:
            self._forwards.pop(0)
        try:
            self._forwards.append(self._remember(module, args, kwargs))
            self._forwards[-1].is_late = is_late
        except Exception as error:  # noqa: BLE001 - never into the user's code
            self._fail(error)

    def _remember(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> Forward:
        kept = tuple([self._plain(v) for v in args])
        named = {k: self._plain(v) for k, v in kwargs.items()} if kwargs else {}
        is_cuda = self._has_device or any(isinstance(v, Tensor) and v.is_cuda for v in kept)
        autocast: tuple[tuple[str, bool, torch.dtype], ...] = ()
        if torch._C._is_any_autocast_enabled():  # noqa: SLF001
            devices = ("cpu", "cuda") if is_cuda else ("cpu",)
            autocast = tuple(
                (d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices
            )
        return Forward(
            module=module,
            args=kept,
            kwargs=named,
            versions=versions(kept, named),
            random_state=torch.get_rng_state(),
            device_state=torch.cuda.get_rng_state() if is_cuda else None,
            autocast=autocast,
            start=next_number(),
            is_training=module.training,
            allowance=self._allowance,
        )

    def end_forward(self, module: nn.Module, output: Any) -> None:
        """The same forward ended; call from its forward hook. Hooks the output's gradients."""
        if self.is_examining or self._left <= 0 or not self._forwards:
            return
        forward = self._forwards[-1]
        if forward.module is not module or forward.stop >= 0:
            return
        try:
            forward.stop = next_number()
            self._intervals.add(forward.start, forward.stop)
            tensors = (output,) if isinstance(output, Tensor) else tensors_of(output)[:LEAVES]
            for place, tensor in enumerate(tensors):
                if tensor.requires_grad:
                    tensor.register_hook(_Keep(forward, place))  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 - never into the user's code
            self._fail(error)

    def _walk(self, loss: Tensor) -> None:
        """Keep the loss graphs of this step's last backwards, within one size limit."""
        if self._barren >= BARREN and self._barren % THINNED and not self._glue:
            self._barren += 1
            self.graph = loss.grad_fn  # what became steep just now is known by its names
            return
        region = collect([loss.grad_fn, *self._glue], self._intervals)
        self._glue.clear()
        self._barren = 0 if region.has_nodes else self._barren + 1
        if not region.has_nodes:
            return
        self._regions.append(region)
        while (
            len(self._regions) > REGIONS
            or sum(one.size_bytes for one in self._regions) > KEPT_BYTES
        ):
            self._regions.pop(0)

    def inputs(self) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """Return the arguments of this step's forwards, where they are still what they were."""
        return [(one.args, one.kwargs) for one in self._forwards if not one.is_changed]

    def end_step(self) -> None:
        """Drop everything that belongs to the step."""
        self.graph = None
        self._forwards.clear()
        self._intervals.clear()
        self._glue.clear()
        self._regions.clear()
        self._has_stepped = False
        self._allowance.left = GRADIENT_BYTES
        self._is_seen = False

    def after_step(
        self,
        optimizer: torch.optim.Optimizer,
        *,
        is_finite_gradient: bool | None = None,
        is_finite_weight: bool | None = None,
    ) -> None:
        """Remember that an optimizer stepped, and what of it is known to be finite.

        Weights that were finite after the step were not broken by it.
        """
        self._has_stepped, self.graph = True, None
        if is_finite_weight:
            self._steps.pop(id(optimizer), None)
        elif self._left > 0:
            key = id(optimizer)
            known = self._steps.get(key)
            reference = (
                known[0]
                if known is not None and known[0]() is optimizer
                else weakref.ref(optimizer)
            )
            self._steps[key] = (reference, is_finite_gradient, self.step)

    def close(self) -> None:
        """Drop everything and stay off."""
        self.end_step()
        self._steps.clear()
        self._left = 0

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or repr(error)
        self._left = 0

    def _plain(self, value: Any) -> Any:
        """Return an argument without its graph; remember a graph node that no model made."""
        if isinstance(value, Tensor):
            node = value.grad_fn
            if node is None:
                return value
            number = node._sequence_nr()  # noqa: SLF001
            if len(self._glue) < LEAVES and number not in self._intervals:
                self._glue.append(node)
            return value.detach().requires_grad_()
        if type(value) in (list, tuple):
            return type(value)([self._plain(one) for one in value])
        if type(value) is dict:
            return {key: self._plain(one) for key, one in value.items()}
        return value


class _Keep:
    """Tensor hook: keeps the gradient that reached a root output while its step lives."""

    __slots__ = ("forward", "place")

    def __init__(self, forward: Forward, place: int) -> None:
        self.forward = weakref.ref(forward)
        self.place = place

    def __call__(self, gradient: Tensor) -> None:
        forward = self.forward()
        if forward is not None:
            forward.keep_gradient(self.place, gradient)
