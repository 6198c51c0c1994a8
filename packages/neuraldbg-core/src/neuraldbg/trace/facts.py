# SPDX-License-Identifier: MIT
"""Which steps a trace keeps exactly, and how the others are merged.

Decisions follow the count of steps alone, never the clock, so the same facts give the same trace.
"""

from __future__ import annotations

import zlib
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.trace.decimation import (
    Bucket,
    as_floats,
    cheapest_pair,
    default_counts,
    exact,
    merge,
    merge_exact,
)
from neuraldbg.trace.layout import Floats, Layout, repack

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

HEAD = 64
"""First steps, always exact: initialisation and warmup show here."""
TAIL = 1024
"""Last steps that are exact ..."""
TAIL_BYTES = 32 << 20
"""... as far as they fit into this, but never fewer than `HEAD`."""
AROUND = 16
"""Steps before and after an event that stay exact."""
PINNED = 2048
"""Steps that events keep exact, at most ..."""
PINNED_BYTES = 16 << 20
"""... as far as they fit into this. Later events of a run that is that restless keep none."""
BUCKETS = 128
"""Decimated rows at most ..."""
BUCKET_BYTES = 1 << 19
"""... as far as they fit into this, but never fewer than 64.

Heuristic: 128 rows give a resolution of 6 % of a step's age on a run of a million steps, 64 rows
of 11 %. From some thousand steps on they are complete, and memory does not grow."""
PERIOD = 64
"""Steps between two rounds of decimation."""
GROUP = 16
"""Steps per row when they first leave the exact ones: 1.5 % of their age by then."""

BULK = 64
"""So many thinned steps in one go, or more, come as one row per `BULK` of them: they are of less
than a few milliseconds each, and nothing was measured of them but counts and norms."""

INSERT = "INSERT OR REPLACE INTO fact VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
SELECT = (
    "SELECT first, last, first_step, last_step, layout, check_sum, mean, low, high, counts "
    "FROM fact"
)
Row = tuple[int, int, int, int, int, int, bytes, bytes | None, bytes | None, bytes | None]


def exact_row(ordinal: int, step: int, layout: int, vector: bytes) -> Row:
    """Return the row of table `fact` for one step."""
    return (ordinal, ordinal, step, step, layout, zlib.crc32(vector), vector, None, None, None)


def thinned_rows(
    first: int, steps: list[int], layout: int, matrix: Floats, *, is_exact: bool
) -> list[Row]:
    """Return the rows of consecutive steps, `[T, W]`: one each, or one per `BULK` of them."""
    if is_exact or len(steps) < BULK:
        return [
            exact_row(first + index, step, layout, matrix[index].tobytes())
            for index, step in enumerate(steps)
        ]
    rows, start = [], 0
    while start < len(steps):
        stop = min(len(steps), start + BULK - (first + start) % BULK)
        if stop - start == 1:
            data = matrix[start].tobytes()
            rows.append(exact_row(first + start, steps[start], layout, data))
        else:
            bucket = merge_exact(first + start, steps[start:stop], matrix[start:stop])
            rows.append(bucket_row(bucket, layout))
        start = stop
    return rows


def bucket_row(bucket: Bucket, layout: int) -> Row:
    """Return the row of table `fact` for several steps."""
    mean = bucket.mean.tobytes()
    is_plain = np.array_equal(bucket.counts, default_counts(bucket.mean, bucket.width))
    return (
        bucket.first,
        bucket.last,
        bucket.first_step,
        bucket.last_step,
        layout,
        zlib.crc32(mean),
        mean,
        bucket.low.tobytes(),
        bucket.high.tobytes(),
        None if is_plain else bucket.counts.astype("<u4").tobytes(),
    )


def row_bucket(row: Row, layouts: dict[int, Layout], target: Layout) -> Bucket:
    """Return a row of table `fact` as a bucket in the layout `target`."""
    first, last, first_step, last_step, layout, _, mean, low, high, counts = row
    old = layouts[layout]
    vector = repack(as_floats(mean)[None], old, target)[0]
    if low is None or high is None:
        return exact(first, first_step, vector)
    bucket = Bucket(
        first,
        last,
        first_step,
        last_step,
        vector,
        repack(as_floats(low)[None], old, target)[0],
        repack(as_floats(high)[None], old, target)[0],
        default_counts(vector, last - first + 1),
    )
    if counts is None:
        return bucket
    numbers = repack(np.frombuffer(counts, dtype="<u4")[None], old, target, fill=0)[0]
    return replace(bucket, counts=numbers)


