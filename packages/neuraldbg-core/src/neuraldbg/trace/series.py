# SPDX-License-Identifier: MIT
"""Writing one series of numbers: exact up to a limit, then halved again and again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.trace.codec import Chunk, decode_chunk, encode_chunk
from neuraldbg.trace.decimation import halve, summary

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Sequence

CHUNK = 512
"""Values per row of table `chunk`. Heuristic: the unfinished one is rewritten on every commit."""
LIMIT = 16_384
"""Values up to which a series is exact, and never exceeds. Heuristic: 0.1 to 0.3 MB per series."""

NOTHING = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.float64)
UPSERT = "INSERT OR REPLACE INTO chunk VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
SELECT = "SELECT size, check_sum, first_step, stride, steps, figures FROM chunk"


@dataclass(slots=True)
class _Tail:
    """What follows the chunks that are complete."""

    part: int = 0
    """Number of complete chunks before it."""
    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


class SeriesWriter:
    """The state of one series between commits: everything that the database lacks."""

    __slots__ = ("_complete", "_group", "_group_step", "_is_dirty", "_tail", "identity", "stride")

    def __init__(self, identity: int) -> None:
        self.identity = identity
        self.stride = 1
        self._tail = _Tail()
        self._complete: list[tuple[int, list[int], list[float]]] = []
        self._group: list[float] = []
        self._group_step = 0
        self._is_dirty = False

    def append(self, step: int, value: float) -> None:
        """Add a number."""
        self._is_dirty = True
        if self.stride == 1:
            self._push([step], [value])
            return
        if not self._group:
            self._group_step = step
        self._group.append(value)
        if len(self._group) >= self.stride:
            self._push([self._group_step], [summary(self._group)])
            self._group = []

    def extend(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Add many numbers, as `append` would one by one."""
        self._is_dirty |= bool(steps)
        stride = self.stride
        if stride == 1:
            self._push(steps, values)
            return
        begun = min(-len(self._group) % stride, len(steps))
        end = begun + (len(steps) - begun) // stride * stride
        for step, value in zip(steps[:begun], values[:begun], strict=True):
            self.append(step, value)
        if end > begun:
            groups = np.array(values[begun:end], dtype=np.float64).reshape(-1, stride)
            with np.errstate(all="ignore"):
                self._push(steps[begun:end:stride], (groups / stride).sum(axis=1).tolist())
        for step, value in zip(steps[end:], values[end:], strict=True):
            self.append(step, value)

    def _push(self, steps: Sequence[int], values: Sequence[float]) -> None:
        """Add what is not summarised any more; begin the next chunk where one is complete."""
        start = 0
        while start < len(steps):
            tail = self._tail
            end = start + CHUNK - len(tail.steps)
            tail.steps += steps[start:end]
            tail.values += values[start:end]
            if len(tail.steps) == CHUNK:
                self._complete.append((tail.part, tail.steps, tail.values))
                self._tail = _Tail(tail.part + 1)
            start = end

    def unsaved(self) -> list[tuple[int, int, Chunk]]:
        """Return the rows (series, part, chunk) that the database lacks or has as they were."""
        if not self._is_dirty:
            return []
        rows = [(part, encode_chunk(steps, values)) for part, steps, values in self._complete]
        steps, values = self._tail.steps, self._tail.values
        if self._group:
            steps, values = [*steps, self._group_step], [*values, summary(self._group)]
        if steps:
            rows.append((self._tail.part, encode_chunk(steps, values)))
        return [(self.identity, part, chunk) for part, chunk in rows]

    def saved(self) -> None:
        """Forget what `unsaved` returned: it is committed."""
        self._complete = []
        self._is_dirty = False

    @property
    def is_full(self) -> bool:
        """Whether the series has reached `LIMIT` and waits for `halve`."""
        return self._tail.part * CHUNK >= LIMIT

    def halved(self, connection: sqlite3.Connection) -> SeriesWriter:
        """Rewrite the complete chunks with every pair as one value; return the state after it."""
        cursor = connection.execute(
            f"{SELECT} WHERE series = ? AND part < ? ORDER BY part",
            (self.identity, self._tail.part),
        )
        # Empty where a file was lost that could not even be read any more.
        parts = [decode_chunk(Chunk(*row)) for row in cursor] or [NOTHING]
        steps = np.concatenate([part[0] for part in parts])[0::2]
        values = halve(np.concatenate([part[1] for part in parts]))
        connection.execute("DELETE FROM chunk WHERE series = ?", (self.identity,))
        result = SeriesWriter(self.identity)
        for start in range(0, len(steps), CHUNK):  # by the chunk: a list of all takes megabytes
            piece = slice(start, start + CHUNK)
            result._push(steps[piece].tolist(), values[piece].tolist())
            result._is_dirty = True
            save(connection, [result])
            result.saved()
        result.stride = self.stride * 2
        self._hand_over(result)
        update = "UPDATE series SET stride = ? WHERE id = ?"
        connection.execute(update, (result.stride, self.identity))
        result._is_dirty = True
        save(connection, [result])
        result.saved()
        return result

    def _hand_over(self, result: SeriesWriter) -> None:
        """Give what follows the complete chunks to `result`, which has twice the stride."""
        for step, value in zip(self._tail.steps, self._tail.values, strict=True):
            for _ in range(self.stride):
                result.append(step, value)
        for value in self._group:
            result.append(self._group_step, value)


def save(connection: sqlite3.Connection, series: Iterable[SeriesWriter]) -> None:
    """Write what the database lacks of several series."""
    rows = [(identity, part, *chunk) for one in series for identity, part, chunk in one.unsaved()]
    connection.executemany(UPSERT, rows)
