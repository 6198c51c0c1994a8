# SPDX-License-Identifier: MIT
"""Where the zoo's programs lie, what each is called, and one face for all of them.

A name is `FILE.py` (one fault, or none), `FILE.py::FAULT` (one of a file's several faults),
or `OPERATOR@FILE.py` (a healthy program with a fault put in by an operator, see inject.py).
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from types import ModuleType

HERE = Path(__file__).parent
HELD_OUT = HERE / "held_out"
"""Programs that nobody who writes rules reads: what is said of them is measured, never mended."""
FOLDERS = (HERE / "programs", HERE / "optional", HELD_OUT)
NOT_PROGRAMS = {"__init__.py", "harness.py"}


class Train(Protocol):
    """Run the program once; `watch(model)` gives the context that it enters around its loop."""

    def __call__(
        self, watch: Any, *, fixed: bool = False, seed: int = 0, severity: float = 1.0
    ) -> dict[str, Any]: ...


class Harmed(Protocol):
    """Say whether a result of `train` shows the harm."""

    def __call__(self, result: dict[str, Any]) -> bool: ...


@dataclass(frozen=True)
class Program:
    """One program with one fault (or none), whatever file it comes from."""

    name: str
    """How it is shown: `stem`, `stem::fault` or `operator@stem`."""
    family: str
    """The file that it shares its healthy form with: what leave-program-out leaves out."""
    TRUTH: dict[str, Any]
    train: Train
    harmed: Harmed
    skip: str = ""
    """Why it cannot run here; empty where it can."""


def module_of(path: str | Path) -> ModuleType:
    """Import a program's file under a name of its own, once per process."""
    path = Path(path).resolve()
    name = f"zoo_{path.parent.name}_{path.stem}"
    known = sys.modules.get(name)
    if known is not None and known.__file__ == str(path):
        return known
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        message = f"cannot import {str(path)!r}"
        raise ImportError(message)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def missing(path: str | Path) -> str:
    """Return why a file cannot run here: the first of its REQUIRES that is not installed."""
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        if line.startswith("REQUIRES = "):
            for library in line.partition("=")[2].strip(" []()").replace(",", " ").split():
                if importlib.util.find_spec(library.strip("\"'")) is None:
                    return f"needs {library.strip(chr(34) + chr(39))}, which is not installed"
    return ""


def with_severity(train: Any, **fixed_arguments: Any) -> Train:
    """Return `train` with some arguments set, and `severity` dropped where it takes none."""
    graded = "severity" in inspect.signature(train).parameters

    def run(watch: Any, *, fixed: bool = False, seed: int = 0, severity: float = 1.0) -> Any:
        more = {"severity": severity} if graded else {}
        return train(watch, fixed=fixed, seed=seed, **more, **fixed_arguments)

    return functools.update_wrapper(run, train)


def load(name: str) -> Program:
    """Return the program called `name` (a path, with `::FAULT` or `OPERATOR@` where it has one)."""
    if "@" in Path(name).name:
        from inject import injected

        return injected(name)
    path, _, fault = name.partition("::")
    stem = Path(path).stem
    skip = missing(path)
    if skip:
        empty: dict[str, Any] = {"failures": [], "causes": [], "layers": [], "onset": None}
        return Program(f"{stem}::{fault}" if fault else stem, stem, empty, None, None, skip)  # type: ignore[arg-type]
    module = module_of(path)
    if not fault:
        return Program(stem, stem, module.TRUTH, with_severity(module.train), module.harmed)
    train = with_severity(module.train, fault=fault)
    return Program(f"{stem}::{fault}", stem, module.FAULTS[fault], train, module.harmed)


def names_in(path: Path) -> list[str]:
    """Return the names of a file's programs: one for each fault where it lists several."""
    if missing(path):
        return [str(path)]
    faults = getattr(module_of(path), "FAULTS", None)
    return [f"{path}::{fault}" for fault in faults] if faults else [str(path)]


def expand(paths: list[str]) -> list[str]:
    """Return the names under files and folders (the zoo's own folders where none is given)."""
    names: list[str] = []
    for path in paths or [str(folder) for folder in FOLDERS if folder.is_dir()]:
        if "::" in path or "@" in Path(path).name:
            names.append(path)
        elif Path(path).suffix == ".toml":
            from inject import counted

            names += counted(Path(path))
        elif Path(path).is_dir():
            files = sorted(p for p in Path(path).glob("[a-z]*.py") if p.name not in NOT_PROGRAMS)
            names += [name for file in files for name in names_in(file)]
        else:
            names += names_in(Path(path))
    return names
