# SPDX-License-Identifier: MIT
"""A loop that drives the microscope by hand, as a session does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import pytest
import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from neuraldbg.capture.microscope import Microscope
from neuraldbg.schema.facts import Observation


@dataclass
class Driver:
    """Watches models while a block runs; `told` are the observations, in order."""

    models: Mapping[str, nn.Module]
    scale: float = 1.0
    told: list[Observation] = field(default_factory=list)
    examinations: int = 3

    def __enter__(self) -> Self:
        self.scope = Microscope(self.models, examinations=self.examinations)
        self._handles = []
        self._depth = 0
        for model in self.models.values():
            self._handles += [
                model.register_forward_pre_hook(self._enter, with_kwargs=True),
                model.register_forward_hook(self._leave, always_call=True),
            ]
        self._handles += [
            register_optimizer_step_pre_hook(self._step_began),
            register_optimizer_step_post_hook(self._step_ended),
        ]
        self._backward = torch.autograd.backward
        torch.autograd.backward = self._watched_backward
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if error is not None:
            self.told += self.scope.examine_exception(error)
        torch.autograd.backward = self._backward
        for handle in self._handles:
            handle.remove()
        self.left = self.scope._left
        self.scope.close()
        assert self.scope.failure is None, self.scope.failure

    def _enter(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        if torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1:
            self.scope.begin_forward(module, args, kwargs)

    def _leave(self, module: nn.Module, _: Any, output: Any) -> None:
        if torch.is_grad_enabled() and torch._C._current_graph_task_id() == -1:
            self.scope.end_forward(module, output)

    def _watched_backward(self, tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if torch._C._current_graph_task_id() == -1 and not self.scope.is_examining:
            loss = tensors if isinstance(tensors, torch.Tensor) else tensors[0]
            self.told += self.scope.before_backward(loss, scale=self.scale)
        return self._backward(tensors, *args, **kwargs)

    def _step_began(self, optimizer: Any, *_: Any) -> None:
        gradients = [
            p.grad for g in optimizer.param_groups for p in g["params"] if p.grad is not None
        ]
        self._finite = all(bool(torch.isfinite(g).all()) for g in gradients)
        if not self._finite:
            self.told += self.scope.examine_gradients(scale=self.scale)

    def _step_ended(self, optimizer: Any, *_: Any) -> None:
        self.scope.after_step(optimizer, is_finite_gradient=self._finite)
        self.scope.end_step()
        self.scope.step += 1


@pytest.fixture
def drive() -> Callable[..., Driver]:
    """Return the driver's class."""
    return Driver


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(before)
