# SPDX-License-Identifier: MIT
"""Write the catalogue of causes and detectors: `python docs/catalogue.py`.

Pages come from the vocabulary, the docstrings of the programs, the source of the detectors and
`causes/catalogue.toml`. What NeuralDBG says of a program comes from running it: `says.txt` beside
the program, and `detectors.json`, for each cause the detectors whose events are its evidence.
Detectors whose events no cause cites have programs of their own, in `detectors/NAME`.
With `--pages`, nothing is run and only the pages are written; with ids of causes or names of
detectors, only their programs are run.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import json
import os
import re
import runpy
import socket
import subprocess
import sys
import tempfile
import tomllib
import warnings
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuraldbg.causes import Cause, vocabulary
from neuraldbg.detectors import neuraldbg_detectors
from neuraldbg.plugins.host import DISABLE

if TYPE_CHECKING:
    from collections.abc import Collection

    from neuraldbg.detector import Detector
    from neuraldbg.inquiry import Inquiry

DOCS = Path(__file__).parent
CAUSES, DETECTORS = DOCS / "causes", DOCS / "detectors"


@cache
def notes() -> dict[str, Any]:
    """Return `catalogue.toml`: `unseen`, `accepted` and `known_gaps`."""
    return tomllib.loads((CAUSES / "catalogue.toml").read_text(encoding="utf-8"))


def session(program: Path) -> Inquiry:
    """Run a program of the catalogue, on one thread and without plugins; return its session.

    One that joins a process group is run by two ranks; their traces are merged.
    """
    import torch

    threads, plugins = torch.get_num_threads(), os.environ.get(DISABLE)
    torch.set_num_threads(1)
    os.environ[DISABLE] = "all"
    try:
        if "init_process_group" in program.read_text(encoding="utf-8"):
            return joint_session(program)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of some faults itself
            dbg: Inquiry = runpy.run_path(str(program))["dbg"]
    finally:
        torch.set_num_threads(threads)
        if plugins is None:
            del os.environ[DISABLE]
        else:
            os.environ[DISABLE] = plugins
    return dbg


def joint_session(program: Path) -> Inquiry:
    """Run a program as rank 0 and rank 1, as a launcher would; return the merged trace."""
    from neuraldbg import merge_traces

    folder = tempfile.TemporaryDirectory()
    FOLDERS.append(folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    shared |= {DISABLE: "all", "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(  # noqa: S603 - a program of this repository
            [sys.executable, str(program.resolve())],
            cwd=folder.name,
            env={**os.environ, **shared, "RANK": str(rank)},
        )
        for rank in range(2)
    ]
    try:
        failed = sum(abs(rank.wait(timeout=240)) for rank in ranks)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if failed:
        message = f"a rank of {program} failed"
        raise RuntimeError(message)
    traces = [Path(folder.name, name) for name in ("run.ndbg", "run.rank1.ndbg")]
    inquiry = merge_traces(traces, Path(folder.name, "merged.ndbg"))
    _ = inquiry.host  # loads its plugins, or none: as the environment is now
    return inquiry


FOLDERS: list[tempfile.TemporaryDirectory[str]] = []
"""Where ranks ran: their merged trace is read as long as this process lives."""


def record(only: Collection[str] = ()) -> None:
    """Run the bad programs; write what NeuralDBG says of each, and whose events it cites."""
    seen = evidence()
    for folder in sorted(path.parent for path in CAUSES.glob("*/bad.py")):
        if only and folder.name not in only:
            continue
        dbg = session(folder / "bad.py")
        lines = [line.rstrip() for line in dbg.summary().splitlines()]
        (folder / "says.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        mine = [one for one in dbg.explain_failure() if one.cause == folder.name]
        if (
            folder.name in notes()["known_gaps"]["bad"]
            and dbg.explain_failure()[:1] == mine[:1] != []
        ):
            print(f"{folder.name} is a known gap no longer: take it out of catalogue.toml")
        seen[folder.name] = sorted({event.detector for one in mine for event in one.evidence})
    for folder in sorted(path.parent for path in DETECTORS.glob("*/bad.py")):
        if not only or folder.name in only:
            lines = events_of(folder.name, session(folder / "bad.py"))
            (folder / "says.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    text = json.dumps(seen, indent=2, sort_keys=True)
    (CAUSES / "detectors.json").write_text(f"{text}\n", encoding="utf-8")


def evidence() -> dict[str, list[str]]:
    """Return for each cause the detectors whose events were cited when its program was run."""
    path = CAUSES / "detectors.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


# --- causes -----------------------------------------------------------------------------------


def sentences(text: str) -> str:
    """Return a text with one sentence per line."""
    return re.sub(r"(?<=[a-z0-9)`][.!?:]) (?=[A-Z`])", "\n", " ".join(text.split()))


def docstring(program: Path) -> tuple[str, str, int]:
    """Return the first line of a program's docstring, the rest, and where its code begins."""
    tree = ast.parse(program.read_text(encoding="utf-8"))
    first, _, rest = (ast.get_docstring(tree) or "").partition("\n\n")
    return first, rest, tree.body[1].lineno


