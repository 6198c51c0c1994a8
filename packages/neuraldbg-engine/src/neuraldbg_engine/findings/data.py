# SPDX-License-Identifier: LicenseRef-Proprietary
"""What enters the model: NaN, Inf, scale, offset, outliers, shifts, constants."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.inputs import departures, harmed_rows
from neuraldbg.schema.facts import ActivationStat, InputStat
from neuraldbg_engine.findings.case import largest, logs
from neuraldbg_engine.findings.finding import Graded, both, finding, graded, log_ramp, ramp

if TYPE_CHECKING:
    from neuraldbg.reasoning.inputs import Departure
    from neuraldbg_engine.findings.case import Case


def _floats(case: Case) -> list[int]:
    """Return the columns of inputs that hold floating-point numbers."""
    return [i for i, x in enumerate(case.view.run.inputs) if "float" in x.dtype]


def _broken(case: Case, stat: InputStat, word: str) -> Graded | None:
    """Grade by whether a batch held NaN or Inf, and whether it did harm on the same step."""
    flags = case.inputs(stat)
    if not flags.size or np.isnan(flags).all():
        return None
    hit = (np.nan_to_num(flags) == 1.0).any(axis=1)
    if not hit.any():
        return graded(0.0)
    harmed = hit & harmed_rows(case.view)
    rows = np.flatnonzero(harmed if harmed.any() else hit)
    usual = float(hit.mean()) > 0.5 and not harmed.any()
    row = int(rows[0])
    name = case.view.run.inputs[int(np.flatnonzero(np.nan_to_num(flags[row]) == 1.0)[0])].name
    return graded(
        1.0 if harmed.any() else (0.05 if usual else 0.25),
        f"input {name} holds {word} at step {case.view.label(row)}",
        onset=case.at(row),
        steps=int(hit.sum()),
        harmed=int(harmed.sum()),
    )


@finding(
    "data.nan", "definition; Heuristic: where nothing else broke on that step, the model handles it"
)
def nan(case: Case) -> Graded | None:
    """A batch held NaN."""
    return _broken(case, InputStat.NAN, "NaN")


@finding(
    "data.inf", "definition; Heuristic: where nothing else broke on that step, the model handles it"
)
def inf(case: Case) -> Graded | None:
    """A batch held Inf."""
    return _broken(case, InputStat.INF, "Inf")


def _scale(case: Case) -> tuple[float, str] | None:
    """Return (RMS farthest from 1 that an entry layer receives, that layer)."""
    flow = case.view.flow
    paths = [x.path for x in flow.entries]
    if flow.is_input_normalized or not paths or not case.rows:
        return None
    incoming = case.early("activation", ActivationStat.INPUT_RMS)[[flow.row[p] for p in paths]]
    far = np.abs(logs(incoming))
    place, _ = largest(far)
    return (float(incoming[place]), paths[place]) if place >= 0 else None


@finding("data.large", "standardised inputs have RMS 1 (LeCun et al. 1998); Heuristic: 4 to 40")
def large(case: Case) -> Graded | None:
    """Raw values far above 1 enter the first weight layer."""
    found = _scale(case)
    if found is None:
        return None
    return graded(
        log_ramp(found[0], 4.0, 40.0),
        f"{found[1]!r} receives values of RMS {found[0]:.3g}",
        found[1],
        case.start,
        rms=found[0],
    )


@finding(
    "data.small", "standardised inputs have RMS 1 (LeCun et al. 1998); Heuristic: 0.05 to 0.005"
)
def small(case: Case) -> Graded | None:
    """Values far below 1 enter the first weight layer."""
    found = _scale(case)
    if found is None:
        return None
    return graded(
        log_ramp(found[0], 0.05, 0.005),
        f"{found[1]!r} receives values of RMS {found[0]:.2g}",
        found[1],
        case.start,
        rms=found[0],
    )


@finding("data.offset", "LeCun et al. 1998, section 4.3; Heuristic: mean over deviation of 3 to 30")
def offset(case: Case) -> Graded | None:
    """Inputs are far from zero compared with how much they vary."""
    columns = _floats(case)
    if not columns or not case.rows or case.view.flow.is_input_normalized:
        return None
    mean = np.abs(case.early("inputs", InputStat.MEAN)[columns])
    rms = case.early("inputs", InputStat.RMS)[columns]
    spread = np.sqrt(np.maximum(rms**2 - mean**2, 1e-12 * rms**2))
    place, times = largest(np.where(spread > 0, mean / np.where(spread > 0, spread, 1), np.nan))
    if place < 0:
        return None
    return graded(
        log_ramp(times, 3.0, 30.0),
        f"the mean of {case.view.run.inputs[columns[place]].name} is {times:.3g} deviations from 0",
        onset=case.start,
        mean_over_deviation=times,
    )


@finding("data.uneven_features", "LeCun et al. 1998; Heuristic: deviations 100 to 1e4 times apart")
def uneven_features(case: Case) -> Graded | None:
    """Features of an input live on scales that are orders apart."""
    columns = _floats(case)
    if not columns or not case.rows or case.view.flow.is_input_normalized:
        return None
    place, times = largest(case.early("inputs", InputStat.FEATURE_SPREAD)[columns])
    if place < 0:
        return None
    return graded(
        log_ramp(times, 100.0, 1e4),
        f"feature scales of {case.view.run.inputs[columns[place]].name} are {times:.3g} apart",
        onset=case.start,
        largest_over_smallest=times,
    )


@finding(
    "data.constant_features", "definition: zero variance; Heuristic: any counts half, half all"
)
def constant_features(case: Case) -> Graded | None:
    """Some features never vary within a batch."""
    columns = _floats(case)
    if not columns or not case.rows:
        return None
    place, share = largest(case.early("inputs", InputStat.CONSTANT_SHARE)[columns])
    if place < 0:
        return None
    return graded(
        0.3 + 0.7 * ramp(share, 0.0, 0.5) if share > 0 else 0.0,
        f"{share:.0%} of the features of {case.view.run.inputs[columns[place]].name} are constant",
        onset=case.start,
        share=share,
    )


@finding("data.samples_alike", "Heuristic: samples differ by 1e-2 to 1e-4 of their size")
def samples_alike(case: Case) -> Graded | None:
    """All samples of a batch look the same to the model, in all of its inputs."""
    columns = _floats(case)
    if not columns or len(columns) < len(case.view.run.inputs) or not case.rows:
        return None
    if not float(np.nanmedian(case.view.ledger("batch_size"))) > 1:
        return None
    spread = case.late("inputs", InputStat.SAMPLE_SPREAD)[columns]
    if np.isnan(spread).all():
        return None
    most = float(np.nanmax(spread))
    return graded(
        log_ramp(most, 1e-2, 1e-4),
        f"samples differ by {most:.2g} of their size",
        onset=case.start,
        sample_spread=most,
    )


def _departure(case: Case, *, is_lasting: bool) -> Departure | None:
    found = [d for d in departures(case.view) if d.is_lasting is is_lasting and d.row >= 2]
    return found[0] if found else None


def _harm(case: Case, row: int) -> float:
    """Return the highest of the next losses over the level before; 1 where unknown."""
    curve = case.view.curve
    if not curve or curve.is_signed:
        return 1.0
    index = int(np.searchsorted(curve.steps, case.view.label(row)))
    before = curve.level(index - 15, index)
    after = curve.values[index : index + 4]
    if not len(after) or not before > 0:
        return 1.0
    top = float(np.max(np.where(np.isfinite(after), after, np.inf)))
    return min(top / before, 1e9)


@finding(
    "data.shift", "core's band of earlier batches (robust z of 8, lasting); Heuristic: z 8 to 24"
)
def shift(case: Case) -> Graded | None:
    """From some step on, for good, batches leave the band of all batches before."""
    if case.rows < 10 or not _floats(case):
        return None
    found = _departure(case, is_lasting=True)
    if found is None:
        return graded(0.0)
    values = case.inputs(found.stat)[:, found.column]
    change = case.change(values, floor=1e-9)
    step = case.view.label(found.row)
    near = change is not None and abs(change.onset.best - step) <= max(8, case.rows // 20)
    return graded(
        ramp(abs(found.z), 8, 24),
        f"{found.stat.name.lower()} of an input went from {found.before:.3g} to {found.after:.3g}",
        onset=change.onset if change is not None and near else case.at(found.row),
        robust_z=abs(found.z),
        is_drift=int(found.is_drift),
    )


@finding("data.shift_hurts", "as data.shift; Heuristic: the loss rises to 1.2 to 2 times its level")
def shift_hurts(case: Case) -> Graded | None:
    """The inputs shifted for good, and the loss rose with them."""
    if case.rows < 10 or not _floats(case):
        return None
    found = _departure(case, is_lasting=True)
    if found is None:
        return graded(0.0)
    times = max(_harm(case, found.row), _level_harm(case, found.row))
    return graded(
        both(ramp(abs(found.z), 8, 24), log_ramp(times, 1.2, 2.0)),
        f"with the shift of step {case.view.label(found.row)} the loss rose to {times:.3g} times",
        onset=case.at(found.row),
        loss_ratio=times,
    )


def _level_harm(case: Case, row: int) -> float:
    """Return the loss's level at the end over that before a row."""
    curve = case.view.curve
    if not curve or curve.is_signed:
        return 1.0
    index = int(np.searchsorted(curve.steps, case.view.label(row)))
    before = curve.level(index - 15, index)
    return min(curve.end / before, 1e9) if before > 0 and np.isfinite(curve.end) else 1.0


