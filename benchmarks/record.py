# SPDX-License-Identifier: MIT
"""Machine-readable results: what was measured, by which command, with what, when, on what.

Each measurement writes one JSON file under `benchmarks/results/`; `report.py` renders the pages
from these files and from nothing else. A machine is described by its kind, never by its name.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("neuraldbg", "neuraldbg-engine", "torch", "numpy")


def versions(*names: str) -> dict[str, str]:
    """Return the installed versions of packages, those that are missing left out."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Return what kind of machine this is: processor, cores, memory, system."""
    processor = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        found = re.search(r"(?m)^model name\s*: (.+)$", cpuinfo.read_text(encoding="utf-8"))
        processor = found[1].strip() if found else processor
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "memory_gib": round(pages / 2**30),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def command() -> str:
    """Return the command that runs now, without the paths of this machine."""
    script, *arguments = sys.argv
    script = Path(script).resolve().relative_to(RESULTS.resolve().parents[1]).as_posix()
    shown = [Path(a).name if os.sep in a else a for a in arguments]
    shown = ["PYTHON" if a.startswith("python") else a for a in shown]
    return " ".join(["python", script, *shown])


def save(name: str, command: str, data: dict[str, Any], **more_versions: str) -> Path:
    """Write one measurement under its name, with all that a reader needs to judge it."""
    document = {
        "measurement": name,
        "command": command,
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "versions": versions(*PACKAGES) | more_versions,
        "machine": machine(),
        "data": data,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    text = json.dumps(document, indent=None, sort_keys=True, default=str)
    # One row per line: a changed verdict is a changed line.
    path.write_text(text.replace("}, {", "},\n{") + "\n", encoding="utf-8")
    return path


def load(name: str) -> dict[str, Any] | None:
    """Return a measurement as it was saved, None where it was never made."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
