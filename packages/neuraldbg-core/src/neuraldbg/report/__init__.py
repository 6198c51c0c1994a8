# SPDX-License-Identifier: MIT
"""Reporters: a diagnosis as text, HTML, Mermaid, Aquarium JSON or JSON lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.hookspecs import hookimpl

if TYPE_CHECKING:
    from neuraldbg.report.reporter import Reporter


@hookimpl
def neuraldbg_reporters() -> list[type[Reporter]]:
    """Return the built-in formats."""
    from neuraldbg.report.aquarium import Aquarium
    from neuraldbg.report.html import Html
    from neuraldbg.report.jsonl import Jsonl
    from neuraldbg.report.mermaid import Mermaid
    from neuraldbg.report.text import PlainText

    return [Aquarium, Html, Jsonl, Mermaid, PlainText]
