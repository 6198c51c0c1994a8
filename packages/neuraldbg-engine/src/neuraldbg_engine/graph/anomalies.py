# SPDX-License-Identifier: LicenseRef-Proprietary
"""Which nodes of the causal graph are anomalous, how clearly, since when, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.baseline import median_mad
from neuraldbg.reasoning.inputs import harmed_rows
from neuraldbg.reasoning.symptoms import departure_row, lr_leap
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.facts import ActivationStat, GradState, InputStat, ParameterStat
from neuraldbg.schema.vocabulary import EventType, Severity
from neuraldbg_engine.graph.nodes import DATA, LOSS, OPTIMIZER, Node, Signal
from neuraldbg_engine.timeline import Onset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView

    Array = NDArray[np.float64]
    Flags = NDArray[np.bool_]

GROWN = 10.0
"""Late over early figure of a layer from which it counts as grown, or its inverse as shrunk.
Heuristic: an order of magnitude, which weights and outputs of a run that learns rarely move by."""
FAR = 1000.0
"""The same ratio at grade 1."""
FADED = 1e-4
"""Gradient of a layer over the strongest one's, from the start, from which it vanishes in depth.
Heuristic: at such a share a layer makes one step where the head makes ten thousand."""
SILENT = 0.95
FLAT = 0.8
SHORT = 20


@dataclass(frozen=True)
class Anomaly:
    """What is wrong with one node."""

    node: Node
    grade: float
    """How clearly, 0 to 1."""
    onset: Onset
    state: str
    """One word: `nonfinite`, `dead`, `grown`, ..., or the state that an event entered."""
    event: SemanticEvent | None = None
    """The first event that shows it."""


EVENT_SIGNALS = {
    EventType.GRADIENT_HEALTH_TRANSITION: Signal.GRADIENT,
    EventType.ACTIVATION_REGIME_SHIFT: Signal.ACTIVATION,
    EventType.REPRESENTATION_COLLAPSE: Signal.ACTIVATION,
    EventType.OPTIMIZER_INSTABILITY: Signal.LOSS,
    EventType.OBJECTIVE_MISMATCH: Signal.LOSS,
    EventType.DATA_ANOMALY: Signal.INPUT,
    EventType.WIRING_FAULT: Signal.OPTIMIZER,
}
PHASE_SIGNALS = {
    "forward": Signal.ACTIVATION,
    "loss": Signal.LOSS,
    "backward": Signal.GRADIENT,
    "optimizer": Signal.PARAMETER,
}
LONELY = frozenset({Signal.INPUT, Signal.LOSS, Signal.OPTIMIZER})


def node_of(event: SemanticEvent) -> Node | None:
    """Return the node that an event speaks about; None where it speaks of no signal."""
    if event.event_type is EventType.NUMERICAL_ERROR:
        signal = PHASE_SIGNALS.get(str(event.evidence.get("phase", "")), Signal.ACTIVATION)
    elif event.event_type in EVENT_SIGNALS:
        signal = EVENT_SIGNALS[event.event_type]
    else:
        return None
    if signal is Signal.OPTIMIZER and event.layer is not None:
        signal = Signal.PARAMETER
    if signal in LONELY:
        return Node(signal)
    return Node(signal, event.layer) if event.layer is not None else LOSS


def anomalies(view: CaseView) -> dict[Node, Anomaly]:
    """Return the anomalous nodes of a run: what detectors told, and what the whole run shows.

    Of several anomalies of a node the earliest clear one stays, with the first event that shows
    the node.
    """
    found: dict[Node, Anomaly] = {}
    for one in (*_from_events(view), *_from_facts(view)):
        before = found.get(one.node)
        if before is None:
            found[one.node] = one
        elif _is_better(one, before):
            found[one.node] = replace(one, event=one.event or before.event)
    return found


def _is_better(one: Anomaly, other: Anomaly) -> bool:
    """Whether it says more: clearer by far, or as clear and earlier."""
    if one.grade < 0.5 <= other.grade:
        return False
    if other.grade < 0.5 <= one.grade:
        return True
    return (one.onset.best, -one.grade) < (other.onset.best, -other.grade)


def _from_events(view: CaseView) -> Iterator[Anomaly]:
    for event in view.trace.events:
        node = node_of(event)
        if node is None or event.severity is Severity.INFO:
            continue
        first = event.step_range[0] + 1
        onset = Onset.within(min(max(first, 0), event.step), event.step, event.step)
        yield Anomaly(node, event.confidence, onset, str(event.to_state), event)


def _from_facts(view: CaseView) -> Iterator[Anomaly]:
    if not len(view.steps):
        return
    yield from _of_loss(view)
    yield from _of_data(view)
    yield from _of_optimizer(view)
    yield from _of_outputs(view)
    yield from _of_gradients(view)
    yield from _of_weights(view)


def _at(view: CaseView, row: int) -> Onset:
    return Onset.within(int(view.steps[row]), int(view.trace.facts.stops[row]))


def _since(view: CaseView, flags: Flags, measured: Flags) -> Onset:
    """Return the onset of the first flagged row, from the last row measured before it on."""
    row = int(np.flatnonzero(flags)[0])
    known = np.flatnonzero(measured[:row])
    stop = int(view.trace.facts.stops[row])
    first = int(view.trace.facts.stops[known[-1]]) + 1 if len(known) else int(view.steps[0])
    return Onset.within(min(first, stop), stop)


def _of_loss(view: CaseView) -> Iterator[Anomaly]:
    curve = view.curve
    if curve.broke_at is not None:
        yield Anomaly(LOSS, 1.0, Onset.exact(curve.broke_at), "nonfinite")
    elif curve and curve.is_diverged and (row := departure_row(view)) is not None:
        yield Anomaly(LOSS, 0.8, _at(view, row), "diverging")
    elif curve and len(curve) >= SHORT and curve.is_stuck:
        yield Anomaly(LOSS, 0.6, Onset.exact(int(curve.steps[0])), "stuck")


def _of_data(view: CaseView) -> Iterator[Anomaly]:
    bad = np.nan_to_num(view.inputs(InputStat.NAN)) + np.nan_to_num(view.inputs(InputStat.INF))
    hit = (bad == 1.0).any(axis=1) & harmed_rows(view)
    if hit.any():
        yield Anomaly(DATA, 1.0, _at(view, int(np.flatnonzero(hit)[0])), "nonfinite")


def _of_optimizer(view: CaseView) -> Iterator[Anomaly]:
    leap = lr_leap(view)
    if leap is not None:
        yield Anomaly(OPTIMIZER, 1.0, _at(view, leap.row), "lr raised")
    lost = view.ledger("is_cleared_before_step") > 0
    if lost.mean() > 0.5:
        yield Anomaly(OPTIMIZER, 1.0, _at(view, int(np.flatnonzero(lost)[0])), "cleared too early")
    piled = view.ledger("is_cleared") < 0.5
    piled[:1] = False
    if piled.mean() > 0.5:
        yield Anomaly(OPTIMIZER, 1.0, _at(view, int(np.flatnonzero(piled)[0])), "not cleared")


def _first_bad(view: CaseView, signal: Signal, flags: Flags, state: str) -> Iterator[Anomaly]:
    """Yield one anomaly per layer with a flagged row; flags are exact to the row, `[T, L]`."""
    for column in np.flatnonzero(flags.any(axis=0)):
        row = int(np.argmax(flags[:, column]))
        yield Anomaly(Node(signal, view.run.layers[int(column)].path), 1.0, _at(view, row), state)


def _of_outputs(view: CaseView) -> Iterator[Anomaly]:
    bad = np.asarray(view.activation(ActivationStat.NONFINITE) > 0, dtype=np.bool_)
    yield from _first_bad(view, Signal.ACTIVATION, bad, "nonfinite")
    for stat, least, state in (
        (ActivationStat.SILENT_SHARE, SILENT, "dead"),
        (ActivationStat.FLAT_SHARE, FLAT, "saturated"),
    ):
        shares = view.activation(stat)
        late = view.late(shares)
        for column in np.flatnonzero(late >= least):
            known = np.asarray(np.isfinite(shares[:, column]), dtype=np.bool_)
            above = np.asarray(np.nan_to_num(shares[:, column]) >= least, dtype=np.bool_)
            layer = view.run.layers[int(column)].path
            node = Node(Signal.ACTIVATION, layer)
            yield Anomaly(node, float(late[column]), _since(view, above, known), state)
    names = [layer.path for layer in view.run.layers]
    yield from _moved(view, Signal.ACTIVATION, names, view.activation(ActivationStat.RMS))


def _moved(view: CaseView, signal: Signal, names: list[str], series: Array) -> Iterator[Anomaly]:
    """Yield what ended an order of magnitude above or below where it began, `[T, L]`.

    It began when the figure left its noise for good, at the latest when it had gone half its way.
    """
    if len(series) < SHORT:
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(np.where(series > 0, series, np.nan))
        logs = np.where(np.isfinite(logs), logs, np.nan)
    early = view.early(logs)
    size = view.late(logs) - early
    columns = np.flatnonzero(np.abs(size) > np.log(GROWN))
    if not len(columns):
        return
    gone = (logs[:, columns] - early[columns]) * np.sign(size[columns])
    _, noise = median_mad(np.diff(gone, axis=0))
    leaves = _for_good(gone > np.maximum(3 * noise, 0.1 * np.abs(size[columns])), gone)
    half = _for_good(gone > 0.5 * np.abs(size[columns]), gone)
    stops = view.trace.facts.stops
    for place, column in enumerate(columns):
        first, last = sorted((int(leaves[place]), int(half[place])))
        onset = Onset.within(int(view.steps[first]), int(stops[last]), int(view.steps[first]))
        share = (abs(float(size[column])) - np.log(GROWN)) / np.log(FAR / GROWN)
        state = "grown" if size[column] > 0 else "shrunk"
        node = Node(signal, names[int(column)])
        yield Anomaly(node, 0.3 + 0.6 * float(min(share, 1.0)), onset, state)


def _for_good(above: Flags, values: Array) -> NDArray[np.intp]:
    """Return the first row per column from which on nine in ten measured rows are flagged.

    The last row where there is none. `[T, C]` -> `[C]`.
    """
    known = np.isfinite(values)
    flagged = above & known
    hits = np.cumsum(flagged[::-1], axis=0)[::-1]
    count = np.maximum(np.cumsum(known[::-1], axis=0)[::-1], 1)
    lasting = flagged & (hits >= 0.9 * count)
    first = np.argmax(lasting, axis=0)
    return np.where(lasting.any(axis=0), first, len(values) - 1)


def layer_gradient(view: CaseView, paths: tuple[str, ...]) -> Array:
    """Return the gradient RMS of layers, the largest of their matrices, `[T, len(paths)]`."""
    rows = [view.flow.matrices[path] for path in paths]
    if not rows:
        return np.full((len(view.steps), 0), np.nan)
    firsts = np.cumsum([0, *map(len, rows)])[:-1]
    flat = view.gradient_rms[:, [row for group in rows for row in group]]
    return np.asarray(np.fmax.reduceat(flat, firsts, axis=1))


def _of_gradients(view: CaseView) -> Iterator[Anomaly]:
    owners = [p.layer for p in view.run.parameters]
    state = view.parameter(ParameterStat.GRAD_STATE)
    skipped = view.ledger("skipped") > 0
    bad = (state == GradState.NONFINITE) & ~skipped[:, None]
    for column in np.flatnonzero(bad.any(axis=0)):
        row = int(np.argmax(bad[:, column]))
        yield Anomaly(Node(Signal.GRADIENT, owners[column]), 1.0, _at(view, row), "nonfinite")
    paths = tuple(layer.path for layer in view.flow.weighted)
    rms = layer_gradient(view, paths)
    early = view.early(rms)
    if len(paths) > 2 and np.isfinite(early).any() and np.nanmax(early) > 0:
        share = early / np.nanmax(early)
        for column in np.flatnonzero(share < FADED):
            grade = (
                0.9 if share[column] == 0 else min(0.5 + np.log10(FADED / share[column]) / 4, 0.9)
            )
            node = Node(Signal.GRADIENT, paths[column])
            yield Anomaly(node, float(grade), Onset.exact(view.label(0)), "vanishing")
    yield from _moved(view, Signal.GRADIENT, list(paths), rms)


def _of_weights(view: CaseView) -> Iterator[Anomaly]:
    top = view.parameter(ParameterStat.WEIGHT_MAX)
    rms = view.parameter(ParameterStat.WEIGHT_RMS)
    owners = [p.layer for p in view.run.parameters]
    if not top.size:
        return
    broken = np.isinf(top) | (np.isnan(top) & ~np.isnan(rms) & np.isfinite(top).any(axis=0))
    for column in np.flatnonzero(broken.any(axis=0)):
        row = int(np.argmax(broken[:, column]))
        yield Anomaly(Node(Signal.PARAMETER, owners[column]), 1.0, _at(view, row), "nonfinite")
    ratio = view.update_ratio
    start = quiet(np.nanmedian, ratio[:6], axis=0)
    for index in np.flatnonzero(start > LARGE_STEP):
        layer = owners[int(view.matrix_rows[index])]
        grade = float(min(0.4 + np.log10(start[index] / LARGE_STEP), 0.9))
        node = Node(Signal.PARAMETER, layer)
        yield Anomaly(node, grade, Onset.exact(view.label(0)), "moved far")


LARGE_STEP = 0.1
"""Update over weight RMS of the first steps from which a layer is thrown about. Heuristic: a
hundred times what is usual (CS231n notes)."""
