# SPDX-License-Identifier: MIT
"""The database behind a writer: a file while the disk plays along, memory otherwise."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from neuraldbg.trace import schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.schema.run import RunInfo

T = TypeVar("T")

BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
DISK_ERRORS = (sqlite3.Error, OSError)


LOG_PAGES = 4096
"""Pages of 4 kB in the log between checkpoints. Heuristic: a fourth of SQLite's waits for the
disk, a log of 16 MB that goes when the run ends."""


class Busy(Exception):  # noqa: N818 - a state, not an error: the caller tries again
    """A reader holds a file without WAL; nothing was written."""


def path_of_rank(path: str | os.PathLike[str], run: RunInfo) -> Path:
    """Return where a rank writes: rank 0 to `path`, rank 3 beside it, as in `run.rank3.ndbg`."""
    place = Path(path).absolute()
    return place if run.rank == 0 else place.with_suffix(f".rank{run.rank}{place.suffix}")


class Store:
    """One SQLite connection that goes to memory, once, when its file cannot be written.

    Args:
        path: The file to create, or None for memory.
        on_trouble: Called with one sentence when the file is given up.
    """

    def __init__(self, path: Path | None, on_trouble: Callable[[str], None]) -> None:
        self.path = path
        self._on_trouble = on_trouble
        self._inode = 0
        self._process = os.getpid()
        if path is None:
            self.connection = _in_memory()
            return
        try:
            self.connection = create_file(path)
            self._inode = path.stat().st_ino
        except DISK_ERRORS as error:
            self.connection = _in_memory()
            self._give_up(error)

    def transact(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` in one transaction and return its result.

        `work` may be called twice, so it changes nothing but the database.

        Raises:
            Busy: A reader holds the file; nothing was written.
        """
        try:
            if self.path is not None and self.path.stat().st_ino != self._inode:
                raise FileNotFoundError("another file has taken its place")
            return self._commit(work)
        except DISK_ERRORS as error:
            if getattr(error, "sqlite_errorcode", None) in BUSY:
                raise Busy from error
            if self.path is None:
                raise
            self.fall_back(error)
            return self._commit(work)

    def _commit(self, work: Callable[[sqlite3.Connection], T]) -> T:
        connection = self.connection
        try:
            connection.execute("BEGIN IMMEDIATE")
            result = work(connection)
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(*DISK_ERRORS):
                connection.execute("ROLLBACK")
            raise
        return result

    def fall_back(self, error: Exception) -> None:
        """Go on in memory, with everything that the file holds."""
        memory = schema.connect(":memory:")
        try:
            self.connection.backup(memory)
        except DISK_ERRORS:
            memory.close()
            memory = _in_memory()
        with contextlib.suppress(*DISK_ERRORS):
            self.connection.close()
        self.connection = memory
        self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        path, self.path = self.path, None
        self._on_trouble(
            f"trace {str(path)!r} cannot be written ({error}); this run is recorded in memory from "
            "here on, and lost with the process"
        )

    def start_log(self) -> None:
        """Go on with a write-ahead log, where the file system has what it needs.

        What was committed before is in the file itself, so a copy of it is a trace at any time.
        """
        if self.path is None:
            return
        with contextlib.suppress(*DISK_ERRORS):
            (mode,) = self.connection.execute("PRAGMA journal_mode = WAL").fetchone()
            if mode == "wal":
                # Only checkpoints wait for the disk. Without a log every commit would: there a
                # killed process still loses nothing, a power cut may.
                self.connection.execute("PRAGMA synchronous = NORMAL")
                self.connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")

    def close_file(self) -> None:
        """Leave a file that is complete in itself, without a write-ahead log beside it."""
        if os.getpid() != self._process:
            return
        with contextlib.suppress(*DISK_ERRORS):
            self.connection.execute("PRAGMA journal_mode = DELETE")
        with contextlib.suppress(*DISK_ERRORS):
            self.connection.close()


def _in_memory() -> sqlite3.Connection:
    connection = schema.connect(":memory:")
    schema.create(connection)
    return connection


def create_file(path: Path) -> sqlite3.Connection:
    """Create `path`; an older trace gives way, any other file does not.

    Raises:
        FileExistsError: Something that is no trace stands there.
    """
    if path.exists() or path.is_symlink():
        # A device, a pipe or a link is somebody else's, whatever it reads as: `/dev/null` is empty.
        if path.is_symlink() or not path.is_file():
            raise FileExistsError("something that is no regular file stands there: left alone")
        if path.stat().st_size and not schema.is_trace(path):
            raise FileExistsError("a file that is no trace stands there, and is left alone")
        for name in (path, Path(f"{path}-wal"), Path(f"{path}-shm"), Path(f"{path}-journal")):
            name.unlink(missing_ok=True)
    connection = schema.connect(str(path))
    try:
        connection.execute("PRAGMA synchronous = OFF")
        schema.create(connection)
    except BaseException:
        connection.close()
        raise
    return connection
