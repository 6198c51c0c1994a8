# SPDX-License-Identifier: MIT
"""Reading the traces of ranks, checking that they are of one run, and writing the merged one."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.detectors.transitions import observed
from neuraldbg.errors import TraceError
from neuraldbg.merge import notes
from neuraldbg.merge.agreement import disagreement
from neuraldbg.merge.combine import Shards
from neuraldbg.merge.rows import Steps, aligned
from neuraldbg.schema.vocabulary import EventType
from neuraldbg.trace import Trace, codec, facts, open_trace, series
from neuraldbg.trace.store import create_file

if TYPE_CHECKING:
    import os
    import sqlite3
    from collections.abc import Mapping, Sequence

    from neuraldbg.schema.facts import Observation
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.trace import Series


def merge_files(paths: Sequence[str | os.PathLike[str]], output: str | os.PathLike[str]) -> None:
    """Write the traces of the ranks of one run as one; an older trace at `output` is replaced.

    Args:
        paths: Of the ranks' traces, in any order.
        output: File to write.

    Raises:
        TraceError: A file is missing or no trace, they are not of different ranks of one run, or
            `output` cannot be written.
    """
    places = [Path(path).resolve() for path in paths]
    target = Path(output).absolute()
    if target.resolve() in places:
        raise TraceError(f"{str(target)!r} is one of the traces to merge: give another output")
    traces = sorted((open_trace(path) for path in places), key=lambda trace: trace.run.rank)
    _check(traces)
    run = _run(traces)
    steps = aligned(traces, run)
    found = disagreement([trace.run for trace in traces], *steps.exact())
    try:
        connection = create_file(target)
    except OSError as error:
        raise TraceError(f"{str(target)!r} cannot be written: {error}") from error
    with contextlib.closing(connection):
        connection.execute("BEGIN IMMEDIATE")
        _write(connection, traces, run, steps, found)
        connection.execute("COMMIT")


def _check(traces: Sequence[Trace]) -> None:
    """Refuse what is not the traces of different ranks of one run.

    Raises:
        TraceError: It is not; the message says which.
    """
    if len(traces) < 2:
        raise TraceError("one trace alone cannot be merged: name those of two ranks or more")
    merged = [trace for trace in traces if trace.run.ranks]
    if merged:
        raise TraceError(f"{str(merged[0].path)!r} is a merged trace: name those of the ranks")
    (rank, count), *_ = Counter(trace.run.rank for trace in traces).most_common(1)
    if count > 1:
        where = " and ".join(repr(str(t.path)) for t in traces if t.run.rank == rank)
        raise TraceError(f"{where} are both of rank {rank}: name one trace for each rank")
    shapes = [[(p.name, p.shape) for p in trace.run.parameters] for trace in traces]
    layers = [[layer.path for layer in trace.run.layers] for trace in traces]
    for trace, shape, paths in zip(traces, shapes, layers, strict=True):
        if shape != shapes[0] or paths != layers[0]:
            one, other = str(traces[0].path), str(trace.path)
            raise TraceError(f"{one!r} and {other!r} are of different models, so not of one run")


def _run(traces: Sequence[Trace]) -> RunInfo:
    """Return the description of the whole run: that of the lowest rank, with what others add."""
    runs = [trace.run for trace in traces]
    inputs = {one.name: one for run in reversed(runs) for one in reversed(run.inputs)}
    order = dict.fromkeys(one.name for run in runs for one in run.inputs)
    ranks = tuple(run.rank for run in runs)
    size = max(run.world_size for run in runs)
    return runs[0].model_copy(
        update={
            "ranks": ranks,
            "world_size": max(size, len(ranks)),
            "layers": max((run.layers for run in runs), key=_described),
            "parameters": tuple(
                one.model_copy(update={"shard": (0, 1), "local_size": None, "initial_rms": rms})
                for one, rms in zip(runs[0].parameters, _initial(runs), strict=True)
            ),
            "inputs": tuple(inputs[name] for name in order),
            "optimizers": max((run.optimizers for run in runs), key=len),
            "warnings": _warnings(traces, ranks, size),
        }
    )


def _described(layers: Sequence[Any]) -> int:
    return sum(bool(layer.parents) for layer in layers)


def _initial(runs: Sequence[RunInfo]) -> list[float]:
    """Return the RMS of each whole parameter before the first step, from those of its parts."""
    shards = Shards.of(runs)
    rms = np.array([[parameter.initial_rms for parameter in run.parameters] for run in runs])
    result = []
    for row in range(rms.shape[1]):
        _, ranks = np.unique(shards.index[:, row], return_index=True)
        size = shards.size[ranks, row]
        whole = float((np.square(rms[ranks, row]) * size).sum() / max(size.sum(), 1))
        result.append(whole**0.5)
    return result


def _warnings(traces: Sequence[Trace], ranks: tuple[int, ...], size: int) -> tuple[str, ...]:
    said: dict[str, list[int]] = {}
    for trace in traces:
        for sentence in trace.run.warnings:
            said.setdefault(sentence, []).append(trace.run.rank)
    found = [
        text if len(by) == len(traces) else f"rank {notes.listed(by)}: {text}"
        for text, by in said.items()
    ]
    missing = set(range(size)) - set(ranks)
    if missing:
        found.append(f"ranks {notes.listed(missing)} of {size} are not in this merged trace")
        if any(p.shard[1] > 1 for p in traces[0].run.parameters):
            found.append("figures of sharded parameters lack the parts of the ranks left out")
    counts = {trace.run.rank: trace.step_count for trace in traces}
    if len(set(counts.values())) > 1:
        told = ", ".join(f"rank {rank} {count:,}" for rank, count in counts.items())
        found.append(f"the ranks recorded different numbers of steps: {told}")
    return tuple(found)


# --- writing --------------------------------------------------------------------------------------


def _write(
    connection: sqlite3.Connection,
    traces: Sequence[Trace],
    run: RunInfo,
    steps: Steps,
    found: Observation | None,
) -> None:
    meta = {"settings": codec.to_json(traces[0].settings), "run": codec.to_json(run)}
    ended = [(t.run.rank, t.exception) for t in traces if t.exception is not None]
    if ended:
        meta["exception"] = f"rank {ended[0][0]}: {ended[0][1]}"
    if all(trace.is_finished for trace in traces):
        meta["finished"] = json.dumps(obj=True)
    connection.executemany("INSERT INTO meta VALUES (?, ?)", meta.items())
    connection.execute("INSERT INTO layout VALUES (0, ?)", (steps.layout.to_json(),))
    shards = Shards.of([trace.run for trace in traces])
    for bucket in steps.combined(shards):
        row = (
            facts.exact_row(bucket.first, bucket.first_step, 0, bucket.mean.tobytes())
            if bucket.width == 1
            else facts.bucket_row(bucket, 0)
        )
        connection.execute(facts.INSERT, row)
    _write_series(connection, "loss", [trace.losses for trace in traces])
    _write_series(connection, "metric", [trace.metrics for trace in traces])
    told = notes.observations(traces)
    events = {event.id: event for event in notes.events(traces)}
    if found is not None:
        told.append(found)
        event = observed(
            "wiring_fault",
            EventType.WIRING_FAULT,
            ("as_written", found.kind),
            kind=found.kind,
            step=found.step,
            layer=found.layer,
            evidence={**found.figures, **found.words},
        )
        events[event.id] = event
    documents = [(identity, codec.event_to_json(event)) for identity, event in events.items()]
    connection.executemany("INSERT INTO event VALUES (?, ?)", documents)
    rows = [(place, codec.observation_to_json(one)) for place, one in enumerate(told)]
    connection.executemany("INSERT INTO observation VALUES (?, ?)", rows)


def _write_series(
    connection: sqlite3.Connection, kind: str, ranks: Sequence[Mapping[str, Series]]
) -> None:
    for name in dict.fromkeys(name for rank in ranks for name in rank):
        steps, values, stride = _mean([rank[name] for rank in ranks if name in rank])
        (identity,) = connection.execute("SELECT count(*) FROM series").fetchone()
        row = (identity, kind, name, stride)
        connection.execute("INSERT INTO series VALUES (?, ?, ?, ?)", row)
        writer = series.SeriesWriter(identity)
        for step, value in zip(steps, values, strict=True):
            writer.append(step, value)
        series.save(connection, [writer])


def _mean(ranks: list[Series]) -> tuple[list[int], list[float], int]:
    """Return the mean of a series over the ranks; not finite where that of any rank is not."""
    longest = max(ranks, key=lambda one: (len(one), -one.stride))
    found: dict[int, list[float]] = {step: [] for step in longest.steps.tolist()}
    for one in ranks:
        for step, value in zip(one.steps.tolist(), one.values.tolist(), strict=True):
            if step in found:
                found[step].append(value)
    if len(found) < len(longest):  # the user set labels back: steps are told by their order alone
        alike = [one.values for one in ranks if len(one) == len(longest)]
        return longest.steps.tolist(), np.mean(alike, axis=0).tolist(), longest.stride
    with np.errstate(all="ignore"):
        values = [float(np.mean(each)) for each in found.values()]
    return list(found), values, longest.stride
