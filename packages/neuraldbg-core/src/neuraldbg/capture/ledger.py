# SPDX-License-Identifier: MIT
"""The ledger of the loop: orders of calls that are a fault when they persist.

One step proves nothing (a resumed run, a warm-up pass); each finding needs the same fact on
several steps and carries the first of them as its step.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from neuraldbg.schema.facts import Observation

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.capture.segment import Segment

PERSISTENCE = 3
"""Steps with the same fact, of the last `WINDOW`. Heuristic: M of N against one-off events."""
WINDOW = 8
STOPPED, MANY = 50, 4
"""Losses and backward passes after the last optimizer step, and times the most that any step had,
that are no step which the end of the run cut short. Heuristic."""
EVAL_PERSISTENCE = 5
"""Consecutive training steps in eval mode before it is no accident."""


@dataclass(slots=True)
class _Streak:
    """How often a fact held within the last `WINDOW` steps, and since when."""

    recent: deque[bool] = field(default_factory=lambda: deque(maxlen=WINDOW))
    first: int | None = None

    def add(self, label: int, holds: bool) -> int:  # noqa: FBT001 - the fact itself
        if holds and not any(self.recent):
            self.first = label
        self.recent.append(holds)
        return sum(self.recent)


class Ledger:
    """Turns the counts of each closed step into findings."""

    def __init__(self) -> None:
        self._streaks: dict[str, _Streak] = {}
        self._said: set[str] = set()
        self._eval_passes = 0
        self._eval_first: int | None = None
        self._unstepped = self._most_backwards = 0
        self._accumulated: deque[int] = deque(maxlen=WINDOW)
        self.is_loss_divided = False
        """Whether the losses given to backward were divided by a number."""

    def note_loss(self, loss: torch.Tensor, *, is_scaled: bool) -> None:
        """Look whether the loss given to backward was divided by a number."""
        self.is_loss_divided |= is_divided(loss, is_scaled=is_scaled)

    def inspect(
        self, label: int, step: Segment, *, optimizers: int, uncleared: str | None = None
    ) -> list[Observation]:
        """Judge one closed step.

        Args:
            label: its label.
            step: its counts.
            optimizers: how many have stepped watched parameters in this run.
            uncleared: the model whose gradients were not cleared, where others' were.
        """
        found: list[Observation] = []
        self._most_backwards = max(self._most_backwards, step.backwards)
        if step.is_done:
            found += self._persisting(label, step, uncleared)
        found += self._modes(label, step)
        if optimizers == 1:
            found += self._accumulation(label, step)
        return found

    def _persisting(self, label: int, step: Segment, uncleared: str | None) -> list[Observation]:
        facts = {
            "gradients_not_cleared": (not step.is_cleared, "missing_zero_grad"),
            "cleared_before_step": (step.is_cleared_before_step, "zero_grad_before_step"),
            "clipped_after_step": (
                step.is_clipped_after_step and not step.clips,
                "clip_after_step",
            ),
            "clipped_scaled": (step.is_clipped_scaled, "clip_before_unscale"),
        }
        found = []
        for kind, (holds, cause) in facts.items():
            streak = self._streaks.setdefault(kind, _Streak())
            count = streak.add(label, holds)
            if count >= PERSISTENCE and kind not in self._said:
                self._said.add(kind)
                first = label if streak.first is None else streak.first
                words = {"cause": cause}
                layer = uncleared if kind == "gradients_not_cleared" else None
                found.append(Observation(kind, first, layer, {"steps": float(count)}, words))
        return found

    def _modes(self, label: int, step: Segment) -> list[Observation]:
        found = []
        streak = self._streaks.setdefault("eval_mode_in_training", _Streak())
        is_training_in_eval = bool(step.is_done and step.eval_mode_forwards)
        if step.is_done:
            count = streak.add(label, is_training_in_eval)
            if count >= EVAL_PERSISTENCE and "eval" not in self._said and streak.first is not None:
                self._said.add("eval")
                words = {"cause": "eval_mode_in_training"}
                found.append(Observation("eval_mode_in_training", streak.first, words=words))
        if step.train_mode_eval_forwards:
            self._eval_first = label if self._eval_first is None else self._eval_first
            self._eval_passes += step.train_mode_eval_forwards
            if self._eval_passes >= 2 and "train" not in self._said:
                self._said.add("train")
                found.append(
                    Observation(
                        "train_mode_in_eval",
                        self._eval_first,
                        figures={"passes": float(self._eval_passes)},
                        words={"cause": "train_mode_in_eval"},
                    )
                )
        return found

    def _accumulation(self, label: int, step: Segment) -> list[Observation]:
        """Several forwards and backwards for one step of the only optimizer, loss not divided."""
        if step.steps != 1 or step.evaluations > 1:
            return []
        is_one_each = step.forwards >= step.backwards
        self._accumulated.append(step.backwards if is_one_each else 0)
        recent = list(self._accumulated)[-PERSISTENCE:]
        is_steady = len(recent) == PERSISTENCE and len(set(recent)) == 1 and recent[0] > 1
        if self.is_loss_divided or not is_steady or "accumulation" in self._said:
            return []
        self._said.add("accumulation")
        figures = {"backwards": float(step.backwards)}
        words = {"cause": "accumulation_unscaled"}
        first = label - PERSISTENCE + 1
        return [Observation("accumulation_unscaled", first, figures=figures, words=words)]

    def unstepped(
        self, label: int, first: int, *, is_unmoved: Callable[[], bool | None]
    ) -> list[Observation]:
        """A step closed without any optimizer, in a run in which none ever stepped."""
        self._unstepped += 1
        if self._unstepped < PERSISTENCE or "no_step" in self._said:
            return []
        self._said.add("no_step")
        words = {"cause": "missing_optimizer_step"}
        figures = {"steps": float(label - first + 1)}
        unmoved = is_unmoved()
        figures |= {} if unmoved is None else {"unmoved": float(unmoved)}
        return [Observation("no_optimizer_step", first, figures=figures, words=words)]

    def stopped(self, label: int, step: Segment) -> list[Observation]:
        """The run ended in a step that never ended: its optimizer steps no more.

        Gradients that are looked at after the training have no recorded losses.
        """
        losses = max(map(len, step.losses.values()), default=0)
        if step.steps or step.skipped or min(losses, step.backwards) < STOPPED:
            return []
        if step.backwards < MANY * self._most_backwards:
            return []
        figures = {"backwards": float(step.backwards)}
        words = {"cause": "missing_optimizer_step"}
        return [Observation("optimizer_stopped", label, figures=figures, words=words)]


def is_divided(loss: torch.Tensor, *, is_scaled: bool) -> bool:
    """Whether the last operation on the loss divides it by a number of at least 1.5."""
    node = loss.grad_fn
    if node is not None and is_scaled and "Mul" in node.name():
        node = node.next_functions[0][0]
    if node is None:
        return False
    name = node.name()
    if name.startswith("Div"):
        number = _constant(node, "_saved_other")
        return number is not None and number >= 1.5
    if name.startswith("Mul"):
        numbers = [_constant(node, "_saved_other"), _constant(node, "_saved_self")]
        return any(n is not None and 0 < n <= 1 / 1.5 for n in numbers)
    return False


def _constant(node: object, name: str) -> float | None:
    try:
        value = getattr(node, name, None)
        if isinstance(value, torch.Tensor):
            is_number = value.numel() == 1 and value.is_cpu and not value.requires_grad
            return float(value) if is_number else None
        return None if value is None else float(value)
    except (RuntimeError, TypeError, ValueError):
        return None