class Retention:
    """What of a run's steps is exact, what is merged, what is to merge next."""

    def __init__(self) -> None:
        self.count = 0
        """Steps so far; the ordinal of the next one."""
        self.rounds = 0
        """Rounds of decimation done."""
        self._labels: deque[int] = deque(maxlen=TAIL + PERIOD)
        self._pinned: set[int] = set()
        self._spans: list[tuple[int, int]] = []
        self._exit = HEAD

    def extend(self, steps: Sequence[int]) -> None:
        """Count steps with these labels."""
        self._labels.extend(steps)
        self.count += len(steps)

    def pin(self, step: int, width: int) -> None:
        """Keep the steps around the label `step` exact; `width` is the length of a vector."""
        if len(self._pinned) >= min(PINNED, PINNED_BYTES // (4 * width + 1)):
            return
        for back, label in enumerate(reversed(self._labels), start=1):
            if label == step:
                ordinal = self.count - back
                break
        else:
            if self._labels and step < self._labels[-1]:
                return
            ordinal = self.count
        self._pinned.update(range(max(0, ordinal - AROUND), ordinal + AROUND + 1))

    @property
    def last_step(self) -> int | None:
        """Label of the last step."""
        return self._labels[-1] if self._labels else None

    @property
    def is_due(self) -> bool:
        """Whether a round of decimation is to be done."""
        return self.count >= (self.rounds + 1) * PERIOD

    def decimate(
        self, connection: sqlite3.Connection, layouts: dict[int, Layout], target: int
    ) -> Callable[[], None]:
        """Do the rounds that are due in an open transaction; return what to call once committed."""
        spans, leave, rounds = list(self._spans), self._exit, self.rounds
        tail = _rows(TAIL, TAIL_BYTES, 4 * layouts[target].width, HEAD)
        while self.count >= (rounds + 1) * PERIOD:
            rounds += 1
            now, start = rounds * PERIOD, leave
            leave = max(start, now - tail)
            for group in self._leaving(connection, start, leave):
                if len(group) == 1 and group[0][7] is not None and group[0][4] == target:
                    spans.append((group[0][0], group[0][1]))  # thinned steps came as one row
                    continue
                bucket = merge([row_bucket(row, layouts, layouts[target]) for row in group])
                _replace(connection, bucket, target)
                spans.append((bucket.first, bucket.last))
            spans = _joined(connection, spans, now, layouts, target)

        def commit() -> None:
            self._exit, self._spans, self.rounds = leave, spans, rounds

        return commit

    def _leaving(self, connection: sqlite3.Connection, start: int, leave: int) -> list[list[Row]]:
        """Return the rows that stop being exact, as the groups that become one row each."""
        groups: list[list[Row]] = []
        query = f"{SELECT} WHERE first >= ? AND first < ? ORDER BY first"
        for row in connection.execute(query, (start, leave)):
            ordinal = row[0]
            if ordinal in self._pinned:
                continue
            last = groups[-1][-1][0] if groups else -1
            if last == ordinal - 1 and last // GROUP == ordinal // GROUP:
                groups[-1].append(row)
            else:
                groups.append([row])
        return groups


def _joined(
    connection: sqlite3.Connection,
    spans: list[tuple[int, int]],
    now: int,
    layouts: dict[int, Layout],
    target: int,
) -> list[tuple[int, int]]:
    """Merge neighbouring rows until there are few enough; return what they span."""
    limit = _rows(BUCKETS, BUCKET_BYTES, 12 * layouts[target].width, 64)
    while len(spans) > limit and (index := cheapest_pair(spans, now)) is not None:
        pair = spans[index][0], spans[index + 1][0]
        query = f"{SELECT} WHERE first IN (?, ?) ORDER BY first"
        rows = connection.execute(query, pair).fetchall()
        if len(rows) < 2:  # lost with a file that could not even be read any more
            there = {row[0] for row in rows}
            spans = [span for span in spans if span[0] not in pair or span[0] in there]
            continue
        bucket = merge([row_bucket(row, layouts, layouts[target]) for row in rows])
        _replace(connection, bucket, target)
        spans[index : index + 2] = [(bucket.first, bucket.last)]
    return spans


def _rows(most: int, budget_bytes: int, row_bytes: int, least: int) -> int:
    return max(least, min(most, budget_bytes // max(row_bytes, 1)))


def _replace(connection: sqlite3.Connection, bucket: Bucket, layout: int) -> None:
    """Put `bucket` in the place of the rows that it merges."""
    connection.execute("DELETE FROM fact WHERE first BETWEEN ? AND ?", (bucket.first, bucket.last))
    connection.execute(INSERT, bucket_row(bucket, layout))
