# SPDX-License-Identifier: MIT
"""The laboratory of the matrix: one small loop, which a set-up changes in the part it is about.

A set-up is a function of a `Lab`, marked with `@setup("its row in docs/support.md")`: it builds a
model with `lab.net()`, says what is special, and hands it to `lab.train(...)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch._dynamo.utils
import torch.nn.functional as F
from matrix_faults import Fault
from torch import nn
from unwatched import Unwatched

from neuraldbg import NeuralDbg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matrix_faults import Truth

STEPS = 44
WIDTH = 6


def setup(
    title: str,
    *,
    without: Mapping[str, str] | None = None,
    truths: Mapping[str, Truth] | None = None,
    warnings: tuple[str, ...] = (),
    prefix: str = "",
    is_slow: bool = False,
) -> Callable[[Callable[[Lab], Any]], Any]:
    """Mark a function as a set-up.

    Args:
        title: of its row.
        without: faults that cannot be in this set-up, by name, with the reason in words.
        truths: what is true of a fault where this set-up changes it.
        warnings: parts of what NeuralDBG says of this set-up, one for each of its warnings.
        prefix: under which the model of the faults stands among the watched ones.
        is_slow: whether its tests are left out of the fast ones.
    """

    def mark(function: Any) -> Any:
        function.title, function.without, function.is_slow = title, dict(without or {}), is_slow
        function.truths, function.warnings, function.prefix = dict(truths or {}), warnings, prefix
        return function

    return mark


class Net(nn.Module):
    """Two hidden layers with ReLU, a head, and names that the faults know."""

    def __init__(self, width: int = WIDTH, hidden: int = 24, out: int = 1) -> None:
        super().__init__()
        self.stem, self.rise = nn.Linear(width, hidden), nn.ReLU()
        self.middle, self.bend = nn.Linear(hidden, hidden), nn.ReLU()
        self.head = nn.Linear(hidden, out)

    def forward(self, x):
        return self.head(self.bend(self.middle(self.rise(self.stem(x)))))


class Lab:
    """One run of one set-up, watched or not, with one fault or none.

    Attributes:
        model: what is trained, where the faults find `stem`, `middle`, `bend` and `head`.
        optimizers: what steps it.
        step: index of the step that runs.
        sessions: every session that was opened.
        lr: of the optimizers that the laboratory builds.
    """

    model: nn.Module
    optimizers: Sequence[torch.optim.Optimizer]

    def __init__(self, fault: Fault | None = None, *, is_watched: bool = True) -> None:
        self.fault = fault or Fault()
        self.is_watched = is_watched
        self.step = 0
        self.steps = STEPS
        self.lr = 1e-2
        self.sessions: list[NeuralDbg] = []
        self.notes: dict[str, Any] = {}

    def bias(self) -> torch.Tensor:
        """Return the bias before the ReLU that a fault may kill."""
        return self.model.get_submodule("middle").bias

    def watch(self, *args: Any, **kwargs: Any) -> Any:
        """Open a session, or what stands for one in the unwatched run."""
        if not self.is_watched:
            return Unwatched()
        self.sessions.append(NeuralDbg(*args, **kwargs))
        return self.sessions[-1]

    @property
    def session(self) -> NeuralDbg:
        return self.sessions[0]

    # -- pieces --------------------------------------------------------------------------------

    def net(self, kind: Callable[..., nn.Module] = Net, **options: Any) -> nn.Module:
        """Build the model, with the fault where the fault is one of construction."""
        self.model = kind(**options)
        self.fault.build(self.model)
        return self.model

    def adam(self, model: nn.Module | None = None, **options: Any) -> torch.optim.Optimizer:
        return torch.optim.Adam(self._of(model).parameters(), lr=self.lr, **options)

    def sgd(self, model: nn.Module | None = None, **options: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(self._of(model).parameters(), lr=0.05, **options)

    def _of(self, model: nn.Module | None) -> nn.Module:
        return self.model if model is None else model

    def batch(self, rows: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs `[rows, 6]` and a target `[rows, 1]` that can be learned."""
        x = torch.randn(rows, WIDTH)
        y = x[:, :2].sum(1, keepdim=True) - x[:, 2:3]
        return self.fault.inputs(self, x), y

    def clear(self) -> None:
        """`zero_grad` on every optimizer, unless the fault is that it is not called."""
        if self.fault.clears(self):
            for optimizer in self.optimizers:
                optimizer.zero_grad()

    def update(self, loss: torch.Tensor) -> torch.Tensor:
        """Clear, backward, step: what a plain loop does with a loss."""
        self.clear()
        loss.backward()
        for optimizer in self.optimizers:
            optimizer.step()
        return loss

    def begin(self, step: int) -> None:
        """Open a step: the fault acts here."""
        self.step = step
        self.fault.begin(self)

    # -- the loop ------------------------------------------------------------------------------

    def train(
        self,
        model: nn.Module,
        *,
        optimizers: Sequence[torch.optim.Optimizer] | None = None,
        call: Callable[..., Any] | None = None,
        watched: Any = None,
        entered: Callable[[Any], Any] | None = None,
        learn: Callable[[], Any] | None = None,
        left: Callable[[], None] | None = None,
    ) -> list[nn.Module]:
        """Train `model`; each argument replaces one part of a plain loop.

        Args:
            model: what is trained and compared afterwards.
            optimizers: Adam over all its parameters where not given.
            call: computes predictions; the model itself where not given.
            watched: what the session is opened on; the model where not given.
            entered: called with the session first thing in the block; may return a `call`.
            learn: one whole step from the batch to the loss, which it returns.
            left: called after the block.
        """
        self.optimizers = [self.adam(model)] if optimizers is None else optimizers
        with self.watch(model if watched is None else watched) as dbg:
            late = entered(dbg) if entered else None
            predict = next(each for each in (late, call, model) if each is not None)
            for step in range(self.steps):
                self.begin(step)
                if learn is not None:
                    loss = learn()
                else:
                    x, y = self.batch()
                    loss = self.update(F.mse_loss(predict(x), y))
                dbg.record_loss(loss)
        if left:
            left()
        return [model]


class Outcome(NamedTuple):
    """What a run left behind."""

    weights: dict[str, torch.Tensor]
    random_state: torch.Tensor
    hooks: int
    graph_breaks: int


def run(program: Callable[[Lab], Sequence[nn.Module]], lab: Lab) -> Outcome:
    """Run a set-up, which returns the modules that it trained, on the same random numbers."""
    torch.manual_seed(7)
    # Compiled code is kept per class, and a process of its own would not have the other run's.
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    models = program(lab)
    weights = {
        f"{i}.{name}": value.detach().clone()
        for i, model in enumerate(models)
        for name, value in model.state_dict().items()
    }
    breaks = sum(torch._dynamo.utils.counters["graph_break"].values())
    return Outcome(weights, torch.get_rng_state(), sum(map(count_hooks, models)), breaks)


def count_hooks(model: nn.Module) -> int:
    """Count every hook on a model's modules and parameters."""
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    of_modules = sum(len(getattr(m, name)) for m in model.modules() for name in names)
    of_parameters = sum(
        len(getattr(p, name, None) or ())
        for p in model.parameters()
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks")
    )
    return of_modules + of_parameters