def listing(folder: Path, program: str, *, marked: str = "") -> str:
    """Return the directive that shows a program from its first statement on."""
    start = docstring(folder / program)[2]
    options = f":language: python\n:lines: {start}-\n"
    if marked:
        options += f":emphasize-lines: {marked}\n"
    return f"```{{literalinclude}} {folder.name}/{program}\n{options}```\n"


def pair(folder: Path) -> tuple[str, str]:
    """Return the listings of the bad and of the good program, with what differs marked."""
    return (
        listing(folder, "bad.py", marked=changed(folder, "bad.py", "good.py")),
        listing(folder, "good.py", marked=changed(folder, "good.py", "bad.py")),
    )


def changed(folder: Path, program: str, other: str) -> str:
    """Return the shown lines in which a program differs from the other one, as Sphinx counts."""
    start = docstring(folder / program)[2]
    here, there = (
        (folder / file).read_text(encoding="utf-8").splitlines()[begin - 1 :]
        for file, begin in ((program, start), (other, docstring(folder / other)[2]))
    )
    matcher = difflib.SequenceMatcher(None, there, here, autojunk=False)
    lines = [
        str(line + 1)
        for kind, _, _, first, last in matcher.get_opcodes()
        if kind != "equal"
        for line in range(first, last)
        if here[line].strip()
    ]
    return ",".join(lines)


def said(name: str) -> str:
    """Return the section on what NeuralDBG says of the bad program."""
    text = "## What NeuralDBG says of it\n\n"
    text += f"```{{literalinclude}} {name}/says.txt\n:language: text\n```\n"
    if name in notes()["known_gaps"]["bad"]:
        text += _gap(f"It should say `{name}` first.", notes()["known_gaps"]["bad"][name])
    if name in notes()["accepted"]:
        other = notes()["accepted"][name]
        text += (
            f"\nThat it says `{other['cause']}` first is as right.\n{sentences(other['reason'])}\n"
        )
    return text


def unsaid(name: str) -> str:
    """Return the sentence on what NeuralDBG says of the good program."""
    if name in notes()["known_gaps"]["good"]:
        gap = _gap("It should say nothing of this program.", notes()["known_gaps"]["good"][name])
        return gap.lstrip("\n")
    return "Of this program NeuralDBG says nothing.\n"


def _gap(what: str, why: str) -> str:
    return f"\n:::{{admonition}} A known gap\n{what}\n{sentences(why)}\n:::\n"


