# SPDX-License-Identifier: MIT
"""What of a run cannot be seen: found from what did not happen, and said once, in words.

Code compiled before the session never calls hooks put on it later, transforms of `torch.func` have
nothing to measure inside, a layer put in place of a watched one has no hook at all. None of it
raises; each leaves rows of the board empty where gradients say that something ran.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import numpy as np
from torch import nn

from neuraldbg.capture.layers import is_tapped
from neuraldbg.schema.facts import ActivationStat, GradState, ParameterStat

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch

    from neuraldbg.capture.layers import Survey
    from neuraldbg.capture.segment import Segment
    from neuraldbg.capture.taps import Board

BLIND_AFTER = 2
"""Ordinal of the step after which layers that nothing was heard of are told. Heuristic: the first
steps may be a warm-up that runs otherwise."""
UNCOUNTED = 4
"""Losses of one name in a row, with nothing between them that ends a step, from which losses are
what counts steps. Heuristic: a value and its mean may both be recorded; four are a loop."""
MOST_NAMED = 4

COMPILED = (
    "{what} compiled and called before the session opened, so {whose} activations are not seen: "
    "open the session first, or call torch._dynamo.reset() before it"
)
TRANSFORMED = (
    "the model runs under a transform of torch.func (vmap or grad), inside which nothing can be "
    "measured: losses, gradients and optimizers are seen, activations and inputs are not"
)
BYPASSED = (
    "the model's parameters get gradients but none of its modules is called, so its activations "
    "are not seen: its weights are used elsewhere, or code that was compiled earlier runs"
)
REPLACED = (
    "{what} put into the model after the session opened and {verb} not measured: open a new "
    "session to see {it}"
)
LAZY = (
    "{what} lazy and {verb} no shape after the first steps: nothing of {it} is seen before the "
    "first call"
)
UNSEEN = (
    "losses are recorded while nothing of the watched model runs, from step {step} on: was the "
    "model made anew? Open a new session on the one that is trained"
)
STEPPED_UNSEEN = (
    "from step {step} on an optimizer moves nothing but layers that were put into the model after "
    "the session opened, and no step of it is recorded: open a new session on the changed model"
)
BY_LOSS = (
    "neither a backward pass nor an optimizer of the watched model is seen, so each recorded loss "
    "counts as a step: call step_iteration() at the end of an iteration to count them yourself"
)


class Sight:
    """Compares what was heard of the watched layers with what must have happened."""

    def __init__(
        self,
        roots: Mapping[str, nn.Module],
        models: Mapping[str, nn.Module],
        survey: Survey,
        board: Board,
    ) -> None:
        self._models, self._survey, self._board = models, survey, board
        self._known = weakref.WeakSet(m for model in models.values() for m in model.modules())
        self._regions = self._compiled_regions(roots)
        self._ran = np.zeros(len(survey.layers), dtype=bool)
        self._gone = 0
        self._fresh: list[tuple[str, nn.Module]] = []
        self._idle_losses = 0
        self._is_told_unseen = False
        self.is_due = False
        """Whether modules may have come: an optimizer was made for them."""
        self._strangers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()

    @property
    def is_compiled(self) -> bool:
        """Whether any part of the watched models is compiled."""
        return bool(self._regions)

    # -- layers ------------------------------------------------------------------------------

    def inspect(self, step: Segment, ordinal: int) -> list[str]:
        """Look at a closed step; return what must be told."""
        said: list[str] = []
        if step.activation is None or not len(self._ran):
            return said
        called = step.activation[:, ActivationStat.CALLS] > 0
        self._ran |= called
        if ordinal == BLIND_AFTER:
            said += [*self._blind(step), *self._lazy()]
        # A module that is not called any more may have been replaced: only then is it looked up.
        gone = int((self._ran & ~called).sum()) if step.forwards else self._gone
        if gone != self._gone or self.is_due:
            self._gone, self.is_due = gone, False
            said += self.replaced()
        return said

    def take_fresh(self) -> list[tuple[str, nn.Module]]:
        """Return the modules found since the last call that the session did not open with."""
        taken, self._fresh = self._fresh, []
        return taken

    def replaced(self) -> list[str]:
        """Name the modules that were not in the models when the session opened."""
        fresh: list[tuple[str, nn.Module]] = []
        for name, model in self._models.items():
            for path, module in model.named_modules(prefix=name):
                if module not in self._known:
                    self._known.add(module)
                    if is_tapped(module) and "parametrizations" not in path.split("."):
                        fresh.append((path, module))
        self._fresh += fresh
        if not fresh:
            return []
        is_one = len(fresh) == 1
        what = f"{_listed([path for path, _ in fresh])} {'was' if is_one else 'were'}"
        verb, it = ("is", "it") if is_one else ("are", "them")
        return [REPLACED.format(what=what, verb=verb, it=it)]

    def stepped_unseen(self, optimizer: torch.optim.Optimizer, label: int) -> list[str]:
        """An optimizer without any watched parameter steps; return what must be told, once."""
        if optimizer in self._strangers:
            return []
        self._strangers.add(optimizer)
        held = {id(p) for group in optimizer.param_groups for p in group["params"]}
        is_ours = any(id(p) in held for m in self._models.values() for p in m.parameters())
        return [STEPPED_UNSEEN.format(step=label)] if is_ours else []

    def _blind(self, step: Segment) -> Iterator[str]:
        """Layers whose parameters got gradients though nothing was ever heard of any of them."""
        trained = self._trained(step)
        if not self._ran.any():
            if self._board.transformed:
                yield TRANSFORMED
            elif self._regions:
                yield COMPILED.format(what="the model was", whose="its")
            elif trained:
                yield BYPASSED
            return
        deaf = [
            path
            for path, rows in self._regions.items()
            if rows and not self._ran[rows].any() and any(self._path(r) in trained for r in rows)
        ]
        if deaf:
            is_one = len(deaf) == 1
            what = f"{_listed(deaf)} {'was' if is_one else 'were'}"
            yield COMPILED.format(what=what, whose="its" if is_one else "their")

    def _lazy(self) -> Iterator[str]:
        """Lazy modules that have not been called, so that they have no shape."""
        paths = list(dict.fromkeys(self._survey.parameters[r].layer for r in self._survey.lazy))
        if paths:
            is_one = len(paths) == 1
            verb, it = ("has", "it") if is_one else ("have", "them")
            what = f"{_listed(paths)} {'is' if is_one else 'are'}"
            yield LAZY.format(what=what, verb=verb, it=it)

    def _trained(self, step: Segment) -> set[str]:
        """Return the layers of which a parameter has a gradient on this step."""
        if step.parameter is None:
            return set()
        states = step.parameter[:, ParameterStat.GRAD_STATE]
        absent = (GradState.NOT_STEPPED, GradState.NONE)
        return {
            info.layer
            for info, state in zip(self._survey.parameters, states, strict=True)
            if state not in absent
        }

    def _path(self, row: int) -> str:
        return self._survey.layers[row].info.path

    def _compiled_regions(self, roots: Mapping[str, nn.Module]) -> dict[str, list[int]]:
        """Return the rows of the layers inside each compiled module, by its path."""
        row_of = {id(layer.module()): row for row, layer in enumerate(self._survey.layers)}
        regions: dict[str, list[int]] = {}
        for name, root in roots.items():
            for path, module in root.named_modules(prefix=name):
                if is_compiled(module):
                    place = path.replace("_orig_mod.", "").removesuffix("_orig_mod")
                    inside = [row_of[id(m)] for m in module.modules() if id(m) in row_of]
                    regions[place.rstrip(".") or type(_inner(module)).__name__] = inside
        return regions

    # -- losses ------------------------------------------------------------------------------

    def is_uncounted(self, losses: int, step: Segment, *, has_optimizer: bool) -> bool:
        """Whether losses are recorded and nothing that ends a step is ever heard.

        Args:
            losses: recorded under one name within the open step, the newest included.
            step: the open step.
            has_optimizer: whether an optimizer of watched parameters has ever stepped.
        """
        self._idle_losses = 0 if self._board.stirred else self._idle_losses + 1
        self._board.stirred = False
        is_idle = self._idle_losses >= UNCOUNTED and losses >= UNCOUNTED
        is_by_hand = not (has_optimizer or step.backwards) and losses >= UNCOUNTED
        return is_idle or (is_by_hand and step.forwards >= losses)

    def uncounted(self, label: int, step: Segment, *, has_optimizer: bool) -> list[str]:
        """Say how steps are counted from now on."""
        if self._is_told_unseen:
            return []
        self._is_told_unseen = True
        if has_optimizer or not (step.forwards or self._board.transformed):
            return [UNSEEN.format(step=label + step.is_done)]
        return [BY_LOSS, *([TRANSFORMED] if self._board.transformed else [])]


def is_compiled(module: nn.Module) -> bool:
    """Whether calling the module runs compiled code: wrapped, in place, or by its forward."""
    return (
        isinstance(getattr(module, "_orig_mod", None), nn.Module)
        or getattr(module, "_compiled_call_impl", None) is not None
        or hasattr(vars(module).get("forward"), "_torchdynamo_orig_callable")
    )


def _inner(root: nn.Module) -> nn.Module:
    inner = getattr(root, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else root


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
    return ", ".join(map(repr, paths[:MOST_NAMED])) + more
