# SPDX-License-Identifier: MIT
"""Summands without gradient that change from step to step, and terms that never change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from neuraldbg.capture.objective.reading import scalar, signed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg.capture.objective.losses import Term
    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

ENOUGH = 4
"""Losses looked at before anything is said."""
EXACT = {torch.float32: 1e-5, torch.float64: 1e-5}
"""Relative rounding of a loss recomputed in its own precision, with a factor of 100 to spare for
sums in another order."""
ROUGH = 0.05
"""The same in half precision."""
SIZE_LIMIT = 1 << 22
"""Elements above which a term is not recomputed: 4 M cost about 10 ms."""


_RESULTS = {"Relu": "result", "Exp": "result", "Sqrt": "result", "Sigmoid": "result",
            "ClampMin": "self", "Clamp": "self"}  # fmt: skip
"""Operations at the end of hand-written losses, and where they keep what they computed."""


def _of_result(view: View, term: Term) -> float | None:
    """Return the mean or sum of what an operation kept, None where it is reduced otherwise."""
    tape, at = view.tape, term.place
    values = tape.saved(at, _RESULTS[tape.names[at]])
    if not isinstance(values, torch.Tensor) or not 0 < values.numel() <= SIZE_LIMIT:
        return None
    if term.is_weighted or term.reduction not in {"mean", "sum"}:
        return None
    with torch.no_grad():
        plain = values.detach().float()
        if _RESULTS[tape.names[at]] == "self":
            low, high = scalar(tape.saved(at, "min")), scalar(tape.saved(at, "max"))
            bounded = plain.clamp(low, high)
            if not bool((bounded == plain).any()):
                return None  # all at the bound: free bits, a margin that is met
            plain = bounded
        return float(plain.mean()) * (term.summed if term.reduction == "sum" else 1)


def value_of(view: View, term: Term) -> float | None:
    """Recompute a term from what its node saved, None where that cannot be done exactly."""
    tape, at = view.tape, term.place
    if tape.names[at] in _RESULTS:
        return _of_result(view, term)
    given, target = tape.saved(at, "self"), tape.saved(at, "target")
    if not isinstance(given, torch.Tensor) or not isinstance(target, torch.Tensor):
        return None
    if given.numel() > SIZE_LIMIT or term.reduction not in {"mean", "sum"} or term.is_weighted:
        return None
    kind: Any = {"mse": F.mse_loss, "nll": F.nll_loss, "cross_entropy": F.nll_loss}.get(term.name)
    kind = kind or {"smooth_l1": F.smooth_l1_loss, "huber": F.huber_loss}.get(term.name)
    options: dict[str, Any] = {}
    if term.name in {"nll", "cross_entropy"}:
        options = {
            "weight": tape.saved(at, "weight"),
            "ignore_index": signed(tape.saved(at, "ignore_index")),
        }
    elif term.name == "smooth_l1":
        options = {"beta": tape.saved(at, "beta")}
    elif term.name == "huber":
        options = {"delta": tape.saved(at, "delta")}
    elif term.name == "bce_with_logits":
        kind = F.binary_cross_entropy_with_logits
        options = {name: tape.saved(at, name) for name in ("weight", "pos_weight")}
    if kind is None:
        return None
    with torch.no_grad():
        return float(kind(given.detach(), target.detach(), reduction=term.reduction, **options))


def _rounding(view: View) -> float:
    """Return the relative error of the terms of this loss when they are recomputed."""
    worst = 0.0
    for term in view.terms:
        given = view.tape.saved(term.place, "self")
        kind = given.dtype if isinstance(given, torch.Tensor) else None
        worst = max(worst, EXACT.get(kind, ROUGH) if kind is not None else EXACT[torch.float32])
    return worst


class ConstantTerm:
    """What is left of a loss when its recognised terms are taken out.

    A summand without gradient that changes from step to step was computed from something: it was
    cut from the graph (`detached_term`). A recognised term that has exactly the same value on
    every step, though its inputs change, cannot teach (`constant_term`): cross-entropy over one
    class, a loss over an empty mask.
    """

    def __init__(self) -> None:
        self._left: dict[str, list[tuple[float, float]]] = {}
        """For each loss what no term explains, and the size of what the difference is taken of."""
        self._values: dict[tuple[str, int], list[float]] = {}
        self._told: set[str] = set()
        self._totals: dict[str, set[float]] = {}
        """For each loss at most two of its values: whether it changes at all."""

    def observe(self, view: View) -> Iterable[Observation]:
        """Recompute each term; compare with the steps before."""
        signature = view.signature
        if len(self._left) > 16 or len(view.terms) > 6:
            return
        values = [value_of(view, term) for term in view.terms]
        self._note_total(signature, view.loss)
        for at, (term, value) in enumerate(zip(view.terms, values, strict=True)):
            if value is not None:
                yield from self._unchanged(view, term, (signature, at), value)
        self._remember(signature, values)
        if view.objective.constants and signature not in self._told:
            yield from self._rest(view, signature, values)

    def _note_total(self, signature: str, total: float | None) -> None:
        seen = self._totals.setdefault(signature, set())
        if total is not None and len(seen) < 2:
            seen.add(total)

    def _remember(self, signature: str, values: list[float | None]) -> None:
        """Keep the last values of each term, so that terms can be compared with one another."""
        for at, value in enumerate(values):
            if value is not None:
                seen = self._values.setdefault((signature, at), [])
                seen.append(value)
                del seen[: -2 * ENOUGH]

    def _unchanged(
        self, view: View, term: Term, key: tuple[str, int], value: float
    ) -> Iterable[Observation]:
        seen = [*self._values.get(key, []), value]
        if len(seen) < ENOUGH or len(set(seen)) > 1 or repr(key) in self._told:
            return
        shape = view.tape.shape(term.feed)
        do_others_change = len(self._totals.get(key[0], ())) > 1
        is_one_class = term.name == "cross_entropy" and shape is not None and shape[-1] == 1
        others = [v for k, v in self._values.items() if k[0] == key[0] and k != key]
        do_others_change |= any(len(set(v)) > 1 for v in others)
        if is_one_class or (value and do_others_change):
            self._told.add(repr(key))
            yield view.observation(
                "constant_term",
                view.layer_of(term.feed),
                is_since_first=True,
                confidence=0.8,
                figures={"value": value, "losses": len(seen)},
                cause="constant_loss_term",
                term=term.name,
            )

    def _rest(
        self, view: View, signature: str, values: list[float | None]
    ) -> Iterable[Observation]:
        total = view.loss
        parts = [
            None if v is None or t.factor is None else v * t.factor
            for t, v in zip(view.terms, values, strict=True)
        ]
        if total is None or any(p is None for p in parts):
            return
        known = sum(p for p in parts if p is not None)
        seen = self._left.setdefault(signature, [])
        seen.append((total - known, max(abs(total), abs(known), 1e-12)))
        left, scale = [rest for rest, _ in seen], max(size for _, size in seen)
        if len(left) < ENOUGH or max(left) - min(left) < _rounding(view) * scale:
            return
        self._told.add(signature)
        yield view.observation(
            "detached_term",
            None,
            is_since_first=True,
            confidence=0.75,
            figures={"minimum": min(left), "maximum": max(left), "losses": len(left)},
            cause="detached_loss_term",
            term="a summand without gradient",
        )
