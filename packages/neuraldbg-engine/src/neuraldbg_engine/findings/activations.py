# SPDX-License-Identifier: LicenseRef-Proprietary
"""Outputs of layers: dead, saturated, growing over depth or over time, not finite."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.baseline import theil_sen
from neuraldbg.reasoning.symptoms import BOUNDED, RECTIFIERS, Dead, dead_layers
from neuraldbg.reasoning.view import quiet
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.run import LayerInfo, LayerRole
from neuraldbg_engine.findings.case import largest, middle, ratio
from neuraldbg_engine.findings.finding import Graded, both, finding, graded, log_ramp, ramp

if TYPE_CHECKING:
    from collections.abc import Iterable

    from neuraldbg_engine.findings.case import Case

DEEP = 4
"""Layers below which a slope over depth means little."""


def _rows(case: Case, layers: Iterable[LayerInfo]) -> list[int]:
    return [case.view.flow.row[layer.path] for layer in layers]


def _rectifying(case: Case) -> list[LayerInfo]:
    return [x for x in case.view.flow.executed if x.activation in RECTIFIERS]


def _bounded(case: Case) -> list[LayerInfo]:
    """Return layers with a bounded activation between others, recurrent ones left out."""
    return [
        x
        for x in case.view.flow.executed
        if x.activation in BOUNDED and x.role is not LayerRole.RECURRENT and not x.is_output
    ]


def _first(case: Case, dead: list[Dead]) -> Dead:
    """Return the dead layer that no other dead one feeds: where it began."""
    paths = case.view.flow.frontier({one.layer.path for one in dead})
    return next(one for one in dead if one.layer.path == paths[0])


@finding("activations.dead", "core's symptom; Heuristic: 80 to 95 % of the units silent at the end")
def dead(case: Case) -> Graded | None:
    """A rectifying layer ended with (nearly) all of its units silent."""
    if not case.rows or not _rectifying(case):
        return None
    found = dead_layers(case.view, 0.8)
    if not found:
        return graded(0.0)
    first = _first(case, found)
    return graded(
        ramp(first.share, 0.75, 0.95),
        f"{first.share:.0%} of the units of {first.layer.path!r} are silent",
        first.layer.path,
        case.at(first.row),
        silent_share=first.share,
        layers=len(found),
    )


@finding("activations.died_later", "core's symptom; Heuristic: after the second step")
def died_later(case: Case) -> Graded | None:
    """Units were alive at first and died in the course of the run."""
    if not case.rows or not _rectifying(case):
        return None
    found = [one for one in dead_layers(case.view, 0.8) if not one.is_from_start]
    if not found:
        return graded(0.0)
    first = min(found, key=lambda one: (one.row, case.view.flow.place[one.layer.path]))
    return graded(
        ramp(first.share, 0.75, 0.95),
        f"the units of {first.layer.path!r} died at step {case.view.label(first.row)}",
        first.layer.path,
        case.at(first.row),
        silent_share=first.share,
    )


@finding("activations.dead_at_start", "core's symptom: before the second step")
def dead_at_start(case: Case) -> Graded | None:
    """Units were silent from the very first steps on: initialisation or input did it."""
    if not case.rows or not _rectifying(case):
        return None
    found = [one for one in dead_layers(case.view, 0.8) if one.is_from_start]
    if not found:
        return graded(0.0)
    first = _first(case, found)
    return graded(
        ramp(first.share, 0.75, 0.95),
        f"{first.share:.0%} of the units of {first.layer.path!r} never fired",
        first.layer.path,
        case.start,
        silent_share=first.share,
    )


@finding(
    "activations.sparse", "rectifiers are sparse by design; Heuristic: 60 to 90 % silent units"
)
def sparse(case: Case) -> Graded | None:
    """In the median rectifying layer most units are silent at the end."""
    rows = _rows(case, _rectifying(case))
    share = middle(case.late("activation", ActivationStat.SILENT_SHARE)[rows]) if rows else np.nan
    return graded(
        ramp(share, 0.6, 0.9), f"the median layer has {share:.0%} silent units", silent_share=share
    )


@finding(
    "activations.saturated", "derivative below 1 % of its peak; Heuristic: 40 to 90 % of outputs"
)
def saturated(case: Case) -> Graded | None:
    """A bounded activation ended with most of its outputs where its derivative is near zero."""
    layers = _bounded(case)
    place, share = largest(case.late("activation", ActivationStat.FLAT_SHARE)[_rows(case, layers)])
    if place < 0:
        return None
    flat = case.activation(ActivationStat.FLAT_SHARE)[:, case.view.flow.row[layers[place].path]]
    return graded(
        ramp(share, 0.4, 0.9),
        f"{share:.0%} of the outputs of {layers[place].path!r} are saturated",
        layers[place].path,
        case.since(np.nan_to_num(flat) > 0.4, ~np.isnan(flat)),
        flat_share=share,
    )


@finding(
    "activations.saturated_at_start", "derivative below 1 % of its peak; Heuristic: 40 to 90 %"
)
def saturated_at_start(case: Case) -> Graded | None:
    """A bounded activation is saturated from the first steps on."""
    layers = _bounded(case)
    shares = case.early("activation", ActivationStat.FLAT_SHARE)[_rows(case, layers)]
    place, share = largest(shares)
    if place < 0:
        return None
    first = int(np.flatnonzero(shares > 0.8 * share)[0]) if share > 0 else place
    return graded(
        ramp(share, 0.4, 0.9),
        f"{shares[first]:.0%} of the outputs of {layers[first].path!r} start saturated",
        layers[first].path,
        case.start,
        flat_share=share,
    )


@finding(
    "activations.saturation_grows", "Heuristic: the flat share rises by 0.3 to 0.7 over the run"
)
def saturation_grows(case: Case) -> Graded | None:
    """A bounded activation that was not flat at first becomes flat."""
    layers = _bounded(case)
    rows = _rows(case, layers)
    rise = (
        case.late("activation", ActivationStat.FLAT_SHARE)[rows]
        - case.early("activation", ActivationStat.FLAT_SHARE)[rows]
    )
    place, gain = largest(rise)
    if place < 0 or case.is_short:
        return None
    change = case.change(
        case.activation(ActivationStat.FLAT_SHARE)[:, rows[place]], direction=1, floor=0.02
    )
    return graded(
        ramp(gain, 0.3, 0.7),
        f"the flat share of {layers[place].path!r} rose by {gain:.2f}",
        layers[place].path,
        change.onset if change else None,
        gain=gain,
    )


@finding(
    "activations.bounded_in_series", "Glorot and Bengio 2010; Heuristic: 3 to 6", is_context=True
)
def bounded_in_series(case: Case) -> Graded | None:
    """Many layers with a bounded activation (sigmoid, tanh) stand in series."""
    count = len({x.path for x in _bounded(case)})
    if not case.view.flow.executed:
        return None
    return graded(ramp(count, 2, 6), f"{count} layers with a bounded activation", layers=count)


def _depth_slope(case: Case, part: str) -> tuple[float, float, str, str] | None:
    """Return (log RMS per weight layer, last / first, first, last layer) of the chain's outputs."""
    flow = case.view.flow
    paths = [path for path in case.chain if not flow.info[path].is_output]
    if len(paths) < DEEP:
        return None
    pick = case.early if part == "early" else case.late
    rms = pick("activation", ActivationStat.RMS)[[flow.row[path] for path in paths]]
    known = np.isfinite(rms) & (rms > 0)
    if known.sum() < DEEP:
        return None
    slope, _ = theil_sen(np.flatnonzero(known), np.log(rms[known]))
    return slope, float(rms[known][-1] / rms[known][0]), paths[0], paths[-1]


