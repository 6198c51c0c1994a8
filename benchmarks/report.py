# SPDX-License-Identifier: MIT
"""Write docs/benchmarks.md and README's measured figures from benchmarks/results/.

    python benchmarks/report.py [--check]

No figure on these pages is written by hand. `--check` writes nothing and exits with 1 where a page
is not what the committed results give.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import record
import report_cost
import report_dogfood
import report_zoo
from report_accuracy import (
    EDITION,
    PARTS,
    accuracy,
    apart,
    left_out,
    quietness,
    time_to_explain,
)
from scoring import COLUMNS, counts
from tables import paragraphs, share, table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks.md"
SCENARIOS = ROOT / "docs" / "PHASE2_DOGFOODING.md"
README = ROOT / "README.md"
MEASUREMENTS = (
    "self-check",
    "accuracy",
    "accuracy-public",
    "left-out",
    "quiet",
    "quiet-public",
    "overhead",
    "overhead-accelerator",
    "overhead-alone",
    "memory",
    "explain",
)
"""In the order of their sections."""

INTRODUCTION = """\
What NeuralDBG gets right, when it is wrongly loud, and what it costs.
`python benchmarks/report.py` writes this page from the files in `benchmarks/results/`, and a test
compares the two.
`nox -s bench-accuracy`, `nox -s bench-quiet` and `nox -s bench-overhead` measure again from a clean
checkout.
The programs stand in `benchmarks/zoo/`.
"""


def provenance(documents: list[dict[str, Any]]) -> str:
    """Return what made each measurement: command, day, versions, machine."""
    lines = []
    for document in documents:
        versions = ", ".join(f"{n} {v}" for n, v in sorted(document["versions"].items()))
        kind = document["machine"]
        where = (
            f"{kind['processor']}, {kind['cores']} cores, {kind['memory_gib']} GiB, "
            f"{kind['system']}, Python {kind['python']}"
        )
        lines.append((f"`{document['command']}`", document["date"], versions, where))
    return table(("command", "date", "versions", "machine"), lines)


def page(found: dict[str, dict[str, Any]]) -> str:
    """Return docs/benchmarks.md: the sections whose measurements exist."""
    public = {name: found.get(f"{name}-public") for name in ("accuracy", "quiet")}
    sections = {
        "self-check": report_zoo.zoo,
        "accuracy": lambda document: accuracy(document, public["accuracy"]),
        "left-out": left_out,
        "quiet": lambda document: quietness(document, public["quiet"]),
        "overhead": report_cost.cost,
        "overhead-accelerator": report_cost.accelerator,
        "overhead-alone": report_cost.alone,
        "memory": report_cost.memory,
    }
    parts = [
        "# Benchmarks",
        "<!-- Written by `python benchmarks/report.py`; do not edit. -->",
        INTRODUCTION,
    ]
    parts += [section(found[name]) for name, section in sections.items() if name in found]
    if found.keys() & {"explain", "accuracy"}:
        parts.append("## Time to explain")
    if "explain" in found:
        parts.append(report_cost.explain(found["explain"]))
    if "accuracy" in found:
        parts.append(time_to_explain(found["accuracy"]))
    parts += ["## How it was measured", provenance(list(found.values())), _recorded(found)]
    return paragraphs(*parts)


def _recorded(found: dict[str, dict[str, Any]]) -> str:
    if not any("--recorded" in document["command"] for document in found.values()):
        return ""
    return (
        "`--recorded FOLDER` explains what `python benchmarks/corpus.py FOLDER` recorded before; "
        "without it the programs run anew."
    )


def readme(text: str, found: dict[str, dict[str, Any]]) -> str:
    """Return README with what stands between each pair of markers written anew."""
    for name, block in _blocks(found).items():
        pattern = rf"(?s)(<!-- {name}: [^\n]*-->\n).*?(<!-- end of {name} -->)"
        if not re.search(pattern, text):
            message = f"README.md has no markers for {name!r}"
            raise ValueError(message)
        text = re.sub(pattern, lambda m, b=block: f"{m[1]}\n{b}\n{m[2]}", text)
    return text


def _blocks(found: dict[str, dict[str, Any]]) -> dict[str, str]:
    blocks = {}
    if "accuracy" in found and "quiet" in found:
        blocks["accuracy"] = _accuracy_block(found["accuracy"], found["quiet"])
    if "overhead" in found:
        blocks["overhead"] = report_cost.readme_block(found["overhead"])
    elif "overhead-alone" in found:
        blocks["overhead"] = report_cost.readme_block_alone(found["overhead-alone"])
    return blocks


def _accuracy_block(accurate: dict[str, Any], quiet: dict[str, Any]) -> str:
    rows, lines = apart(accurate["data"]["rows"])[0], []
    learning = quiet["data"]["rows"]
    for part in PARTS:
        for edition in ("engine", "core"):
            mine = [r["marks"][edition] for r in rows if r["part"] == part]
            said = [r["said"][edition] for r in learning if r["part"] == part]
            cells = [share(*pair) for pair in counts(mine, COLUMNS).values()]
            loud = sum(count > 0 for count in said)
            lines.append((part, EDITION[edition], *cells, f"{loud} of {len(said)}"))
    return table(("programs", "edition", *COLUMNS, "false alarms on runs that learn"), lines)


def write(*, check: bool) -> int:
    """Write the pages, or compare them; return the exit status."""
    loaded = {name: record.load(name) for name in MEASUREMENTS}
    found = {name: document for name, document in loaded.items() if document is not None}
    wanted = {PAGE: page(found), README: readme(README.read_text(encoding="utf-8"), found)}
    scenarios = record.load("dogfood")
    if scenarios is not None:
        wanted[SCENARIOS] = report_dogfood.page(scenarios)
    stale = []
    for path, text in wanted.items():
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(path)
            if not check:
                path.write_text(text, encoding="utf-8")
    for path in stale:
        print(f"{path.relative_to(ROOT)} {'is stale' if check else 'written'}")
    return int(check and bool(stale))


def main() -> int:
    """Write or compare the pages; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    return write(check=parser.parse_args().check)


if __name__ == "__main__":
    sys.exit(main())
