# SPDX-License-Identifier: MIT
"""The tables of a trace file, and the checks that tell a trace from anything else.

A file is recognised by its first 100 bytes alone, so that a damaged one can still be named: the
SQLite signature, the application id `NDBG` at byte 68 and the schema version at byte 60.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from neuraldbg.errors import TraceError
from neuraldbg.schema.run import SCHEMA_VERSION

if TYPE_CHECKING:
    from pathlib import Path

APPLICATION_ID = int.from_bytes(b"NDBG", "big")
SIGNATURE = b"SQLite format 3\x00"

TABLES = f"""
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {SCHEMA_VERSION};
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE layout (id INTEGER PRIMARY KEY, shapes TEXT NOT NULL);
CREATE TABLE fact (
    first INTEGER PRIMARY KEY,
    last INTEGER NOT NULL,
    first_step INTEGER NOT NULL,
    last_step INTEGER NOT NULL,
    layout INTEGER NOT NULL,
    check_sum INTEGER NOT NULL,
    mean BLOB NOT NULL,
    low BLOB,
    high BLOB,
    counts BLOB
);
CREATE TABLE series (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, stride INTEGER
);
CREATE TABLE chunk (
    series INTEGER NOT NULL,
    part INTEGER NOT NULL,
    size INTEGER NOT NULL,
    check_sum INTEGER NOT NULL,
    first_step INTEGER NOT NULL,
    stride INTEGER NOT NULL,
    steps BLOB,
    figures BLOB NOT NULL,
    PRIMARY KEY (series, part)
);
CREATE TABLE event (id TEXT PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE observation (id INTEGER PRIMARY KEY, document TEXT NOT NULL);
"""


def connect(target: str, *, is_uri: bool = False) -> sqlite3.Connection:
    """Open `target` for explicit transactions; calls are serialised by the owner's own lock."""
    return sqlite3.connect(
        target, timeout=0.2, isolation_level=None, check_same_thread=False, uri=is_uri
    )


def create(connection: sqlite3.Connection) -> None:
    """Create the tables of the present schema version in an empty database."""
    connection.executescript(f"BEGIN; {TABLES} COMMIT;")


def check_file(path: Path) -> None:
    """Refuse what is not a trace that this version reads.

    Raises:
        TraceError: The file is missing, foreign, or written by a newer NeuralDBG.
    """
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise TraceError(f"trace {str(path)!r} cannot be opened: {error.strerror}") from error
    if len(header) < 100 or not header.startswith(SIGNATURE):
        what = "is empty" if not header else "is no SQLite file, or its beginning is damaged"
        raise TraceError(f"{str(path)!r} is no NeuralDBG trace: it {what}")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise TraceError(f"{str(path)!r} is no NeuralDBG trace: another program's SQLite file")
    version = int.from_bytes(header[60:64], "big")
    if version > SCHEMA_VERSION:
        raise TraceError(
            f"trace {str(path)!r} was written by a newer NeuralDBG: it has schema version "
            f"{version}, this one reads up to {SCHEMA_VERSION}; upgrade neuraldbg to read it"
        )


def is_trace(path: Path) -> bool:
    """Whether `path` is an existing NeuralDBG trace, of any version."""
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError:
        return False
    return header.startswith(SIGNATURE) and header[68:72] == b"NDBG"
