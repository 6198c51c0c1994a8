# SPDX-License-Identifier: MIT
"""The laboratory's batches, as trainers that own the loop want them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from torch.utils.data import IterableDataset

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from matrix_lab import Lab

CLEARS = "The trainer clears gradients itself"


class Batches(IterableDataset[Any]):
    """Batches without an end; a trainer may ask for one before the step that it is for."""

    def __init__(self, lab: Lab, rows: int = 16, per_step: int = 1) -> None:
        super().__init__()
        self.lab, self.rows, self.per_step = lab, rows, per_step

    def __iter__(self) -> Iterator[Any]:
        lab = self.lab
        for number in itertools.count():
            now, lab.step = lab.step, number // self.per_step
            batch = lab.batch(self.rows)
            lab.step = now
            yield batch


def library(name: str) -> ModuleType:
    """Import what a test trains with; it runs where that is installed (`nox -s trainers`)."""
    reason = f"{name} is installed by `nox -s trainers` alone"
    module: ModuleType = pytest.importorskip(name, reason=reason)
    return module
