# SPDX-License-Identifier: MIT
"""Write the parts of the reference that come from the code: `python docs/generate.py`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from click.testing import CliRunner

from neuraldbg.cli import neuraldbg
from neuraldbg.report.aquarium import json_schema
from neuraldbg_engine.findings import registered

REFERENCE = Path(__file__).parent / "reference"


def command_help(command: str) -> str:
    """Return what `neuraldbg COMMAND --help` prints on a terminal of 80 columns."""
    arguments = [command, "--help"]
    result = CliRunner().invoke(neuraldbg, arguments, prog_name="neuraldbg", terminal_width=80)
    return result.output


GROUPS = {
    "is": "What kind of run it is",
    "has": "What the model and the loop have",
    "structure": "Depth",
    "init": "Initial scales",
    "recurrent": "Memory of recurrent layers",
    "loss": "Levels of the losses",
    "curve": "Shapes of the main loss",
    "lr": "The learning rate",
    "updates": "Updates of the weights",
    "gradients": "Gradients",
    "activations": "Outputs of layers",
    "data": "What enters the model",
    "ledger": "The training loop",
    "numerics": "NaN, Inf and number formats",
    "collapse": "Diversity",
    "optimizer": "The optimizer's state",
    "observed": "What capture saw by itself",
}
"""Title of each group of findings, by the first part of their names."""


def findings_tables() -> str:
    """Return the findings of the engine as one table per group."""
    parts = []
    for group, title in GROUPS.items():
        rows = [
            f"| `{entry.name}`{' (context)' if entry.is_context else ''} "
            f"| {entry.meaning} | {entry.source} |"
            for entry in registered().values()
            if entry.name.partition(".")[0] == group
        ]
        head = ["| finding | grade 1 means | source of its thresholds |", "|---|---|---|"]
        parts.append("\n".join([f"## {title}", "", *head, *rows]))
    return "\n\n".join(parts) + "\n"


def generate() -> None:
    """Replace help texts in `cli.md`, the schema in `aquarium.md`, the tables in `findings.md`."""
    page = REFERENCE / "cli.md"
    text = page.read_text(encoding="utf-8")
    pattern = r"```text\nUsage: neuraldbg (\w+).*?```"
    fresh = re.sub(
        pattern, lambda match: f"```text\n{command_help(match[1])}```", text, flags=re.DOTALL
    )
    page.write_text(fresh, encoding="utf-8")
    page = REFERENCE / "aquarium.md"
    text = page.read_text(encoding="utf-8")
    schema = json.dumps(json_schema(), indent=2)
    head = text[: text.rindex("```json\n")]
    page.write_text(f"{head}```json\n{schema}\n```\n", encoding="utf-8")
    page = REFERENCE / "findings.md"
    head, _, _ = page.read_text(encoding="utf-8").partition("## ")
    page.write_text(f"{head}{findings_tables()}", encoding="utf-8")


if __name__ == "__main__":
    generate()
