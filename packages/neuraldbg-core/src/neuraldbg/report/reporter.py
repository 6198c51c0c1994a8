# SPDX-License-Identifier: MIT
"""The contract of reporters: a diagnosis in, a document out."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

if TYPE_CHECKING:
    from neuraldbg.report.diagnosis import Diagnosis


@runtime_checkable
class Reporter(Protocol):
    """Writes a diagnosis in one format. Plugins add formats through `neuraldbg_reporters`.

    One instance is made per document. It must not import torch, read the clock or the network:
    the same trace gives the same document, byte for byte.
    """

    name: ClassVar[str]
    """What users pass to `neuraldbg export --format`: unique, lower_snake_case."""
    suffix: ClassVar[str]
    """Of the file it is usually written to, with the dot."""

    def render(self, diagnosis: Diagnosis) -> str:
        """Return the document. Called once, after the run or during a live one."""
        ...