def cause_page(cause: Cause) -> str:
    """Return the page of a cause."""
    failures = ", ".join(f"`{failure}`" for failure in cause.failures)
    signs = f"## How it shows\n\n{_stated(cause.signs)}\n\nIt is seen as {failures}.\n"
    spares = (
        _stated(cause.spares)
        if cause.spares
        else "Nothing of its own: only that its signs are missing."
    )
    against = f"## What speaks against it\n\n{spares}\n"
    remedy = f"## What to do\n\n{_stated(cause.remedy)}\n"
    confirm = _stated(cause.confirm) if cause.confirm else NOT_TO_BE_REPLAYED
    proof = f"## How to confirm it\n\n{confirm}\n"
    if cause.id in notes()["unseen"]:
        about = f"{sentences(notes()['unseen'][cause.id])}\nThere is no program for it here.\n"
        return "\n".join([f"# `{cause.id}`\n", about, signs, against, remedy, proof])
    what, why, _ = docstring(CAUSES / cause.id / "bad.py")
    better = docstring(CAUSES / cause.id / "good.py")[0]
    bad, good = pair(CAUSES / cause.id)
    return "\n".join(
        [
            f"# `{cause.id}`\n",
            f"## What happens\n\n{what}\n{sentences(why)}\n",
            signs,
            against,
            f"## A program that has it\n\n{bad}",
            said(cause.id),
            remedy,
            f"{better}\n\n{good}",
            unsaid(cause.id),
            proof,
        ]
    )


NOT_TO_BE_REPLAYED = "No replay of recorded steps can prove it: the evidence must carry it."


def _stated(text: str) -> str:
    """Return an entry of the vocabulary as a sentence."""
    is_prose = re.match(r"[a-z]+[ ,;:]", text)
    whole = text[:1].upper() + text[1:] if is_prose else text
    return sentences(whole if whole.endswith((".", "?", "!")) else f"{whole}.")


def causes_index() -> str:
    """Return the list of all causes, by the failure under which they are usually seen first."""
    text = (
        "# Causes\n\n"
        "Why a run fails: one page per cause, each with a program that has the fault, what "
        "NeuralDBG says of it, and the same program without it.\n"
        "The programs are short, and run as they stand.\n"
        "All of them are tests: the bad one must be named, of the good one nothing may be said.\n"
        "Where that does not hold, the page says so.\n"
    )
    known = vocabulary()
    for failure, sentence in known.failure_types.items():
        members = [cause for cause in known.causes.values() if cause.failures[0] == failure]
        if not members:
            continue
        rows = "\n".join(f"| [`{c.id}`]({c.id}.md) | {_teaser(c)} |" for c in members)
        about = _stated(re.sub(r" \(states: .*\)", "", sentence))
        text += f"\n## `{failure}`\n\n{about}\n\n| cause | for example |\n|---|---|\n{rows}\n"
    listed = "\n".join(sorted(known.causes))
    return f"{text}\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def _teaser(cause: Cause) -> str:
    if cause.id in notes()["unseen"]:
        return "not seen by the core alone"
    gap = " (a known gap)" if cause.id in notes()["known_gaps"]["bad"] else ""
    return docstring(CAUSES / cause.id / "bad.py")[0].rstrip(".").replace("|", r"\|") + gap


# --- detectors --------------------------------------------------------------------------------


def thresholds(source: str) -> list[tuple[str, str, str]]:
    """Return (name, value, what its docstring says) of the numbers of a detector's module."""
    found = []
    for node, after in pairwise([*ast.parse(source).body, ast.Pass()]):
        match node, after:
            case ast.Assign([ast.Name(name)], ast.Constant() as value), ast.Expr(
                ast.Constant(about)
            ):
                found.append((name, ast.unparse(value), " ".join(str(about).split())))
            case ast.Assign([ast.Name(name)], ast.Constant() as value), _:
                found.append((name, ast.unparse(value), ""))
    return found


def kinds(module: object) -> list[str]:
    """Return the kinds of observation that a detector turns into events."""
    return sorted(getattr(module, "KINDS", ()))


