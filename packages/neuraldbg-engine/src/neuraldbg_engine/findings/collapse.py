# SPDX-License-Identifier: LicenseRef-Proprietary
"""Diversity of outputs, codes, attention and routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.baseline import theil_sen
from neuraldbg.reasoning.causes.posterior_collapse import code_spread
from neuraldbg.reasoning.experts import idle, mixtures
from neuraldbg.reasoning.symptoms import is_own_target, output_rms
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.run import LayerInfo, LayerRole
from neuraldbg_engine.findings.case import largest
from neuraldbg_engine.findings.finding import Graded, both, finding, graded, log_ramp, ramp
from neuraldbg_engine.timeline import Onset

if TYPE_CHECKING:
    from neuraldbg_engine.findings.case import Case

CERTAIN = "softmax"


def _wide_outputs(case: Case) -> list[LayerInfo]:
    """Return output layers of two units and more, of a run with one model."""
    if len(case.view.run.models) > 1:
        return []
    return [x for x in case.view.flow.outputs if x.units != 1]


def _rows(case: Case, layers: list[LayerInfo]) -> list[int]:
    return [case.view.flow.row[x.path] for x in layers]


@finding(
    "collapse.outputs_alike", "Heuristic: mean cosine between samples of 0.95 to 0.995, 0.9 before"
)
def outputs_alike(case: Case) -> Graded | None:
    """Outputs of different samples come to point the same way."""
    layers = _wide_outputs(case)
    late = case.late("activation", ActivationStat.COSINE)[_rows(case, layers)]
    early = case.early("activation", ActivationStat.COSINE)[_rows(case, layers)]
    place, cosine = largest(late)
    if place < 0 or case.is_short:
        return None
    series = case.activation(ActivationStat.COSINE)[:, case.view.flow.row[layers[place].path]]
    return graded(
        both(ramp(cosine, 0.95, 0.995), ramp(float(early[place]), 0.99, 0.9)),
        f"outputs of {layers[place].path!r} have a mean cosine of {cosine:.3f}",
        layers[place].path,
        case.since(np.nan_to_num(series) > 0.95, ~np.isnan(series)),
        cosine=cosine,
    )


@finding(
    "collapse.outputs_shrink", "Heuristic: spread between samples at 0.3 to 0.03 of the early one"
)
def outputs_shrink(case: Case) -> Graded | None:
    """What tells outputs of different samples apart shrinks to a fraction."""
    layers = _wide_outputs(case)
    rows = _rows(case, layers)
    if not rows or case.is_short:
        return None
    spread = case.activation(ActivationStat.SPREAD)[:, rows]
    size = spread * case.activation(ActivationStat.RMS)[:, rows]
    early, late = case.view.early(size), case.view.late(size)
    left = late / np.where(early > 0, early, np.nan)
    if np.isnan(left).all():
        return None
    place = int(np.nanargmin(left))
    return graded(
        log_ramp(float(left[place]), 0.3, 0.03),
        f"outputs of {layers[place].path!r} vary by {float(left[place]):.2g} of what they did",
        layers[place].path,
        left=float(left[place]),
    )


@finding(
    "collapse.outputs_on_a_line",
    "participation ratio; Heuristic: below 2 to 1.2, of 4 units and more, half of the early one",
)
def outputs_on_a_line(case: Case) -> Graded | None:
    """All that varies between outputs comes to lie along one direction."""
    layers = [x for x in _wide_outputs(case) if x.units >= 4]
    ranks = case.late("activation", ActivationStat.RANK)[_rows(case, layers)]
    if not layers or np.isnan(ranks).all():
        return None
    place = int(np.nanargmin(ranks))
    rank = float(ranks[place])
    early = float(case.early("activation", ActivationStat.RANK)[_rows(case, layers)][place])
    return graded(
        both(ramp(rank, 2.0, 1.2), ramp(rank / max(early, 1.0), 0.8, 0.5)),
        f"outputs of {layers[place].path!r} have {rank:.2f} directions",
        layers[place].path,
        directions=rank,
    )


@finding(
    "collapse.inner_rank", "participation ratio; Heuristic: a tenth to a fiftieth of the early one"
)
def inner_rank(case: Case) -> Graded | None:
    """A layer inside loses most of its directions in the course of the run."""
    rows = [case.view.flow.row[p] for p in case.chain if not case.view.flow.info[p].is_output]
    if not rows or case.is_short:
        return None
    early = case.early("activation", ActivationStat.RANK)[rows]
    late = case.late("activation", ActivationStat.RANK)[rows]
    left = np.where(early > 3, late / np.where(early > 0, early, np.nan), np.nan)
    if np.isnan(left).all():
        return None
    place = int(np.nanargmin(left))
    path = case.view.run.layers[rows[place]].path
    return graded(
        log_ramp(float(left[place]), 0.3, 0.1),
        f"{path!r} keeps {float(left[place]):.2g} of its directions",
        path,
        left=float(left[place]),
        directions=float(late[place]),
    )


@finding(
    "collapse.spread_falls_with_depth", "Li et al. 2018, oversmoothing; Heuristic: to 0.3 to 0.05"
)
def spread_falls_with_depth(case: Case) -> Graded | None:
    """From layer to layer samples (or nodes) become more alike, from the start."""
    paths = case.chain
    if len(paths) < 4:
        return None
    rows = [case.view.flow.row[p] for p in paths]
    spread = case.early("activation", ActivationStat.SPREAD)[rows]
    known = np.flatnonzero(np.isfinite(spread) & (spread > 0))
    if len(known) < 4:
        return None
    slope, _ = theil_sen(known, np.log(spread[known]))
    left = float(spread[known][-1] / spread[known].max())
    low = np.flatnonzero(spread[known] < 0.3)
    place = int(known[low[0]]) if len(low) else int(known[-1])
    return graded(
        both(log_ramp(left, 0.3, 0.05), ramp(slope, -0.05, -0.2)),
        f"over depth samples keep {left:.2g} of what tells them apart",
        paths[place],
        case.start,
        left=left,
        log_slope_per_layer=slope,
    )


def _softmaxes(case: Case) -> list[LayerInfo]:
    words = ("att", "softmax", "weights")
    return [
        x
        for x in case.view.flow.executed
        if x.activation == CERTAIN
        and not x.is_output
        and (x.role is LayerRole.ACTIVATION or any(w in x.path.lower() for w in words))
    ]


@finding(
    "collapse.softmax_one_hot",
    "Zhai et al. 2023, attention entropy; Heuristic: largest weight 0.9 to 0.99",
)
def softmax_one_hot(case: Case) -> Graded | None:
    """Rows of a softmax inside the model are one-hot: it passes no gradient."""
    layers = _softmaxes(case)
    place, top = largest(case.late("activation", ActivationStat.ROW_MAX)[_rows(case, layers)])
    if place < 0:
        return None
    series = case.activation(ActivationStat.ROW_MAX)[:, case.view.flow.row[layers[place].path]]
    return graded(
        ramp(top, 0.9, 0.99),
        f"rows of {layers[place].path!r} have a largest weight of {top:.3f}",
        layers[place].path,
        case.since(np.nan_to_num(series) > 0.9, ~np.isnan(series)),
        row_max=top,
    )


@finding(
    "collapse.attention_sharp", "Zhai et al. 2023; Heuristic: largest weight 0.9 to 0.99, twice"
)
def attention_sharp(case: Case) -> Graded | None:
    """Audited attention has one-hot rows at the end: it passes no gradient."""
    notes = case.view.observations.get("attention", [])
    if not notes:
        return None
    worst: tuple[float, str | None, int, int] = (0.0, None, 0, 0)
    for layer in sorted({note.layer or "" for note in notes}):
        looks = [n for n in notes if (n.layer or "") == layer and n.figures.get("keys", 0) > 3]
        if len(looks) < 3:
            continue
        sharp = [float(n.figures.get("certain", 0.0)) for n in looks]
        first = next((i for i in range(len(looks)) if min(sharp[i:]) > 0.9), len(looks) - 1)
        since = looks[first - 1].step + 1 if first else looks[0].step
        if min(sharp[-2:]) > worst[0]:
            worst = min(sharp[-2:]), layer, since, looks[first].step
    top, where, since, until = worst
    return graded(
        ramp(top, 0.9, 0.99),
        f"rows of {where!r} have a largest weight of {top:.3f}",
        where,
        Onset.within(min(since, until), until),
        largest_weight=top,
    )


QUERIES = ("query", "key", "to_q", "to_k", "q_proj", "k_proj", "qkv", "to_qk", "wq", "wk", "c_attn")


@finding(
    "collapse.queries_grow",
    "Dehghani et al. 2023, QK norms; Heuristic: RMS 3 to 12, 2 to 6 times early",
)
def queries_grow(case: Case) -> Graded | None:
    """Queries or keys grow until attention logits are in the hundreds."""
    layers = [
        x
        for x in case.view.flow.executed
        if any(x.path.lower().split(".")[-1].startswith(word) for word in QUERIES)
    ]
    rows = _rows(case, layers)
    place, late = largest(case.late("activation", ActivationStat.RMS)[rows])
    if place < 0:
        return None
    times = late / max(float(case.early("activation", ActivationStat.RMS)[rows[place]]), 1e-12)
    return graded(
        both(log_ramp(late, 3.0, 12.0), log_ramp(times, 2.0, 6.0)),
        f"{layers[place].path!r} grew to RMS {late:.3g}",
        layers[place].path,
        rms=late,
        ratio=times,
    )


@finding(
    "collapse.code_is_prior",
    "a VAE's prior has deviation 1; Heuristic: codes that vary by 0.3 to 0.1",
)
def code_is_prior(case: Case) -> Graded | None:
    """A code that the loss and a decoder read hardly varies, next to the noise added to it."""
    flow = case.view.flow
    found: tuple[float, str] | None = None
    for layer in flow.weighted:
        readers = [c for c in flow.children(layer.path) if c in flow.matrices]
        if not layer.is_output or layer.units < 2 or not readers:
            continue
        spread = float(case.view.late(code_spread(case.view, layer.path)))
        read = case.late("activation", ActivationStat.INPUT_RMS)[[flow.row[r] for r in readers]]
        noisy = float(np.nanmax(read, initial=0.0)) > 3 * spread
        if np.isfinite(spread) and noisy and (found is None or spread < found[0]):
            found = spread, layer.path
    if found is None or case.rows < 50:
        return None
    series = code_spread(case.view, found[1])
    return graded(
        log_ramp(found[0], 0.3, 0.1),
        f"the code of {found[1]!r} varies by {found[0]:.2g} between samples",
        found[1],
        case.since(np.nan_to_num(series, nan=1.0) < 0.3, ~np.isnan(series)),
        spread=found[0],
    )


@finding(
    "collapse.experts_starve", "Shazeer et al. 2017; Heuristic: 30 to 70 % of sibling experts idle"
)
def experts_starve(case: Case) -> Graded | None:
    """Experts that stand in parallel are hardly called, or get no gradient."""
    groups = mixtures(case.view, 3)
    if not groups or case.rows < 40:
        return None
    shares = [float(idle(case.view, mixture.members)[-1].mean()) for mixture in groups]
    share, worst = max(zip(shares, groups, strict=True), key=lambda one: one[0])
    count = len(worst.members)
    return graded(
        ramp(share, 0.25, 0.7),
        f"{share:.0%} of the {count} experts of {worst.name!r} are idle",
        worst.owner or None,
        case.start,
        share=share,
        experts=count,
    )


@finding(
    "collapse.policy_certain", "Heuristic: logits of RMS 6 to 15 within the first fifth of the run"
)
def policy_certain(case: Case) -> Graded | None:
    """A policy is certain of its choices after few updates."""
    if "log_probability" not in case.view.objective.names:
        return None
    layers = [x for x in case.view.flow.outputs if x.units >= 2]
    soon = case.activation(ActivationStat.RMS)[: max(case.rows // 5, 5), _rows(case, layers)]
    tops = np.array([largest(soon[:, i])[1] for i in range(len(layers))])
    place, top = largest(tops)
    if place < 0:
        return None
    return graded(
        log_ramp(top, 6.0, 15.0),
        f"logits of {layers[place].path!r} reach RMS {top:.3g} at once",
        layers[place].path,
        case.start,
        rms=top,
    )


@finding(
    "collapse.outputs_chase_targets",
    "van Hasselt et al. 2018, deadly triad; Heuristic: 4 to 20 times",
)
def outputs_chase_targets(case: Case) -> Graded | None:
    """Outputs grow without end under targets that the trained network computes itself."""
    if case.is_short or not case.view.curve:
        return None
    if not is_own_target(case.view):
        return graded(0.0)
    outputs = output_rms(case.view)
    first, last = float(case.view.early(outputs)), float(case.view.late(outputs))
    times = last / first if first > 0 else float("nan")
    grown = case.view.curve.end / max(abs(case.view.curve.start), 1e-12)
    return graded(
        both(log_ramp(times, 4.0, 20.0), log_ramp(max(grown, 1e-9), 1.2, 3.0)),
        f"outputs grew to {times:.3g} times their early size",
        onset=case.start,
        ratio=times,
    )
