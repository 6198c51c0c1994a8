# SPDX-License-Identifier: MIT
"""Reading a trace: live, finished, or what is left of a damaged file."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import zlib
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from neuraldbg.errors import TraceError
from neuraldbg.schema.run import RunInfo
from neuraldbg.settings import Settings
from neuraldbg.trace import codec, facts, schema
from neuraldbg.trace.layout import Layout, repack
from neuraldbg.trace.table import EMPTY_SERIES, FactTable, Series

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Hashable, Iterator, Mapping

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import Observation

T = TypeVar("T")


class Source(Protocol):
    """Where a `Trace` reads from."""

    @property
    def path(self) -> Path | None:
        """The file, where there is one."""
        ...

    def revision(self, section: str) -> Hashable:
        """Return a value that differs whenever `section` may have changed."""
        ...

    def end(self) -> tuple[int, int | None] | None:
        """Return how many steps there are and the label of the last; None: read and see."""
        ...

    def reading(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """Lend a connection."""
        ...


class FileSource:
    """A trace file. It is open only while something is read from it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def revision(self, section: str) -> Hashable:  # noqa: ARG002 - a file changes as a whole
        """Return sizes and times of the file and its log."""
        return _signature(self._path), _signature(Path(f"{self._path}-wal"))

    def end(self) -> None:
        """Leave it to what is read."""

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a read-only connection."""
        schema.check_file(self._path)
        connection = _open(self._path)
        try:
            yield connection
        finally:
            connection.close()


def _signature(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def _open(path: Path) -> sqlite3.Connection:
    """Open a file read-only: with its log, else without, else against SQLite's own doubts."""
    problem: Exception | None = None
    for options, pragma in (
        ("mode=ro", ""),
        ("mode=ro&immutable=1", ""),
        ("mode=ro", "PRAGMA writable_schema = ON"),
        ("mode=ro&immutable=1", "PRAGMA writable_schema = ON"),
    ):
        connection = schema.connect(f"{path.absolute().as_uri()}?{options}", is_uri=True)
        try:
            connection.execute(pragma)
            connection.execute("SELECT name FROM sqlite_schema").fetchall()
        except sqlite3.Error as error:
            connection.close()
            problem = error
        else:
            return connection
    raise TraceError(f"trace {str(path)!r} is damaged beyond reading: {problem}")


class _Head(NamedTuple):
    run: RunInfo
    settings: Settings
    exception: str | None
    is_finished: bool