def detector_page(detector: type[Detector]) -> str:
    """Return the page of a detector."""
    module = importlib.import_module(detector.__module__)
    source = Path(str(module.__file__)).read_text(encoding="utf-8")
    types = ", ".join(f"`{kind}`" for kind in sorted(map(str, detector.event_types)))
    text = f"# `{detector.name}`\n\n{sentences(module.__doc__ or '')}\n"
    text += f"\n## What it says\n\n{sentences(detector.__doc__ or '')}\n"
    text += f"Its events are {types}; [Events](../reference/events.md) has their states.\n"
    if kinds(module):
        listed = "\n".join(f"- `{kind}`" for kind in kinds(module))
        text += (
            "\nIt turns these [observations](../reference/observations.md) into events:\n\n"
            f"{listed}\n"
        )
    text += f"\n## Thresholds and where they come from\n\n{_threshold_table(source)}\n"
    return f"{text}\n## Programs\n\n{_programs(detector.name)}"


def _threshold_table(source: str) -> str:
    from neuraldbg.settings import Settings

    rows = [
        f"| `{name}` | {field.default:g} | {SETTINGS[name]} |"
        for name, field in Settings.model_fields.items()
        if name in SETTINGS and f"settings.{name}" in source
    ]
    rows += [f"| `{name}` | {value} | {about} |" for name, value, about in thresholds(source)]
    if not rows:
        return "None: it passes on what capture found."
    return "\n".join(["| threshold | value | why |", "|---|---|---|", *rows])


SETTINGS = {
    "threshold_vanishing": "A setting of the session: L2 gradient norm below which a layer is "
    "`vanishing`. The public default of 1.x.",
    "threshold_exploding": "A setting of the session: L2 gradient norm above which a layer is "
    "`exploding`. The public default of 1.x.",
}


def _programs(name: str) -> str:
    if (DETECTORS / name).is_dir():
        return _own_programs(DETECTORS / name)
    members = [cause for cause, detectors in sorted(evidence().items()) if name in detectors]
    listed = "\n".join(f"- [`{cause}`](../causes/{cause}.md)" for cause in members)
    return (
        "Each of these pages has a program that sets it off and one without the fault, "
        f"and its events are evidence of the cause:\n\n{listed}\n"
    )


def _own_programs(folder: Path) -> str:
    """Return the programs of a detector whose events no cause of the catalogue cites."""
    bad, good = pair(folder)
    what, why, _ = docstring(folder / "bad.py")
    better = docstring(folder / "good.py")[0]
    return (
        "No cause of the catalogue rests on its events alone: they are notes.\n\n"
        f"{what}\n{sentences(why)}\n\n{bad}\nIts events:\n\n"
        f"```{{literalinclude}} {folder.name}/says.txt\n:language: text\n```\n\n"
        f"{better}\n\n{good}\nOf this program it reports nothing.\n"
    )


def events_of(detector: str, dbg: Inquiry) -> list[str]:
    """Return the events of one detector, one line each."""
    return [str(event) for event in dbg.events if event.detector == detector]


def detectors_index() -> str:
    """Return the list of all detectors."""
    detectors = neuraldbg_detectors()
    rows = "\n".join(
        f"| [`{d.name}`]({d.name}.md) | {sentences(d.__doc__ or '').splitlines()[0]} |"
        for d in detectors
    )
    listed = "\n".join(d.name for d in detectors)
    return (
        "# Detectors\n\n"
        "What watches a run: one page per built-in detector, with its thresholds and their "
        "sources.\n"
        "Detectors see every step in this order, and say *that* something changed.\n"
        "[Causes](../causes/index.md) say why.\n"
        "[Write a detector](../write-a-detector.md) adds one of your own.\n\n"
        f"| detector | says |\n|---|---|\n{rows}\n\n"
        f"```{{toctree}}\n:hidden:\n\n{listed}\n```\n"
    )


# --- all --------------------------------------------------------------------------------------


def pages() -> dict[Path, str]:
    """Return every page of the catalogue with its text."""
    found = {CAUSES / "index.md": causes_index(), DETECTORS / "index.md": detectors_index()}
    for cause in vocabulary().causes.values():
        found[CAUSES / f"{cause.id}.md"] = cause_page(cause)
    for detector in neuraldbg_detectors():
        found[DETECTORS / f"{detector.name}.md"] = detector_page(detector)
    return found


if __name__ == "__main__":
    if "--pages" not in sys.argv:
        record(sys.argv[1:])
    DETECTORS.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
