# SPDX-License-Identifier: LicenseRef-Proprietary
"""Coupled failures: pairs of events of which one led to the other along the causal graph.

An event is paired with the nearest earlier one on the way back through the graph, and only where
the two depend on one another beyond chance: their figures move together at that lag, or both are
so rare that they hardly fall together by accident. Linear in the number of events.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.baseline import median_mad
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.facts import ActivationStat, InputStat, ParameterStat
from neuraldbg.schema.hypotheses import Coupling
from neuraldbg.schema.vocabulary import Severity
from neuraldbg_engine.findings.case import logs
from neuraldbg_engine.graph import Anomaly, Edge, Node, Signal, node_of
from neuraldbg_engine.graph.words import sentence
from neuraldbg_engine.timeline import Onset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg_engine.findings.case import Case

    Array = NDArray[np.float64]

MOST = 200
"""Couplings on a list."""
NEAR = 64
"""Nodes looked at on the way back from an event: what lies farther is not its neighbour."""
AROUND = 32
"""Rows before and after the trigger over which two figures are compared."""
CHANCE = 0.05
"""Probability of falling together by accident below which a pair counts."""
UNTIMED = 0.5
"""Confidence left where both held from the first step on, and only the graph orders them."""
SHARES = {"dead": ActivationStat.SILENT_SHARE, "saturated": ActivationStat.FLAT_SHARE}
"""States of outputs that show in a share of their units, not in their size."""
RARE_Z = 6.0
"""Robust z from which a row of a figure is an event of its own."""


@dataclass(frozen=True)
class _Candidate:
    trigger: SemanticEvent
    node: Node


def couplings(case: Case, window: int = 5) -> list[Coupling]:
    """Return the pairs of failures of which one led to the other, in order of the consequence.

    Args:
        case: The run.
        window: Most steps between the two.
    """
    pairs = _Pairs(case, window)
    found: list[Coupling] = []
    for event, node in pairs.placed:
        best = pairs.trigger(event, node)
        if best is None:
            continue
        chance = pairs.chance(best, event, node)
        if chance > CHANCE:
            continue
        found.append(_coupling(best, event, node, chance, window))
        if len(found) >= MOST:
            break
    return found


def _coupling(
    best: _Candidate, event: SemanticEvent, node: Node, chance: float, window: int
) -> Coupling:
    trigger = best.trigger
    gap = event.step - trigger.step
    onset = Onset.exact(trigger.step)
    one = Anomaly(best.node, trigger.confidence, onset, str(trigger.to_state), trigger)
    sure = min(trigger.confidence, event.confidence)
    sure *= UNTIMED if chance < 0 else 1 - max(chance, 0.0)
    return Coupling(
        trigger=trigger,
        consequence=event,
        step_difference=gap,
        confidence=round(sure * (1 - 0.5 * gap / max(window, 1)), 4),
        mechanism=sentence(one, node),
    )


class _Pairs:
    """Events by node, and the figures of nodes, each read once."""

    def __init__(self, case: Case, window: int) -> None:
        self.case, self.window = case, window
        self._series: dict[tuple[Node, str], Array] = {}
        self._rare: dict[tuple[Node, str], tuple[Array, float]] = {}
        self.by_node: dict[Node, list[SemanticEvent]] = {}
        placed = []
        for event in case.trace.events:
            node = node_of(event)
            if node is None or event.severity is Severity.INFO:
                continue
            placed.append((event, node))
        self.placed = sorted(placed, key=lambda pair: self._place(*pair))
        for event, node in self.placed:
            self.by_node.setdefault(node, []).append(event)
        self._steps = {node: [e.step for e in events] for node, events in self.by_node.items()}

    def _place(self, event: SemanticEvent, node: Node) -> tuple[int, int, int, str]:
        place = self.case.view.flow.place.get(node.layer or "", 0)
        backward = node.signal is Signal.GRADIENT
        return event.step, list(Signal).index(node.signal), -place if backward else place, event.id

    # -- who may have led to it ------------------------------------------------------------------

    def trigger(self, event: SemanticEvent, node: Node) -> _Candidate | None:
        """Return the nearest earlier event on the way back through the graph; ties: the latest."""
        parents = self.case.graph.structure.parents
        seen, todo = {node}, deque([(node, 0, 0)])
        level, found = -1, list[_Candidate]()
        while todo and len(seen) <= NEAR:
            current, depth, steps = todo.popleft()
            if found and depth > level:
                break
            for parent, edge in parents(current):
                gap = steps + (edge is Edge.NEXT)
                if parent in seen or gap > self.window:
                    continue
                seen.add(parent)
                earlier = self._latest(parent, event.step - gap, event.step - self.window)
                if earlier is None:
                    todo.append((parent, depth + 1, gap))
                elif earlier.id != event.id:
                    level = depth
                    found.append(_Candidate(earlier, parent))
        return max(found, key=lambda c: (c.trigger.step, c.trigger.id), default=None)

    def _latest(self, node: Node, until: int, since: int) -> SemanticEvent | None:
        """Return the latest event of a node within [since, until]."""
        steps = self._steps.get(node, [])
        place = bisect_right(steps, until) - 1
        if place < 0 or steps[place] < since:
            return None
        return self.by_node[node][place]

    # -- beyond chance ---------------------------------------------------------------------------

    def chance(self, best: _Candidate, event: SemanticEvent, node: Node) -> float:
        """Return the probability that two events have nothing to do with one another.

        Negative: both held from the first recorded step on, so time says nothing.
        """
        view = self.case.view
        one, other = best.trigger.step, event.step
        row, later = view.row_at(one), view.row_at(other)
        if later <= 1:
            return -1.0
        first, second = self.figure(best.node, best.trigger), self.figure(node, event)
        if _breaks(first, row) and _breaks(second, later):
            return 0.0
        together = self._rank_chance(first, second, row, later)
        accident = self._accident(node, event, later)
        return min(2 * min(together, accident), 1.0)

    def figure(self, node: Node, event: SemanticEvent) -> Array:
        """Return the figure that shows an event at its node, `[T]`; logs of what has a scale."""
        key = node, str(event.to_state)
        if key not in self._series:
            self._series[key] = np.asarray(self._read(node, key[1]), dtype=np.float64)
        return self._series[key]

    def _read(self, node: Node, state: str) -> Array:
        case, view = self.case, self.case.view
        nothing = np.full(case.rows, np.nan)
        if node.signal is Signal.LOSS:
            known = dict(zip(view.curve.steps.tolist(), view.curve.values.tolist(), strict=True))
            values = np.array([known.get(step, np.nan) for step in view.steps.tolist()])
        elif node.signal is Signal.INPUT:
            size = case.inputs(InputStat.RMS)
            values = quiet(np.nanmax, size, axis=1) if size.size else nothing
        elif node.signal is Signal.OPTIMIZER:
            values = view.lr
        elif node.signal is Signal.ACTIVATION:
            column = view.flow.row.get(node.layer or "")
            if column is not None and state in SHARES:
                return case.activation(SHARES[state])[:, column]
            rms = case.activation(ActivationStat.RMS)
            values = nothing if column is None else rms[:, column]
        else:
            is_gradient = node.signal is Signal.GRADIENT
            stat = ParameterStat.GRAD_NORM if is_gradient else ParameterStat.UPDATE_RMS
            rows = [i for i, p in enumerate(view.run.parameters) if p.layer == node.layer]
            sizes = case.parameter(stat)[:, rows]
            values = quiet(np.nanmax, sizes, axis=1) if rows else nothing
        return _scaled(values)

    def _rank_chance(self, first: Array, second: Array, row: int, later: int) -> float:
        """Return the p-value of the rank correlation of two figures at the lag of two events.

        Spearman's coefficient of n independent pairs is nearly normal with deviation
        1 / sqrt(n - 1) (Kendall and Gibbons 1990); n is lowered by both figures' own lag-1
        correlation (Bartlett 1946), so two slow trends do not count as dependence.
        """
        lag = later - row
        start, stop = max(0, row - AROUND), min(len(first) - lag, row + AROUND + 1)
        one, two = first[start:stop], second[start + lag : stop + lag]
        known = np.isfinite(one) & np.isfinite(two)
        one, two = _ranks(one[known]), _ranks(two[known])
        if len(one) < 8 or np.ptp(one) == 0 or np.ptp(two) == 0:
            return 1.0
        rho = float(np.corrcoef(one, two)[0, 1])
        own = max(_lag_one(one) * _lag_one(two), 0.0)
        count = max(len(one) * (1 - own) / (1 + own), 3.0)
        return math.erfc(abs(rho) * math.sqrt(count - 1) / math.sqrt(2))

    def _accident(self, node: Node, event: SemanticEvent, later: int) -> float:
        """Return the probability that a row as rare as the consequence's falls into the window.

        The rate of such rows is estimated without the one at hand (Laplace's rule of succession).
        """
        key = node, str(event.to_state)
        if key not in self._rare:
            values = self.figure(node, event)
            usual, scale = median_mad(values)
            z = np.abs(values - usual) / max(float(scale), 0.05)
            broken = ~np.isfinite(values) & _broke(values)
            self._rare[key] = z, float(np.sum((np.nan_to_num(z) > RARE_Z) | broken))
        z, many = self._rare[key]
        near = z[later : later + 2]
        if not (np.nan_to_num(near) > RARE_Z).any() and not _breaks(
            self.figure(node, event), later
        ):
            return 1.0
        lasting = float(np.mean(np.nan_to_num(z[later:]) > RARE_Z)) > 0.5
        rate = (1.0 if lasting else max(many, 1.0)) / (len(z) + 2)
        return 1 - (1 - min(rate, 1.0)) ** (self.window + 1)


def _scaled(values: Array) -> Array:
    """Return logs of positive figures; Inf and what broke stay visible as Inf."""
    broken = np.isinf(values)
    return np.where(broken, np.inf, logs(values))


def _breaks(values: Array, row: int) -> bool:
    """Whether a figure that was finite before stops being so at a row."""
    before, now = values[max(0, row - 8) : row], values[row : row + 1]
    return bool(np.isfinite(before).any() and len(now) and not np.isfinite(now[0]))


def _broke(values: Array) -> NDArray[np.bool_]:
    """Return `[T]`: rows on which a figure stops being finite."""
    finite = np.isfinite(values)
    return np.asarray(np.concatenate([[False], finite[:-1] & ~finite[1:]]), dtype=np.bool_)


def _ranks(values: Array) -> Array:
    order = np.empty(len(values))
    order[np.argsort(values, kind="stable")] = np.arange(len(values))
    return order


def _lag_one(ranks: Array) -> float:
    """Return the correlation of ranks with themselves one row later."""
    return float(np.corrcoef(ranks[1:], ranks[:-1])[0, 1]) if len(ranks) > 3 else 0.0