@finding("data.outlier", "core's band of earlier batches (robust z of 8); Heuristic: z 10 to 100")
def outlier(case: Case) -> Graded | None:
    """A lone batch is far outside the band of all others."""
    if case.rows < 10 or not _floats(case):
        return None
    found = _departure(case, is_lasting=False)
    if found is None:
        return graded(0.0)
    return graded(
        log_ramp(abs(found.z), 10.0, 100.0),
        f"the batch of step {case.view.label(found.row)} is {abs(found.z):.3g} sigma out",
        onset=case.at(found.row),
        robust_z=abs(found.z),
    )


@finding(
    "data.outlier_hurts", "as data.outlier; Heuristic: the loss at 1.5 to 5 times its level at once"
)
def outlier_hurts(case: Case) -> Graded | None:
    """A lone batch is far outside the band of all others, and the loss leapt on it."""
    if case.rows < 10 or not _floats(case):
        return None
    found = _departure(case, is_lasting=False)
    if found is None:
        return graded(0.0)
    times = _harm(case, found.row)
    return graded(
        both(log_ramp(abs(found.z), 10.0, 100.0), log_ramp(times, 1.5, 5.0)),
        f"on the outlier of step {case.view.label(found.row)} the loss rose to {times:.3g} times",
        onset=case.at(found.row),
        loss_ratio=times,
        robust_z=abs(found.z),
    )


