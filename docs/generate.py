# SPDX-License-Identifier: MIT
"""Write the parts of the reference that come from the code: `python docs/generate.py`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from click.testing import CliRunner

from neuraldbg.cli import neuraldbg
from neuraldbg.report.aquarium import json_schema

REFERENCE = Path(__file__).parent / "reference"


def command_help(command: str) -> str:
    """Return what `neuraldbg COMMAND --help` prints on a terminal of 80 columns."""
    arguments = [command, "--help"]
    result = CliRunner().invoke(neuraldbg, arguments, prog_name="neuraldbg", terminal_width=80)
    return result.output


def generate() -> None:
    """Replace the help texts in `cli.md` and the schema in `aquarium.md`."""
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


if __name__ == "__main__":
    generate()
