# SPDX-License-Identifier: MIT
"""Bare steps heard by the shortest way: where a step takes less than a millisecond, calls count.

While it is on, the four places of the loop that tell of a bare step (the model's forward, backward,
the optimizer's step, a recorded loss) come here at once, and not through the recorder. Between two
of them the training has turned over all that the processor keeps at hand, so each function and each
object that is touched here costs about a microsecond: whatever can wait is done for some steps at
once. Anything that is not that plain loop, or is odd, *spills*: what is known of the open step goes
back to the recorder, which takes over as for any bare step.
"""

from __future__ import annotations

from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import is_grad_enabled

from neuraldbg.capture.containment import is_of_signal
from neuraldbg.capture.sentry import is_broken, rate
from neuraldbg.capture.switchboard import SWITCHBOARD

if TYPE_CHECKING:
    from torch import nn

    from neuraldbg.capture.lean import Lean

OPEN, ENTERED, PASSED, STEPPED = range(4)
"""How far the open step is: nothing heard, its forward, its backward, its optimizer, which steps
now or has."""

_transforms = torch._C._functorch.peek_interpreter_stack  # noqa: SLF001 - vmap, grad


Bare = tuple[dict[str, float], float, float, float, "list[float] | None"]
"""A bare step that is over: its losses, what its backward was called on, the lr, the
`perf_counter()` time at which the next one began, and its gradient norms where it was weighed."""