@finding(
    "activations.grow_with_depth",
    "He et al. 2015 keep the variance; Heuristic: 10 to 1000 times over depth, slope 0.1 to 0.5",
)
def grow_with_depth(case: Case) -> Graded | None:
    """At the start outputs grow by orders of magnitude from layer to layer."""
    found = _depth_slope(case, "early")
    if found is None:
        return None
    slope, times, first, _ = found
    return graded(
        both(log_ramp(times, 10.0, 1000.0), ramp(slope, 0.1, 0.5)),
        f"outputs grow to {times:.3g} times over depth",
        first,
        case.start,
        last_over_first=times,
        log_slope_per_layer=slope,
    )


@finding(
    "activations.shrink_with_depth",
    "He et al. 2015 keep the variance; Heuristic: to 0.1 to 1e-3 over depth, slope -0.1 to -0.5",
)
def shrink_with_depth(case: Case) -> Graded | None:
    """At the start outputs shrink by orders of magnitude from layer to layer."""
    found = _depth_slope(case, "early")
    if found is None:
        return None
    slope, times, first, _ = found
    return graded(
        both(log_ramp(times, 0.1, 1e-3), ramp(slope, -0.1, -0.5)),
        f"outputs shrink to {times:.2g} over depth",
        first,
        case.start,
        last_over_first=times,
        log_slope_per_layer=slope,
    )


@finding("activations.grow", "Heuristic: a layer's output at 30 to 1000 times its early size")
def grow(case: Case) -> Graded | None:
    """A layer's outputs grow by orders of magnitude in the course of the run."""
    rms = case.activation(ActivationStat.RMS)
    if case.is_short or not rms.size:
        return None
    times = ratio(
        case.late("activation", ActivationStat.RMS), case.early("activation", ActivationStat.RMS)
    )
    place, top = largest(times)
    if place < 0:
        return None
    path = case.view.run.layers[place].path
    change = case.change(case.log_rms[:, place], direction=1, floor=0.1)
    return graded(
        log_ramp(top, 30.0, 1000.0),
        f"the outputs of {path!r} grew to {top:.3g} times their size",
        path,
        change.onset if change else None,
        ratio=top,
    )