@finding(
    "data.ordinary_at_spike",
    "Heuristic: robust z of 3 to 6 around the loss's largest jump",
    is_context=True,
)
def ordinary_at_spike(case: Case) -> Graded | None:
    """The loss jumped on batches that look like all others: inputs are not to blame."""
    curve, columns = case.view.curve, _floats(case)
    if not curve or not curve.jumps or case.rows < 20 or not columns:
        return None
    index = max(curve.jumps, key=lambda jump: jump[1])[0]
    row = case.view.row_at(int(curve.steps[index]))
    worst = 0.0
    for stat in (InputStat.RMS, InputStat.MAX, InputStat.SAMPLE_SPREAD):
        values = case.inputs(stat)[:, columns]
        usual = np.nanmedian(values, axis=0)
        scale = 1.4826 * np.nanmedian(np.abs(values - usual), axis=0) + 0.03 * np.abs(usual) + 1e-9
        near = np.abs((values[max(0, row - 1) : row + 1] - usual) / scale)
        worst = max(worst, float(np.nanmax(near, initial=0.0)))
    return graded(
        ramp(worst, 6, 3),
        f"the inputs of the batch on which the loss jumped are as usual ({worst:.2g} sigma away), "
        "so they are not to blame",
        robust_z=worst,
    )


@finding(
    "data.batch_of_one", "statistics of one sample have no variance; Heuristic: any counts half"
)
def batch_of_one(case: Case) -> Graded | None:
    """Some batches hold one sample only, while others hold more."""
    size = case.view.ledger("batch_size")
    known = size[np.isfinite(size) & (size > 0)]
    if len(known) < 3:
        return None
    usual = float(np.median(known))
    ones = (size == 1) & (usual > 1)
    return graded(
        0.5 + 0.5 * ramp(float(ones.mean()), 0, 0.2) if ones.any() else 0.0,
        f"{int(ones.sum())} batches of one sample, where {usual:.0f} is usual",
        onset=case.since(ones),
        batches=int(ones.sum()),
        usual=usual,
    )
