# SPDX-License-Identifier: MIT
"""Padding that enters the loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from neuraldbg.capture.objective.reading import signed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.losses import Term
    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

SHARE = 0.4
"""Share of one id from which it dominates. Heuristic: with less, real tokens lead the gradient."""
AT_ENDS = 0.95
"""Share of sequences in which that id fills one end and stands nowhere else. Heuristic."""


def _fills_an_end(is_pad: torch.Tensor) -> bool:
    """Return whether padding stands at one end of `[N, T]` only, from one place on or up to it."""
    lengths = (~is_pad).sum(1)
    at_end = (is_pad.int().diff(dim=1) >= 0).all(1)
    at_start = (is_pad.int().diff(dim=1) <= 0).all(1)
    one_end = max(float(at_end.float().mean()), float(at_start.float().mean()))
    return one_end >= AT_ENDS and torch.unique(lengths).numel() > 1


class PaddingDominates:
    """Looks for an id that is most of the targets and only fills the ends of sequences.

    Silent where it is ignored (`ignore_index`), has weight 0, or the loss is reduced by hand.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int], int] = {}
        self._told: set[tuple[str, int]] = set()

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at the targets of each token classification; report on the second sight."""
        for at, term in enumerate(view.terms):
            key = (view.signature, at)
            if key in self._told or term.name not in {"nll", "cross_entropy"}:
                continue
            found = self._padding(view, term)
            if found is None:
                continue
            self._seen[key] = self._seen.get(key, 0) + 1
            if self._seen[key] < 2:
                continue
            self._told.add(key)
            pad, share = found
            yield view.observation(
                "padding_dominates",
                view.layer_of(term.feed),
                is_since_first=True,
                confidence=0.9 if share > 0.5 else 0.75,
                figures={"id": pad, "share": share},
                cause="padding_in_loss",
                loss=term.name,
            )

    def _padding(self, view: View, term: Term) -> tuple[int, float] | None:
        target = view.tape.saved(term.place, "target")
        if not isinstance(target, torch.Tensor) or term.is_weighted or term.reduction == "none":
            return None
        with torch.no_grad():
            table = self._sequences(target.detach(), view.batch_size)
            if table is None:
                return None
            values, counts = torch.unique(table, return_counts=True)
            pad = int(values[counts.argmax()])
            share = float(counts.max()) / table.numel()
            if share < SHARE or values.numel() < 3 or self._is_ignored(view, term, pad):
                return None
            if not any(_fills_an_end(each == pad) for each in (table, table.T)):
                return None
        return pad, share

    def _sequences(self, target: torch.Tensor, samples: int) -> torch.Tensor | None:
        """Return the targets as `[N, T]`, None where they are not sequences of ids."""
        if target.ndim == 3 and target.shape[1] == 1:
            target = target[:, 0]
        if target.ndim == 1 and samples > 1 and target.numel() % samples == 0:
            target = target.reshape(samples, -1)
        if target.ndim != 2 or target.shape[0] < 4 or target.shape[1] < 4:
            return None
        return target[:256]

    def _is_ignored(self, view: View, term: Term, pad: int) -> bool:
        if signed(view.tape.saved(term.place, "ignore_index")) == pad:
            return True
        weight = view.tape.saved(term.place, "weight")
        return isinstance(weight, torch.Tensor) and (
            0 <= pad < weight.numel() and float(weight[pad]) == 0
        )