class Trace:
    """Everything recorded of one run. What is read is kept until the run has gone on.

    `Trace` is the boundary between watching and explaining: it needs no torch, holds no file open,
    and gives the same answers live and from a file.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._cache: dict[str, tuple[Hashable, Any]] = {}
        self._problems: dict[str, list[str]] = {}

    @property
    def path(self) -> Path | None:
        """The file that the trace is or is being written to."""
        return self.source.path

    def _section(self, section: str, read: Callable[[sqlite3.Connection, list[str]], T]) -> T:
        revision = self.source.revision(section)
        cached = self._cache.get(section)
        if cached is None or cached[0] != revision:
            problems: list[str] = []
            with self.source.reading() as connection:
                cached = revision, read(connection, problems)
            self._cache[section] = cached
            self._problems[section] = problems
        value: T = cached[1]
        return value

    @property
    def _head(self) -> _Head:
        return self._section("head", _read_head)

    @property
    def run(self) -> RunInfo:
        """What the run was made of."""
        return self._head.run

    @property
    def settings(self) -> Settings:
        """What the session was asked to do."""
        return self._head.settings

    @property
    def exception(self) -> str | None:
        """`repr` of the exception that ended the run, None where none did."""
        return self._head.exception

    @property
    def is_finished(self) -> bool:
        """Whether the run was ended; False: it still runs, or it was killed."""
        return self._head.is_finished

    @property
    def events(self) -> tuple[SemanticEvent, ...]:
        """In order of step, detector and layer."""
        return self._section("events", _read_events)

    @property
    def observations(self) -> tuple[Observation, ...]:
        """In the order in which they were made."""
        return self._section("observations", _read_observations)

    @property
    def losses(self) -> Mapping[str, Series]:
        """By name, in the order in which the names first came up."""
        return self._section("series", _read_series)["loss"]

    @property
    def metrics(self) -> Mapping[str, Series]:
        """By name, in the order in which the names first came up."""
        return self._section("series", _read_series)["metric"]

    @property
    def loss(self) -> Series:
        """The main loss: `loss`, else the first recorded one, else an empty series."""
        losses = self.losses
        return losses["loss"] if "loss" in losses else next(iter(losses.values()), EMPTY_SERIES)

    @property
    def facts(self) -> FactTable:
        """Everything measured, by step; rows of layers and the like follow `run`."""
        run = self.run
        return self._section("facts", lambda *arguments: _read_facts(run, *arguments))

    @property
    def step_count(self) -> int:
        """How many steps were recorded."""
        return self._end[0]

    @property
    def last_step(self) -> int | None:
        """Label of the last recorded step."""
        return self._end[1]

    @property
    def _end(self) -> tuple[int, int | None]:
        known = self.source.end()
        return self._section("end", _read_end) if known is None else known

    @property
    def problems(self) -> tuple[str, ...]:
        """What of a damaged file could not be read, one sentence each."""
        _ = self.run, self.events, self.observations, self.losses, self.facts
        return tuple(
            sentence for part in sorted(self._problems) for sentence in self._problems[part]
        )


def open_trace(path: str | os.PathLike[str]) -> Trace:
    """Return the trace in a file, which may still be being written.

    Raises:
        TraceError: The file is missing, foreign, from a newer NeuralDBG, or damaged beyond reading.
    """
    trace = Trace(FileSource(Path(path)))
    _ = trace.run
    return trace


def _select(
    connection: sqlite3.Connection, query: str, what: str, problems: list[str]
) -> list[tuple[Any, ...]]:
    """Return the rows of a query, up to where the file is damaged."""
    rows: list[tuple[Any, ...]] = []
    try:
        for row in connection.execute(query):
            rows.append(row)  # noqa: PERF402 - what came before an error stays
    except sqlite3.DatabaseError as error:
        problems.append(f"{what}: {len(rows)} could be read, then: {error}")
    return rows


def _read_head(connection: sqlite3.Connection, problems: list[str]) -> _Head:
    found = dict(_select(connection, "SELECT name, value FROM meta", "run", problems))
    try:
        run = RunInfo.model_validate(json.loads(found["run"]))
        settings = Settings.model_validate(json.loads(found["settings"]))
    except (KeyError, ValueError, TypeError) as error:
        raise TraceError(f"damaged trace: its description of the run is gone: {error!r}") from error
    exception = found.get("exception")
    if exception is not None and not isinstance(exception, str):
        problems.append("the exception that ended the run cannot be read")
        exception = "unreadable"
    return _Head(run, settings, exception, "finished" in found)


def _read_events(connection: sqlite3.Connection, problems: list[str]) -> tuple[SemanticEvent, ...]:
    events = []
    for (text,) in _select(connection, "SELECT document FROM event", "events", problems):
        try:
            events.append(codec.event_from_json(text))
        except (ValueError, TypeError) as error:
            problems.append(f"an event cannot be read: {error}")
    return tuple(sorted(events, key=lambda e: (e.step, e.detector, e.layer or "", e.id)))


def _read_observations(
    connection: sqlite3.Connection, problems: list[str]
) -> tuple[Observation, ...]:
    query = "SELECT document FROM observation ORDER BY id"
    observations = []
    for (text,) in _select(connection, query, "observations", problems):
        try:
            observations.append(codec.observation_from_json(text))
        except (ValueError, TypeError) as error:
            problems.append(f"an observation cannot be read: {error}")
    return tuple(observations)


def _read_series(
    connection: sqlite3.Connection, problems: list[str]
) -> dict[str, Mapping[str, Series]]:
    names = _select(
        connection, "SELECT id, kind, name, stride FROM series ORDER BY id", "series", problems
    )
    query = (
        "SELECT series, size, check_sum, first_step, stride, steps, figures FROM chunk "
        "ORDER BY series, part"
    )
    parts: dict[int, list[tuple[Any, Any]]] = {}
    for identity, *columns in _select(connection, query, "parts of series", problems):
        try:
            parts.setdefault(identity, []).append(codec.decode_chunk(codec.Chunk(*columns)))
        except (ValueError, TypeError) as error:
            problems.append(f"up to 512 values of a series cannot be read: {error}")
    result: dict[str, dict[str, Series]] = {"loss": {}, "metric": {}}
    for identity, kind, name, stride in names:
        if not (isinstance(kind, str) and isinstance(name, str) and isinstance(stride, int)):
            problems.append(f"the name of series {identity} cannot be read")
        elif chunks := parts.get(identity):
            steps, values = (np.concatenate(columns) for columns in zip(*chunks, strict=True))
            result.setdefault(kind, {})[name] = Series(steps, values, stride)
    return {kind: MappingProxyType(found) for kind, found in result.items()}


def _read_end(connection: sqlite3.Connection, problems: list[str]) -> tuple[int, int | None]:
    query = "SELECT last + 1, last_step FROM fact ORDER BY first DESC LIMIT 1"
    count, label = next(iter(_select(connection, query, "last step", problems)), (0, None))
    return count if isinstance(count, int) else 0, label if isinstance(label, int) else None


def _read_layouts(connection: sqlite3.Connection, problems: list[str]) -> dict[int, Layout]:
    """Return the layouts that can be read, by their number in the rows of facts."""
    layouts: dict[int, Layout] = {}
    for identity, text in _select(connection, "SELECT id, shapes FROM layout", "layouts", problems):
        try:
            layouts[identity] = Layout.from_json(text)
        except (ValueError, TypeError) as error:
            problems.append(f"a layout of facts cannot be read: {error}")
    return layouts


def _read_rows(
    connection: sqlite3.Connection, layouts: dict[int, Layout], problems: list[str]
) -> list[facts.Row]:
    """Return all rows of facts; where the file is damaged, those before and after the damage."""
    count = len(problems)
    rows = _select(connection, f"{facts.SELECT} ORDER BY first", "steps", problems)
    if len(problems) > count:
        found = {row[0] for row in rows}
        back = _select(
            connection, f"{facts.SELECT} ORDER BY first DESC", "steps from the end", problems
        )
        rows += [row for row in reversed(back) if row[0] not in found]
    intact = [row for row in rows if _is_intact(row, layouts)]
    if len(intact) < len(rows):
        problems.append(f"{len(rows) - len(intact)} rows of facts have a wrong check sum")
    return intact


def _is_intact(row: tuple[Any, ...], layouts: dict[int, Layout]) -> bool:
    """Whether a row has the content it was written with: a torn page may give anything."""
    numbers, mean, extremes = row[:6], row[6], row[7:9]
    if not all(isinstance(number, int) for number in numbers) or row[4] not in layouts:
        return False
    # A bucket may hold one step alone, and still has extremes: an exact row never has.
    size, is_exact = 4 * layouts[row[4]].width, extremes == (None, None)
    blobs = (mean,) if is_exact else (mean, *extremes)
    is_complete = all(isinstance(blob, bytes) and len(blob) == size for blob in blobs)
    is_consistent = row[0] == row[1] if is_exact else row[0] <= row[1]
    return is_complete and is_consistent and zlib.crc32(mean) == row[5]


def stored_rows(trace: Trace) -> tuple[list[facts.Row], dict[int, Layout]]:
    """Return the rows of facts as they are stored, in order, and the layouts that they refer to."""
    problems: list[str] = []
    with trace.source.reading() as connection:
        layouts = _read_layouts(connection, problems)
        return _read_rows(connection, layouts, problems), layouts


def _read_facts(run: RunInfo, connection: sqlite3.Connection, problems: list[str]) -> FactTable:
    layouts = _read_layouts(connection, problems)
    target = Layout.of_run(run)
    for layout in layouts.values():
        target = target.union(layout)
    rows = _read_rows(connection, layouts, problems)
    numbers = np.array([row[:5] for row in rows], dtype=np.int64).reshape(len(rows), 5)
    means = _matrix(rows, [row[6] for row in rows], layouts, target)
    wide = [row for row in rows if row[1] > row[0]]  # of one step alone the mean says all
    low = _matrix(wide, [row[7] for row in wide], layouts, target)
    high = _matrix(wide, [row[8] for row in wide], layouts, target)
    widths = numbers[:, 1] - numbers[:, 0] + 1
    return FactTable(target, means, numbers[:, 2], numbers[:, 3], widths, (low, high))


def _matrix(
    rows: list[facts.Row], blobs: list[Any], layouts: dict[int, Layout], target: Layout
) -> Any:
    """Return stored vectors as one matrix, `[T, target.width]`."""
    matrix = np.full((len(rows), target.width), np.nan, dtype=np.float32)
    identities = np.array([row[4] for row in rows])
    for identity in sorted(set(identities.tolist())):
        (places,) = np.nonzero(identities == identity)
        layout = layouts[identity]
        values = np.frombuffer(b"".join(blobs[place] for place in places), dtype="<f4")
        matrix[places] = repack(values.reshape(-1, layout.width), layout, target)
    return matrix