class Quick:
    """The open bare step, as long as it is plain. `is_on` says whether it is heard here.

    Attributes:
        closed: steps that are over and not handed to `Lean` yet: a few, so that what is usual
            follows them as if each had been handed over at once.
        entered: arguments of the last forward.
    """

    __slots__ = (
        "_backward", "_due_s", "_first", "_graph", "_groups", "_lean", "_left", "_losses",
        "_module", "_most", "_most_backward", "_most_loss", "_norms", "_optimizer", "_phase",
        "_rate", "_sentry", "_thread", "_until_weighed", "_weighed_every", "closed", "entered",
        "is_on",
    )  # fmt: skip

    def __init__(self, lean: Lean) -> None:
        self.is_on = False
        self.closed: list[Bare] = []
        self.entered: tuple[Any, Any] | None = None
        self._lean, self._sentry = lean, lean.sentry
        self._thread = 0
        self._first: torch.Tensor | None = None
        self._graph: Any = None
        self._module: nn.Module | None = None
        self._optimizer: torch.optim.Optimizer | None = None
        self._left = self._most = self._groups = 0
        self._due_s = self._most_loss = self._most_backward = 0.0
        self._phase = OPEN
        self._backward = self._rate = 0.0
        self._losses: dict[str, float] = {}
        self._norms: list[float] | None = None
        self._until_weighed = self._weighed_every = 0

    def start(
        self,
        module: nn.Module,
        optimizer: torch.optim.Optimizer | None,
        steps: int,
        due_s: float,
        weighed: tuple[int, int],
    ) -> None:
        """Hear so many bare steps, from the one that opens now, at most until `due_s`.

        Not beside a second session. `weighed`: steps until one is weighed, and from there to the
        next.
        """
        is_plain = optimizer is not None and module.training
        self.is_on = is_plain and steps > 0 and SWITCHBOARD.lend(self)
        if self.is_on:
            self._thread = get_ident()
            self._module, self._optimizer = module, optimizer
            self._groups = 0 if optimizer is None else len(optimizer.param_groups)
            self._first = self._sentry.first if self._sentry.is_emptied else None
            self._left, self._due_s = steps, due_s
            self._until_weighed, self._weighed_every = weighed
            self._phase, self._losses, self._norms = OPEN, {}, None
            self._learn()

    def _learn(self) -> None:
        """Learn what is usual, and for how many steps it stays so."""
        usual = self._lean.usual
        self._most = min(self._left, usual.steady)
        self._most_loss, self._most_backward = usual.loss, usual.backward

    def stop(self) -> None:
        """Hear nothing any more."""
        if self.is_on:
            self.is_on, self._optimizer = False, None
            self.entered = self._graph = None
            SWITCHBOARD.take_back()
            self._hand_over()

    def _hand_over(self) -> None:
        closed, self.closed = self.closed, []
        self._left -= len(closed)
        self._lean.hold(closed)

    def spill(self) -> None:
        """Give what is known of the open step to the recorder, which hears the rest of it."""
        if self.is_on:
            optimizer = self._optimizer if self._phase == STEPPED else None
            backward = self._backward if self._phase >= PASSED else None
            entered, graph = self.entered, self._graph
            self.stop()
            self._lean.graph = graph if backward is not None else None
            self._lean.take_over(entered, backward, self._losses, optimizer, self._norms)

    # -- what the loop does: each returns whether that was all there is to do -----------------

    def forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: Any) -> bool:
        """A forward begins; where a step is over, it closes."""
        if (
            get_ident() != self._thread
            or module is not self._module
            or not module.training
            or self._sentry.has_flipped
            or not is_grad_enabled()
            or _transforms() is not None
        ):
            return False  # a recomputed or a traced forward comes second, and spills
        try:
            if self._phase == STEPPED and self._losses:
                now = perf_counter()
                self.closed.append((self._losses, self._backward, self._rate, now, self._norms))
                self._phase, self._losses, self._norms = OPEN, {}, None
                if (len(self.closed) >= self._most or now > self._due_s) and not self._goes_on(now):
                    return False
            if self._phase == OPEN:
                self._phase = ENTERED
                self.entered = args, kwargs
                return True
            self.spill()
        except Exception as error:  # noqa: BLE001 - promise 4
            self._fail("forward", error)
        return False

    def _goes_on(self, now: float) -> bool:
        """Hand the closed steps over; return whether the step that opens now is heard here."""
        self._hand_over()
        if self._left > 0 and now <= self._due_s:
            self._learn()
        else:
            self.stop()
            self._lean.resume(now)
        return self.is_on

    def backward(self, loss: Any) -> bool:
        """A backward begins."""
        if get_ident() != self._thread:
            return False
        try:
            is_cleared = self._first is None or self._first.grad is None
            is_plain = type(loss) is torch.Tensor and loss.numel() == 1
            if self._phase == ENTERED and is_cleared and is_plain:
                self._backward = loss.item()
                if self._backward <= self._most_backward:
                    self._phase, self._graph = PASSED, loss.grad_fn
                    return True
            self.spill()
        except Exception as error:  # noqa: BLE001 - promise 4
            self._fail("backward", error)
        return False

    def stepping(
        self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        """An optimizer is about to step: in the place of the switchboard's own hook.

        NaN or Inf anywhere in the backward reach the gradient of the first parameters.
        """
        if get_ident() == self._thread:
            try:
                is_ours = optimizer is self._optimizer and self._phase == PASSED
                glance = self._sentry.glance
                gradient = None if glance is None else glance.grad
                is_gone = is_ours and gradient is None and glance is not None
                is_grown = is_ours and len(optimizer.param_groups) != self._groups
                if is_ours and not (is_gone or is_grown) and self._is_sound(gradient):
                    self._phase, self._rate, self._graph = STEPPED, rate(optimizer), None
                    return None
                self.spill()
                if is_grown:
                    self._lean.grown()
                elif is_gone:
                    self._lean.gradient_left()
                elif is_ours:
                    self._lean.gradient_broke()
            except Exception as error:  # noqa: BLE001 - promise 4
                self._fail("stepping", error)
        return SWITCHBOARD.step_began(optimizer, args, kwargs)

    def _is_sound(self, gradient: torch.Tensor | None) -> bool:
        """Whether what came back is finite and, where all gradients are weighed now, as usual."""
        if self._until_weighed:
            self._until_weighed -= 1
            return gradient is None or not is_broken(gradient)
        self._until_weighed = self._weighed_every - 1
        self._norms = self._lean.weigh()
        return self._norms is not None

    def record(self, value: float, name: str) -> bool:
        """A loss is recorded."""
        if get_ident() != self._thread:
            return False
        try:
            if value <= self._most_loss and name not in self._losses:
                self._losses[name] = value
                return True
            self.spill()
        except Exception as error:  # noqa: BLE001 - promise 4
            self._fail("record", error)
        return False

    def _fail(self, where: str, error: Exception) -> None:
        """Nothing of ours breaks training: the recorder is switched off, and says why."""
        if is_of_signal(error):
            raise error
        if self.is_on:
            self.is_on = False
            SWITCHBOARD.take_back()
        self._lean.fail(where, error)
