# SPDX-License-Identifier: MIT
"""Writing a trace while training runs: cheap per step, safe against everything but power cuts."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
import weakref
from collections import Counter
from typing import TYPE_CHECKING

from neuraldbg.errors import TraceError
from neuraldbg.trace import codec, facts, series
from neuraldbg.trace.layout import Layout, pack, pack_thinned
from neuraldbg.trace.store import Busy, Store, path_of_rank

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
    from pathlib import Path

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import Observation, StepFacts
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.schema.thinned import ThinnedSteps
    from neuraldbg.settings import Settings
    from neuraldbg.trace.reader import Trace

logger = logging.getLogger("neuraldbg")

DELAY_S = 0.5
"""A commit comes at most this late ..."""
DELAY_STEPS = 256
"""... or after this many steps."""
PATIENCE_STEPS = 4_096
"""Steps that wait for a reader that holds the file, before the file is given up."""
PATIENCE_CALLS = 20
"""Times 0.2 s that the end of a run waits for such a reader."""
SERIES = 512
"""Names of losses and metrics at most: names made up per step must not fill the memory."""
OBSERVATIONS = 64
"""Observations at most of one kind in one layer, for the same reason."""


class TraceWriter:
    """Records one run. Every method may be called from any thread, and none raises for the disk.

    Where the file cannot be written (full disk, read-only or removed folder), recording goes on in
    memory: logged once, and said in `RunInfo.warnings`. Calls in a forked child, and after
    `finish`, do nothing.

    Args:
        path: File to create, None for memory. An older trace at that place is replaced. Ranks
            above 0 write beside it, as in `run.rank3.ndbg`.
        run: The run as known so far.
        settings: What the session was asked to do.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, run: RunInfo, settings: Settings
    ) -> None:
        self._lock = threading.RLock()
        self.before_reading: Callable[[], None] = lambda: None
        """Called before anything is read: whoever holds steps back hands them over."""
        self._process = os.getpid()
        self._warnings: list[str] = []
        self._is_closed = False
        self._identity: tuple[int, int, int] | None = None
        self._run = run
        self._settings = codec.to_json(settings)
        self._meta: dict[str, str] = {"settings": self._settings}
        self._retention = facts.Retention()
        self._rows: list[facts.Row] = []
        self._layouts: dict[int, Layout] = {}
        self._layout_ids: dict[Layout, int] = {}
        self._target = -1
        self._series: dict[tuple[str, str], series.SeriesWriter] = {}
        self._events: dict[str, SemanticEvent] = {}
        self._event_ids: set[str] = set()
        self._observations: list[tuple[int, str]] = []
        self._observation_counts: Counter[tuple[str, str | None]] = Counter()
        self._revisions: Counter[str] = Counter()
        self._last_step_s = self._last_commit_s = time.perf_counter()
        # The finalizer holds the store, so the store must not hold this writer.
        warn = weakref.WeakMethod(self._warn)
        where = None if path is None else path_of_rank(path, run)
        self._store = Store(where, lambda sentence: _tell(warn, sentence))
        self._finalizer = weakref.finalize(self, Store.close_file, self._store)
        self.write_run(run)
        self.flush()
        self._store.start_log()

    @classmethod
    def open(
        cls, path: str | os.PathLike[str] | None, run: RunInfo, settings: Settings
    ) -> TraceWriter:
        """Start a trace."""
        return cls(path, run, settings)

    @property
    def path(self) -> Path | None:
        """The file being written; None in memory, also after a fall-back."""
        return self._store.path

    def _warn(self, sentence: str) -> None:
        logger.warning(sentence)
        self._warnings.append(sentence)
        self._meta["settings"] = self._settings
        self.write_run(self._run)

    @property
    def _is_off(self) -> bool:
        return self._is_closed or os.getpid() != self._process

    def write_run(self, run: RunInfo) -> None:
        """Replace what is known of the run itself."""
        with self._lock:
            self._run = run
            own = tuple(w for w in self._warnings if w not in run.warnings)
            stored = run.model_copy(update={"warnings": run.warnings + own}) if own else run
            self._meta["run"] = codec.to_json(stored)
            self._revisions["head"] += 1

    def write_step(self, step: StepFacts) -> None:
        """Record one finished step, with its losses, metrics and observations."""
        with self._lock:
            if self._is_off:
                return
            if step.run is not self._run:
                self.write_run(step.run)
            layout, vector = pack(step)
            identity = self._layout_ids.get(layout)
            if identity is None:
                identity = self._new_layout(layout)
            ordinal = self._retention.count
            self._retention.extend([step.step])
            self._rows.append(facts.exact_row(ordinal, step.step, identity, vector.tobytes()))
            self._append_all("loss", [step.step], [step.losses])
            self._append_all("metric", [step.step], [step.metrics])
            for observation in step.observations:
                self._observe(observation)
            self._flush_if_due(1)

    def write_thinned(self, steps: ThinnedSteps, *, is_exact: bool) -> None:
        """Record thinned steps, many in one row where they are many and nothing happened in them.

        Losses and metrics are as exact as those of `write_step`.
        """
        with self._lock:
            if self._is_off:
                return
            if steps.run is not self._run:
                self.write_run(steps.run)
            layout, matrix = pack_thinned(steps)
            identity = self._layout_ids.get(layout)
            if identity is None:
                identity = self._new_layout(layout)
            labels = steps.steps.tolist()
            first = self._retention.count
            self._retention.extend(labels)
            self._append_all("loss", labels, steps.losses)
            self._append_all("metric", labels, steps.metrics)
            self._rows += facts.thinned_rows(first, labels, identity, matrix, is_exact=is_exact)
            self._flush_if_due(len(labels))

    def _append_all(
        self, kind: str, labels: Sequence[int], figures: Sequence[Mapping[str, float]]
    ) -> None:
        """Add the numbers of several steps to their series."""
        for name in dict.fromkeys(name for numbers in figures for name in numbers):
            writer = self._series.get((kind, name)) or self._new_series(kind, name)
            if writer is not None:
                having = [i for i, numbers in enumerate(figures) if name in numbers]
                values = [float(figures[i][name]) for i in having]
                writer.extend([labels[i] for i in having], values)

    def _flush_if_due(self, count: int) -> None:
        """Commit where `count` steps that have just been recorded make it due."""
        now = time.perf_counter()
        interval, self._last_step_s = now - self._last_step_s, now
        self._revisions["facts"] += 1
        # A commit is due now if the next step is likely to come too late for it.
        is_late = now + min(interval, DELAY_S) - self._last_commit_s >= DELAY_S
        if is_late or self._retention.count % DELAY_STEPS < count:
            self.flush()

    def write_event(self, event: SemanticEvent) -> None:
        """Record an event, or replace the one with the same id."""
        with self._lock:
            if self._is_off:
                return
            is_new = event.id not in self._event_ids
            self._events[event.id] = event
            self._revisions["events"] += 1
            if is_new:
                self._event_ids.add(event.id)
                for step in {event.step, *event.step_range}:
                    width = self._layouts[self._target].width if self._layouts else 0
                    self._retention.pin(step, width)
                if time.perf_counter() - self._last_commit_s > DELAY_S / 10:
                    self.flush()

    def _new_layout(self, layout: Layout) -> int:
        """Give `layout`, and the union of all so far, an id."""
        union = layout.union(self._layouts[self._target]) if self._layouts else layout
        for one in (layout, union):
            if one not in self._layout_ids:
                self._layout_ids[one] = len(self._layouts)
                self._layouts[len(self._layouts)] = one
        self._target = self._layout_ids[union]
        return self._layout_ids[layout]

    def _new_series(self, kind: str, name: str) -> series.SeriesWriter | None:
        """Start a series; None where there are too many."""
        if len(self._series) >= SERIES:
            if len(self._series) == SERIES and "series" not in self._revisions:
                self._revisions["series"] += 1
                self._warn(f"only the first {SERIES} names of losses and metrics are recorded")
            return None
        writer = self._series[kind, name] = series.SeriesWriter(len(self._series))
        return writer

    def _observe(self, observation: Observation) -> None:
        key = observation.kind, observation.layer
        if self._observation_counts[key] < OBSERVATIONS:
            identity = self._observation_counts.total()
            self._observation_counts[key] += 1
            self._observations.append((identity, codec.observation_to_json(observation)))
            self._revisions["observations"] += 1

    def flush(self) -> None:
        """Commit everything that was recorded so far."""
        with self._lock:
            if self._is_off:
                return
            self._last_commit_s = time.perf_counter()
            try:
                self._commit()
                if self._retention.is_due:
                    self._decimate()
                for key, writer in self._series.items():
                    if writer.is_full:
                        self._series[key] = self._store.transact(writer.halved)
            except Busy as error:
                if len(self._rows) >= PATIENCE_STEPS:
                    self._store.fall_back(error)

    def _commit(self) -> None:
        is_file = self._store.path is not None
        self._store.transact(self._save)
        self._rows.clear()
        self._events.clear()
        self._observations.clear()
        self._meta.clear()
        for writer in self._series.values():
            writer.saved()
        if is_file and self._store.path is None:
            # The fall-back came with a warning, which is not in what was just saved.
            self.write_run(self._run)
            self._store.transact(self._save)
            self._meta.clear()

    def _save(self, connection: sqlite3.Connection) -> None:
        """Write all that is pending; called in a transaction, perhaps twice."""
        connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", self._meta.items())
        if self._rows:
            layouts = [(key, layout.to_json()) for key, layout in self._layouts.items()]
            connection.executemany("INSERT OR REPLACE INTO layout VALUES (?, ?)", layouts)
            connection.executemany(facts.INSERT, self._rows)
        names = [(one.identity, *key) for key, one in self._series.items()]
        connection.executemany("INSERT OR IGNORE INTO series VALUES (?, ?, ?, 1)", names)
        series.save(connection, self._series.values())
        connection.executemany("INSERT OR REPLACE INTO event VALUES (?, ?)", self._documents())
        connection.executemany("INSERT INTO observation VALUES (?, ?)", self._observations)

    def _documents(self) -> Iterator[tuple[str, str]]:
        for identity, event in self._events.items():
            try:
                document = codec.event_to_json(event)
            except Exception:
                logger.warning("event %s cannot be recorded", identity, exc_info=True)
            else:
                yield identity, document

    def _decimate(self) -> None:
        self._store.transact(
            lambda connection: self._retention.decimate(connection, self._layouts, self._target)
        )()

    def finish(self, exception: BaseException | None = None) -> None:
        """End the trace; `exception` is what ended the run, None where nothing did."""
        with self._lock:
            if self._is_off:
                return
            if exception is not None:
                self._meta["exception"] = _describe(exception)
            self._meta["finished"] = json.dumps(obj=True)
            self._revisions["head"] += 1
            for _ in range(PATIENCE_CALLS):
                self.flush()
                if not self._meta:
                    break
            else:
                logger.warning("the end of trace %r is lost: a reader holds it", str(self.path))
            self._is_closed = True
            if self._store.path is not None:
                self._finalizer()
                self._identity = _identity(self._store.path)

    def as_trace(self) -> Trace:
        """Return the trace as a reader sees it; it follows while the run goes on."""
        from neuraldbg.trace.reader import Trace

        return Trace(self)

    # What `Trace` needs of its source.

    def revision(self, section: str) -> Hashable:
        """Return a value that differs whenever `section` may have changed."""
        self.before_reading()
        return self._revisions[section], self._revisions["facts"] if section == "series" else 0

    def end(self) -> tuple[int, int | None]:
        """Return how many steps there are, and the label of the last one."""
        self.before_reading()
        return self._retention.count, self._retention.last_step

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Lend a connection that sees everything recorded so far."""
        self.before_reading()
        with self._lock:
            self.flush()
            if not self._is_closed or self._store.path is None:
                yield self._store.connection
                return
        from neuraldbg.trace.reader import FileSource

        if _identity(self._store.path) != self._identity:
            message = f"trace {str(self._store.path)!r} of this run was replaced or removed since"
            raise TraceError(message)
        with FileSource(self._store.path).reading() as connection:
            yield connection


def _tell(warn: Callable[[], Callable[[str], None] | None], sentence: str) -> None:
    method = warn()
    if method is not None:
        method(sentence)


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Return what tells a finished file from one that another run wrote in its place."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


def _describe(exception: BaseException) -> str:
    """Return the start of the `repr` of an exception, whatever its author did."""
    try:
        return repr(exception)[:4000]
    except Exception:  # noqa: BLE001 - the code of others may raise anything
        return type(exception).__name__
