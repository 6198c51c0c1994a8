# SPDX-License-Identifier: MIT
"""What entered the model over the run: breakage, bands, lasting shifts, lone outliers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.baseline import median_mad, robust_z
from neuraldbg.reasoning.cause import Assessment, argument, link
from neuraldbg.schema.facts import ActivationStat, InputStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView

    Array = NDArray[np.float64]

OUTSIDE_Z = 8.0
"""Robust z from which a batch is outside the band: its statistics average many numbers."""
LASTING = 0.8
"""Share of later batches outside, on the same side, that makes a shift."""
STATS = (InputStat.MEAN, InputStat.RMS, InputStat.MIN, InputStat.MAX, InputStat.SAMPLE_SPREAD)


def broken_input(view: CaseView, stat: InputStat, cause: str, word: str) -> Assessment | None:
    """Return the assessment of NaN or Inf in a batch, None where it did no harm.

    An input that holds them on most steps (a mask of -inf, missing values that the model handles)
    is meant that way: only a model or loss that is not finite on the same step makes it a fault.
    """
    flags = view.inputs(stat)
    if not flags.size:
        return None
    harmed = harmed_rows(view)
    born = first_birth(view)
    for row in np.flatnonzero((flags == 1.0).any(axis=1)):
        if not harmed[row]:
            continue
        column = int(np.flatnonzero(flags[row] == 1.0)[0])
        if np.nanmean(flags[: row + 1, column]) > 0.5 and row > 4:
            continue
        step, name = view.label(int(row)), view.run.inputs[column].name
        if born is not None and born < step:
            return None  # the run's own: samples of a broken generator, states of a broken policy
        evidence = view.events(types=["data_anomaly"], until=step + 1)
        is_column = pattern_at(view, step) == "whole_features"
        return Assessment(
            cause=cause,
            failure=FailureType.DATA_ANOMALY,
            confidence=0.6 if is_column else 0.95,
            description=(
                f"{word} in the input at step {step}: {argument(name)} holds "
                f"{_how_many(view, step, word)}, while everything before it was finite."
            ),
            onset=step,
            onset_range=(step, step),
            evidence=evidence,
            chain=(
                link(None, step, f"{word} enters with {argument(name)}"),
                link(None, step, "outputs, loss and gradients of this step are not finite"),
            ),
            explains=EXPLAINED,
            is_direct=True,
        )
    return None


def first_birth(view: CaseView) -> int | None:
    """Return the first step on which the run itself made NaN or Inf that no scaler held back."""
    skipped = set(view.steps[view.ledger("skipped") > 0].tolist()) if len(view.steps) else set()
    births = [note.step for note in view.observations.get("nonfinite_birth", [])]
    return min((step for step in births if step not in skipped), default=None)


def _how_many(view: CaseView, step: int, word: str) -> str:
    """Return `2 NaN of 320 values` where capture counted, else the bare word."""
    for note in view.observations.get("nonfinite_input", []):
        if note.step == step and note.words.get("value") == word.lower():
            count, size = note.figures.get("count"), note.figures.get("size")
            if count and size:
                return f"{count:.0f} {word} of {size:.0f} values"
    return word


def pattern_at(view: CaseView, step: int) -> str:
    """Return how the values that are not finite lie in the batch, as capture saw it; empty: not."""
    for note in view.observations.get("nonfinite_input", []):
        if note.step == step:
            return note.words.get("pattern", "")
    return ""


EXPLAINED = frozenset(
    {
        "unknown",
        "lr_too_high",
        "missing_gradient_clipping",
        "dying_relu",
        "log_of_nonpositive",
        "sqrt_at_zero",
        "division_by_zero",
        "exp_overflow",
        "masked_nan_gradient",
        "fully_masked_attention",
        "single_sample_statistics",
        "half_precision_overflow",
    }
)


def harmed_rows(view: CaseView) -> NDArray[np.bool_]:
    """Return `[T]`: whether loss, gradients or any output of the row were not finite."""
    bad = (view.activation(ActivationStat.NONFINITE) > 0).any(axis=1)
    bad |= np.isinf(view.gradient_total)
    broken = set(view.curve.steps[~np.isfinite(view.curve.values)].tolist())
    lost = np.array([int(step) in broken for step in view.steps], dtype=np.bool_)
    return np.asarray(bad | lost, dtype=np.bool_)


@dataclass(frozen=True)
class Departure:
    """An input that left the band of all batches before."""

    row: int
    column: int
    stat: InputStat
    z: float
    before: float
    after: float
    is_lasting: bool
    is_drift: bool = False


def _scores(values: Array, rms: Array, stat: InputStat, reference: int) -> tuple[Array, float]:
    """Return (z per row against the first `reference` rows, median of those)."""
    level = float(np.nanmedian(np.abs(rms[:reference])))
    if stat in {InputStat.RMS, InputStat.SAMPLE_SPREAD}:
        with np.errstate(divide="ignore", invalid="ignore"):
            scored = np.log(np.abs(values))
        floor = 0.03
    else:
        scored = values
        floor = 0.05 * level if stat is InputStat.MEAN else 0.25 * level
    scored = np.where(np.isfinite(scored), scored, np.nan)
    middle, scale = median_mad(scored[:reference])
    if np.isnan(middle):
        return np.full(len(values), np.nan), float("nan")
    z = robust_z(scored, middle, scale, max(floor, 1e-9))
    return z, float(np.nanmedian(values[:reference]))


def departures(view: CaseView) -> list[Departure]:
    """Return where inputs left their band, earliest first: lasting shifts, drifts, lone batches.

    Rows on which inputs were not measured (thinned steps) are left out: they neither hold a band
    nor break it.
    """
    found: list[Departure] = []
    for column in range(len(view.run.inputs)):
        if "float" not in view.run.inputs[column].dtype:
            continue
        measures = {stat: view.inputs(stat)[:, column] for stat in STATS}
        known = np.flatnonzero(~np.all([np.isnan(m) for m in measures.values()], axis=0))
        rows = len(known)
        if rows < 10:
            continue
        reference = min(max(20, rows // 5), 200) if rows >= 24 else max(8, rows // 2)
        for stat, measure in measures.items():
            values = measure[known]
            z, usual = _scores(values, measures[InputStat.RMS][known], stat, reference)
            departure = _departure(column, stat, values, z, usual)
            if departure is not None:
                found.append(replace(departure, row=int(known[departure.row])))
    return sorted(found, key=lambda d: (not d.is_lasting, d.row, -abs(d.z)))


def _departure(
    column: int, stat: InputStat, values: Array, z: Array, usual: float
) -> Departure | None:
    """Return the first departure among these values, `row` being its place among them."""
    outside = np.flatnonzero(np.abs(z) > OUTSIDE_Z)
    for row in outside[:64]:
        after = z[row:]
        same = np.nanmean(np.sign(z[row]) * after > OUTSIDE_Z / 2) if len(after) >= 5 else 0.0
        if same >= LASTING:
            if row and float(np.nanmean(np.abs(z[:row]) < OUTSIDE_Z)) < LASTING:
                return None
            onset = _onset(z, int(row))
            return Departure(
                onset,
                column,
                stat,
                float(np.nanmedian(after)),
                usual,
                float(np.nanmedian(values[row:])),
                is_lasting=True,
                is_drift=int(row) - onset > 8,
            )
    if not len(outside) or len(outside) > max(3, len(z) // 50):
        return None
    worst = int(outside[0])
    return Departure(
        worst, column, stat, float(z[worst]), usual, float(values[worst]), is_lasting=False
    )


SAME = 1e-5
"""Relative difference up to which figures are those of one batch: float32, averaged over steps."""
ENOUGH_SAME = 5
"""Measured batches that show that it is always the same."""


def is_one_batch(view: CaseView, departure: Departure) -> bool:
    """Whether one and the same batch was fed again and again until a departure.

    To memorise a batch is the usual check of a new program, and its loss says nothing of other
    data: against it, any data raise the loss. So do they after training on all data at once.
    """
    for stat in (InputStat.MEAN, InputStat.RMS, InputStat.MIN, InputStat.MAX):
        before = view.inputs(stat)[: departure.row, departure.column]
        before = before[np.isfinite(before)]
        if len(before) < ENOUGH_SAME or np.ptp(before) > SAME * float(np.abs(before).max()):
            return False
    return True


SIGN_Z = 4.0
"""Robust z from which a loss says that the batch was already another one. Heuristic: lower than
for a loss alone, since the input did leave its band within these few steps."""
SIGN = 0.1
"""Share of what the loss has risen by on the first batch outside that an earlier sign has, too."""


def first_sign(view: CaseView, departure: Departure) -> int:
    """Return the row on which a departure began: its own, or one before that was not measured.

    Between the last batch that was measured inside the band and the first outside of it, the loss
    is all that was heard of thinned steps.
    """
    known = np.flatnonzero(np.isfinite(view.inputs(InputStat.RMS)[:, departure.column]))
    inside = known[known < departure.row]
    if not len(inside) or inside[-1] == departure.row - 1:
        return departure.row
    losses, steps = view.curve.values, view.curve.steps
    past = losses[np.searchsorted(steps, view.label(int(inside[-1]))) :: -1][:20]
    middle, scale = (float(x) for x in median_mad(past))
    bar = SIGN_Z * max(scale, 0.05 * abs(middle))
    then = int(np.searchsorted(steps, view.label(departure.row)))
    if then < len(losses) and np.isfinite(losses[then]):
        bar = max(bar, SIGN * float(losses[then] - middle))
    for row in range(int(inside[-1]) + 1, departure.row):
        at = int(np.searchsorted(steps, view.label(row)))
        if at < len(losses) and losses[at] - middle > bar:
            return row
    return departure.row


def _onset(z: Array, row: int) -> int:
    """Walk back from the row that is outside to the first of its rise."""
    side = np.sign(z[row])
    first = row
    while first > 0 and side * z[first - 1] > 3.0:
        first -= 1
    return first
