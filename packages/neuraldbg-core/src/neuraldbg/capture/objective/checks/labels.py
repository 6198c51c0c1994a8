# SPDX-License-Identifier: MIT
"""Class ids that do not fit the head: a first or last column that never is a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.objective.reading import signed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.losses import Term
    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

CLASS_LIMIT = 256
"""Heads wider than this have rare classes that a few batches cannot show."""
ENOUGH = 200
"""Labels before anything is said: a class of 2 % is missed in 200 with a chance of 2 %."""
PATIENCE = 64
"""Step before which a missing last class may still come: files are often sorted by class."""
CHANCE = 1e-4
"""Chance, at most, of missing a class as rare as the rarest one seen."""


class LabelGap:
    """Counts the labels of each classification loss over several batches.

    Says something where every class but the first, or every class but the last, occurs. Silent
    for several labels per sample (tokens, pixels: reserved ids are usual there), for two classes
    (one may be rare), and where the missing id is ignored on purpose.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, int], list[int]] = {}
        self._told: set[tuple[str, int]] = set()
        self._closed: set[tuple[str, int]] = set()

    def observe(self, view: View) -> Iterable[Observation]:
        """Count labels; report a gap once, and once that it closed after all."""
        for at, term in enumerate(view.terms):
            key = (view.signature, at)
            if key in self._closed or len(self._counts) > 32:
                continue
            counts = self._add(view, term, key)
            if key in self._told:
                if counts and all(counts):
                    self._closed.add(key)
                    yield view.observation(
                        "label_gap_closed", confidence=1.0, output=view.layer_of(term.feed) or ""
                    )
                continue
            gap = self._gap(counts) if counts else None
            if counts is None or gap is None:
                continue
            ignored = signed(view.tape.saved(term.place, "ignore_index"))
            if ignored == gap or (gap and view.step < PATIENCE):
                continue
            self._told.add(key)
            yield view.observation(
                "label_gap",
                None,
                is_since_first=True,
                confidence=self._confidence(counts, gap),
                figures={
                    "missing": gap,
                    "classes": len(counts),
                    "labels": sum(counts),
                    "largest_share": max(counts) / sum(counts),
                },
                cause="label_index_mismatch",
                missing="last" if gap else "first",
                output=view.layer_of(term.feed) or "",
            )

    @property
    def is_pending(self) -> bool:
        """Whether an id is missing so far: every batch counts now, or a late class is missed."""
        return any(
            key not in self._told and self._gap(counts) is not None
            for key, counts in self._counts.items()
        )

    def _confidence(self, counts: list[int], gap: int) -> float:
        """Higher where the other classes are about equally frequent, and for the last column."""
        is_balanced = min(n for n in counts if n) * len(counts) > 0.5 * sum(counts)
        return (0.6 if is_balanced else 0.4) + (0.2 if gap else 0.1)

    def _add(self, view: View, term: Term, key: tuple[str, int]) -> list[int] | None:
        if term.name not in {"nll", "cross_entropy", "multi_margin"}:
            return None
        target = view.tape.saved(term.place, "target")
        scores = view.tape.saved(term.place, "self")
        if not isinstance(target, torch.Tensor) or scores is None or target.ndim != 1:
            return None
        classes = int(scores.shape[-1])
        if not 2 < classes <= CLASS_LIMIT or target.numel() != view.batch_size:
            return None
        with torch.no_grad():
            kept = target.detach()
            kept = kept[(kept >= 0) & (kept < classes)]
            fresh = torch.bincount(kept, minlength=classes).tolist()
        old = self._counts.get(key, [0] * classes)
        self._counts[key] = [a + b for a, b in zip(old, fresh, strict=True)]
        return self._counts[key]

    def _gap(self, counts: list[int]) -> int | None:
        """Return the one column that never was a target, if it is the first or the last."""
        total, missing = sum(counts), [i for i, n in enumerate(counts) if not n]
        if total < ENOUGH or len(missing) != 1 or missing[0] not in {0, len(counts) - 1}:
            return None
        rarest = min(n for n in counts if n) / total
        return missing[0] if (1 - rarest) ** total < CHANCE else None
