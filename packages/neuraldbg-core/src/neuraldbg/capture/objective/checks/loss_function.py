# SPDX-License-Identifier: MIT
"""What the loss is: named once, and again with the statistics of its targets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.objective.checks.sign import squared_sign
from neuraldbg.capture.objective.losses import FLOORS, FUSED, REGRESSIONS, Term, difference
from neuraldbg.capture.objective.reading import signed
from neuraldbg.capture.objective.tape import NONE, Tape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

ENOUGH = 256
"""Targets after which chance level is stated. Heuristic: an entropy within about 0.1 nat for ten
classes."""
CLASS_LIMIT = 4_096
"""Classes counted at most; larger vocabularies have no useful chance level from so few targets."""


@dataclass(slots=True)
class _Targets:
    """Sums over the targets of one term. Numbers only."""

    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    classes: list[int] | None = None
    is_told: bool = False
    is_binary: bool = False

    def add(self, target: torch.Tensor, classes: int, ignored: int | None) -> None:
        with torch.no_grad():
            plain = target.detach().reshape(-1)
            if classes:
                kept = plain[plain != ignored] if ignored is not None else plain
                kept = kept[(kept >= 0) & (kept < classes)]
                counts = torch.bincount(kept.long(), minlength=classes).tolist()
                old = self.classes or [0] * classes
                self.classes = [a + b for a, b in zip(old, counts, strict=True)]
                self.count += int(kept.numel())
                return
            wide = plain.double()
            self.count += int(wide.numel())
            self.total += float(wide.sum())
            self.squares += float((wide * wide).sum())

    def figures(self) -> dict[str, float]:
        """Return the chance level: label entropy in nats, or the variance of the targets."""
        if self.classes:
            shares = [n / self.count for n in self.classes if n]
            entropy = -sum(p * math.log(p) for p in shares)
            return {"label_entropy": entropy, "largest_share": max(shares, default=0.0)}
        mean = self.total / self.count
        figures = {
            "target_mean": mean,
            "target_variance": max(self.squares / self.count - mean * mean, 0.0),
        }
        if self.is_binary and 0 < mean < 1:
            figures["label_entropy"] = -mean * math.log(mean) - (1 - mean) * math.log(1 - mean)
        return figures


DENSITY = "log_density"
"""What a squared distance is whose factors praise and blame: the log-density of an action."""


class LossFunction:
    """Names each term of each loss, with its reduction, rows, classes, and floor.

    Said again once enough targets were seen, then with `label_entropy` (nats) or
    `target_variance`: what a model reaches that learns nothing but the targets' distribution.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._targets: dict[tuple[str, int], _Targets] = {}

    def observe(self, view: View) -> Iterable[Observation]:
        """Describe a loss not seen before; count targets."""
        signature = view.signature
        if len(self._told) > 32:
            return
        for at, term in enumerate(view.terms):
            extra = self._count(view, term, signature, at)
            if signature not in self._told or extra:
                yield self._describe(view, term, at, extra)
        self._told.add(signature)

    def _count(self, view: View, term: Term, signature: str, at: int) -> dict[str, float]:
        target = view.tape.saved(term.place, "target")
        is_given = isinstance(target, torch.Tensor) and target.numel() > 0
        if not is_given or _is_between_outputs(view.tape, term):
            return {}
        scores = view.tape.saved(term.place, "self")
        classes = 0
        if term.name in {"nll", "cross_entropy", "multi_margin"} and scores is not None:
            classes = int(scores.shape[1] if scores.ndim > 1 else scores.shape[0])
            if classes > CLASS_LIMIT:
                return {}
        elif term.name not in REGRESSIONS and not term.name.startswith("bce"):
            return {}
        seen = self._targets.setdefault((signature, at), _Targets())
        if seen.is_told:
            return {}
        seen.is_binary = term.name.startswith("bce")
        seen.add(target, classes, signed(view.tape.saved(term.place, "ignore_index")))
        if seen.count < ENOUGH:
            return {}
        seen.is_told = True
        return {**seen.figures(), "targets": seen.count}

    def _describe(self, view: View, term: Term, at: int, extra: dict[str, float]) -> Observation:
        figures = dict(extra)
        feed = view.tape.shape(term.feed) if term.feed != NONE else None
        if feed:
            figures |= {"rows": feed[0], "classes": feed[1] if len(feed) > 1 else 1}
        name = term.name
        if term.factor is not None:
            figures["factor"] = term.factor
            if term.is_weighted and (side := squared_sign(view.tape, term.place)):
                figures["log_density"] = -side * term.factor
                name = DENSITY if term.has_negative_weights else name
        if _is_between_outputs(view.tape, term):
            figures["is_learned_target"] = 1.0
        floor = FLOORS.get(name, math.nan)
        if not math.isnan(floor):
            figures["floor"] = floor
        return view.observation(
            "loss_function",
            view.layer_of(term.feed),
            confidence=1.0,
            figures={**figures, "term": at, "terms": len(view.terms)},
            name=name,
            reduction=term.reduction,
            shape="x".join(map(str, feed or ())),
        )


def _is_between_outputs(tape: Tape, term: Term) -> bool:
    """Return whether both sides of an error carry a gradient: it pulls outputs together."""
    if term.name not in REGRESSIONS:
        return False
    fused = tape.names[term.place] in FUSED
    apart = term.place if fused else difference(tape, term.place)
    sides = tape.inputs[apart] if apart != NONE else ()
    return len(sides) == 2 and NONE not in sides
