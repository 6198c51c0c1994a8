# SPDX-License-Identifier: MIT
"""The section of docs/benchmarks.md on the programs: the self-check and the operators."""

from __future__ import annotations

import ast
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

from programs_of import architecture
from tables import paragraphs, share, table

ZOO = Path(__file__).parent / "zoo"


def zoo(document: dict[str, Any]) -> str:
    """Return the section on what the zoo holds, and which of its pairs the self-check passes."""
    rows = document["data"]["rows"]
    run = [row for row in rows if "skipped" not in row]
    pairs, healthy = [r for r in run if r["causes"]], [r for r in run if not r["causes"]]
    causes = {row["causes"][0] for row in pairs}
    files = {row["program"].partition("::")[0] for row in run}
    seeds = ", ".join(str(seed) for seed in run[0]["seeds"])
    return paragraphs(
        "## The programs",
        f"{len(files)} programs: {len(pairs)} pairs of a program and a fault of {len(causes)} "
        f"causes, and {len(healthy)} healthy programs.\n"
        f"`{document['command']}` runs each with its fault and without it on seeds {seeds}, and "
        "NeuralDBG takes no part.\n"
        "A pair passes where the fault hurts on every seed and removing it helps on every seed; a "
        "healthy program where it learns on every seed.",
        _passed(pairs, healthy),
        _failed(rows),
        "### Faults put in by operators",
        _operators(),
    )


def _passed(pairs: list[dict[str, Any]], healthy: list[dict[str, Any]]) -> str:
    groups: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for kind, rows in (("pairs", pairs), ("healthy", healthy)):
        for row in rows:
            name = architecture(f"{row['program'].partition('::')[0]}.py")
            groups[name][kind].append(row)
            groups["all"][kind].append(row)
    names = sorted(groups, key=lambda name: (name == "all", name.lower()))
    lines = [(n, _share(groups[n]["pairs"]), _share(groups[n]["healthy"])) for n in names]
    return table(("architecture", "pairs that pass", "healthy programs that pass"), lines)


def _share(rows: list[dict[str, Any]]) -> str:
    return share(sum(not row["wrong"] for row in rows), len(rows))


def _failed(rows: list[dict[str, Any]]) -> str:
    lines = [f"- `{row['program']}` fails: {why}" for row in rows for why in row["wrong"]]
    lines += [
        f"- `{row['program']}` was not run: {row['skipped']}" for row in rows if "skipped" in row
    ]
    return "\n".join(lines)


def _operators() -> str:
    """Return the table of injected.toml: for each operator the programs that it hurts."""
    stored = tomllib.loads((ZOO / "injected.toml").read_text(encoding="utf-8"))
    lines, hurts, tried = [], 0, 0
    for path in sorted((ZOO / "operators").glob("[a-z]*.py")):
        mine = [n for n in stored["pairs"] if n.startswith(f"{path.stem}@")]
        others = [n for n in stored["not_counted"] if n.startswith(f"{path.stem}@")]
        hurts, tried = hurts + len(mine), tried + len(mine) + len(others)
        shown = ", ".join(f"`{n.partition('@')[2].removeprefix('healthy_')}`" for n in mine)
        cause = f"`{_causes(path)[0]}`"
        lines.append((f"`{path.stem}`", cause, len(mine), len(mine) + len(others), shown))
    return paragraphs(
        f"{len(lines)} general operators, tried on healthy programs that know nothing of them: "
        f"{hurts} pairs of {tried} count.\n"
        "A pair counts where the program, on each of three seeds, does not learn any more, raises, "
        "or loses a quarter of the way that its loss goes without the fault.\n"
        "`python benchmarks/zoo/inject.py --write` tries them and stores what it found, with the "
        "reason where a pair does not count, in `benchmarks/zoo/injected.toml`.",
        table(("operator", "cause", "hurts", "tried on", "programs"), lines),
    )


def _causes(path: Path) -> list[str]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "CAUSES":
            return list(ast.literal_eval(node.value))
    raise ValueError(f"{path.name} names no CAUSES")