@finding("activations.shrink", "Heuristic: a layer's output at 1e-2 to 1e-4 of its early size")
def shrink(case: Case) -> Graded | None:
    """A layer's outputs shrink to (nearly) nothing in the course of the run."""
    rms = case.activation(ActivationStat.RMS)
    if case.is_short or not rms.size:
        return None
    times = ratio(
        case.late("activation", ActivationStat.RMS), case.early("activation", ActivationStat.RMS)
    )
    place, top = largest(-times)
    if place < 0:
        return None
    path = case.view.run.layers[place].path
    change = case.change(case.log_rms[:, place], direction=-1, floor=0.1)
    return graded(
        log_ramp(-top, 1e-2, 1e-4),
        f"the outputs of {path!r} shrank to {-top:.2g} of their size",
        path,
        change.onset if change else None,
        ratio=-top,
    )


@finding("activations.huge", "standardised layers stand at order 1; Heuristic: RMS of 100 to 1e4")
def huge(case: Case) -> Graded | None:
    """A layer's outputs are orders above 1 in the first steps, the model's own output left out."""
    layers = [x for x in case.view.flow.executed if not x.is_output]
    place, top = largest(case.early("activation", ActivationStat.RMS)[_rows(case, layers)])
    if place < 0:
        return None
    return graded(
        log_ramp(top, 100.0, 1e4),
        f"the outputs of {layers[place].path!r} have RMS {top:.3g}",
        layers[place].path,
        case.start,
        rms=top,
    )


@finding(
    "activations.output_huge",
    "Heuristic: logits of 10 to 100 are certain before anything is learned",
)
def output_huge(case: Case) -> Graded | None:
    """The model's scores are far from 0 before the first updates, under a classification."""
    if not case.view.objective.is_classification:
        return None
    layers = case.view.flow.outputs
    place, top = largest(case.early("activation", ActivationStat.RMS)[_rows(case, layers)])
    if place < 0:
        return None
    return graded(
        log_ramp(top, 10.0, 100.0),
        f"the scores of {layers[place].path!r} start at RMS {top:.3g}",
        layers[place].path,
        case.start,
        rms=top,
    )


@finding(
    "activations.residual_grows", "Heuristic: the residual stream grows 5 to 50 times over depth"
)
def residual_grows(case: Case) -> Graded | None:
    """Layers on a residual stream see larger and larger inputs with depth."""
    layers = [x for x in case.view.flow.executed if x.has_residual]
    if len(layers) < DEEP:
        return None
    incoming = case.early("activation", ActivationStat.INPUT_RMS)[_rows(case, layers)]
    known = np.flatnonzero(np.isfinite(incoming) & (incoming > 0))
    if len(known) < DEEP:
        return None
    slope, _ = theil_sen(known, np.log(incoming[known]))
    times = float(np.exp(slope * (known[-1] - known[0])))
    return graded(
        log_ramp(times, 5.0, 50.0),
        f"over depth the residual stream grows to {times:.3g} times its size",
        layers[int(known[0])].path,
        case.start,
        ratio=times,
    )


@finding("activations.nonfinite", "definition; Heuristic: one step counts half")
def nonfinite(case: Case) -> Graded | None:
    """A layer's output was NaN or Inf."""
    flags = case.activation(ActivationStat.NONFINITE)
    if not flags.size or np.isnan(flags).all():
        return None
    bad = np.nan_to_num(flags) > 0
    rows = np.flatnonzero(bad.any(axis=1))
    if not len(rows):
        return graded(0.0)
    paths = [case.view.run.layers[int(i)].path for i in np.flatnonzero(bad[rows[0]])]
    layer = min(paths, key=lambda path: case.view.flow.place.get(path, 0))
    return graded(
        0.5 if len(rows) == 1 else 1.0,
        f"the output of {layer!r} is not finite at step {case.view.label(int(rows[0]))}",
        layer,
        case.at(int(rows[0])),
        steps=len(rows),
    )


@finding(
    "activations.leap", "change point of the log RMS; Heuristic: 3 to 30 times at once, odds of e^5"
)
def leap(case: Case) -> Graded | None:
    """From one step to the next a layer's outputs stand at a multiple of what they were."""
    rms = case.log_rms
    if case.is_short or not rms.size:
        return None
    known = np.asarray(np.isfinite(rms).any(axis=1), dtype=np.bool_)
    series = rms[known]
    if len(series) < 12:
        return None
    place, _ = largest(quiet(np.nanmax, np.abs(np.diff(series, axis=0)), axis=0))
    change = case.change(rms[:, place], floor=0.1)
    if change is None:
        return graded(0.0)
    path = case.view.run.layers[place].path
    row = case.view.row_at(change.onset.best)
    first, last = max(0, int(known[:row].sum()) - 1), int(known[: row + 2].sum()) + 1
    near = rms[known, place][first:last]
    jump = float(np.exp(np.ptp(near))) if len(near) else 1.0
    lasting = float(np.exp(abs(change.after - change.before)))
    times = min(jump, lasting)
    return graded(
        both(log_ramp(times, 3.0, 30.0), ramp(change.evidence, 5, 25)),
        f"at step {change.onset.best} the outputs of {path!r} change by a factor of {times:.3g}",
        path,
        change.onset,
        ratio=times,
        log_odds=change.evidence,
    )
