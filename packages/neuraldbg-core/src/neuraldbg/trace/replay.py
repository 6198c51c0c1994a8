# SPDX-License-Identifier: MIT
"""A recorded trace as `StepFacts` again, for detectors that come after the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.schema.facts import LedgerFacts, Observation, StepFacts
from neuraldbg.trace.table import LEDGER_FIELDS, FactTable, Series

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from neuraldbg.trace.reader import Trace

_KINDS = {name: type(getattr(LedgerFacts(), name)) for name in LEDGER_FIELDS}


def step_facts(trace: Trace, *, is_exact_only: bool = False) -> Iterator[StepFacts]:
    """Yield the steps of a trace in order, as a detector of the live run saw them.

    A decimated row comes as one step: with its first label, the means of its figures, the mean
    loss of its range (not finite where one was not) and rounded counts. `facts.run` is the run as
    known at its end; what a step did not know yet is NaN.

    Args:
        trace: What was recorded.
        is_exact_only: Whether to leave decimated rows out.
    """
    table = trace.facts
    losses = _by_row(table, trace.losses)
    metrics = _by_row(table, trace.metrics)
    observations = sorted(trace.observations, key=lambda one: -one.step)
    is_exact = table.is_exact
    for row, step in enumerate(table.steps.tolist()):
        seen: list[Observation] = []
        while observations and observations[-1].step <= table.stops[row]:
            seen.append(observations.pop())
        if is_exact_only and not is_exact[row]:
            continue
        yield StepFacts(
            run=trace.run,
            step=step,
            losses=losses[row],
            metrics=metrics[row],
            activation=table.activation[row].copy(),
            parameter=table.parameter[row].copy(),
            inputs=table.inputs[row].copy(),
            optimizer=table.optimizer[row].copy(),
            ledger=_ledger(table.ledger[row]),
            observations=tuple(seen),
            is_sampled=bool(table.sampled[row]),
            seconds=float(table.seconds[row]),
            is_interrupted=bool(table.interrupted[row]),
        )


def _by_row(table: FactTable, series: Mapping[str, Series]) -> list[dict[str, float]]:
    """Return, for each row, the mean of each series over the row's labels, where there is one."""
    result: list[dict[str, float]] = [{} for _ in range(len(table))]
    # Labels rise, unless the user set them back; then a row takes the values nearest in order.
    ends = np.maximum.accumulate(table.stops) if len(table) else table.stops
    for name, one in series.items():
        rows = np.searchsorted(ends, one.steps, side="left")
        order = np.argsort(rows, kind="stable")
        rows, values = rows[order], one.values[order]
        starts = np.flatnonzero(np.diff(rows, prepend=-1))
        with np.errstate(all="ignore"):
            sums = np.add.reduceat(values, starts) if len(starts) else values
        numbers = np.diff(starts, append=len(rows))
        for row, value in zip(rows[starts].tolist(), (sums / numbers).tolist(), strict=True):
            if row < len(table):
                result[row][name] = value
    return result


def _ledger(values: np.ndarray) -> LedgerFacts:
    fields: dict[str, Any] = {}
    for name, value in zip(LEDGER_FIELDS, values.tolist(), strict=True):
        kind = _KINDS[name]
        if kind is float:
            fields[name] = value
        elif value == value:  # noqa: PLR0124
            fields[name] = kind(round(value))
    return LedgerFacts(**fields)
