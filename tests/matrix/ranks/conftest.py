"""Two ranks train in processes of their own; what they left is looked at here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from filelock import FileLock

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = Path(__file__).with_name("program.py")
RANKS = 2
PATIENCE_S = 500


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the first test of a run, which waits for the ranks, the time that they need."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.timeout(PATIENCE_S + 60))


def two_ranks(program: Path, folder: Path, *arguments: str) -> None:
    """Run `program FOLDER ...` as rank 0 and rank 1, and wait for both."""
    ranks = []
    for rank in range(RANKS):
        variables = {
            **os.environ,
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(RANKS),
            "OMP_NUM_THREADS": "1",
        }
        log = (folder / f"log{rank}").open("wb")
        command = [sys.executable, str(program), str(folder), *arguments]
        ranks.append((subprocess.Popen(command, env=variables, stdout=log, stderr=log), log))
    try:
        codes = [process.wait(timeout=PATIENCE_S) for process, _ in ranks]
    finally:
        for process, log in ranks:
            process.kill()
            process.wait()
            log.close()
    if any(codes):
        logs = [(folder / f"log{rank}").read_text(errors="replace") for rank in range(RANKS)]
        pytest.fail("a rank failed:\n" + "\n".join(log[-3000:] for log in logs), pytrace=False)


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where two ranks left what every scenario of `program.py` gave; they train once."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "ranks"
    with FileLock(shared / "ranks.lock"):
        if not (folder / "done").exists():
            folder.mkdir(exist_ok=True)
            two_ranks(PROGRAM, folder)
            (folder / "done").touch()
    return folder


@pytest.fixture(scope="session")
def reports() -> Callable[[Path, str], list[dict[str, Any]]]:
    """Return what reads what each rank wrote of a scenario."""

    def reports(folder: Path, name: str) -> list[dict[str, Any]]:
        return [json.loads((folder / f"{name}.{rank}.json").read_text()) for rank in range(RANKS)]

    return reports
