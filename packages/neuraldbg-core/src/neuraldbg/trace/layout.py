# SPDX-License-Identifier: MIT
"""How the arrays of one step become one flat float32 vector, and back."""

from __future__ import annotations

import dataclasses
import itertools
import json
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from neuraldbg.schema.facts import (
    ActivationStat,
    InputStat,
    LedgerFacts,
    OptimizerStat,
    ParameterStat,
    StepFacts,
)

if TYPE_CHECKING:
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.schema.thinned import ThinnedSteps

Floats = NDArray[np.float32]

LEDGER_FIELDS: tuple[str, ...] = tuple(field.name for field in dataclasses.fields(LedgerFacts))
"""Columns of `FactTable.ledger`: the fields of `LedgerFacts` in order, flags as 0 and 1."""
STEP_FIELDS = ("seconds", "is_sampled", "is_interrupted")
"""Columns of the last block of a vector: scalars of `StepFacts`."""
BLOCKS = ("activation", "parameter", "inputs", "optimizer", "ledger", "step")
"""Parts of a vector, in order."""
MOST = 1 << 24
"""Rows or columns that a block can have. Heuristic: a damaged number must not ask for more memory
than there is; models have some thousand layers."""

_ledger_values = attrgetter(*LEDGER_FIELDS)
_step_values = attrgetter(*STEP_FIELDS)


@dataclasses.dataclass(frozen=True, slots=True)
class Layout:
    """Rows and columns of each block of a vector, in the order of `BLOCKS`."""

    shapes: tuple[tuple[int, int], ...]

    @classmethod
    def of_run(cls, run: RunInfo) -> Layout:
        """Return the layout of steps that know all of `run`."""
        return cls(
            (
                (len(run.layers), len(ActivationStat)),
                (len(run.parameters), len(ParameterStat)),
                (len(run.inputs), len(InputStat)),
                (len(run.optimizers), len(OptimizerStat)),
                (1, len(LEDGER_FIELDS)),
                (1, len(STEP_FIELDS)),
            )
        )

    @classmethod
    def from_json(cls, text: Any) -> Layout:
        """Read what `to_json` wrote; a block that this text lacks is empty.

        Raises:
            ValueError: The text is something else.
        """
        shapes: Any = json.loads(text) if isinstance(text, str) else None
        if not isinstance(shapes, dict):
            raise ValueError("a layout is not readable")  # noqa: TRY004 - content, not type
        pairs = [shapes.get(block, (0, 0)) for block in BLOCKS]
        for pair in pairs:
            if len(pair) != 2 or not all(isinstance(n, int) and 0 <= n < MOST for n in pair):
                raise ValueError(f"a layout has a block of shape {pair!r}")
        return cls(tuple((rows, columns) for rows, columns in pairs))

    def to_json(self) -> str:
        """Return the shapes by block name."""
        return json.dumps(dict(zip(BLOCKS, self.shapes, strict=True)))

    @property
    def width(self) -> int:
        """Length of a vector."""
        return sum(rows * columns for rows, columns in self.shapes)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each block begins, and where the last one ends."""
        return tuple(itertools.accumulate((r * c for r, c in self.shapes), initial=0))

    def union(self, other: Layout) -> Layout:
        """Return the smallest layout that holds both: rows and columns are only ever appended."""
        pairs = zip(self.shapes, other.shapes, strict=True)
        return Layout(tuple((max(a[0], b[0]), max(a[1], b[1])) for a, b in pairs))

    def block(self, matrix: Floats, name: str) -> Floats:
        """Return one block of `matrix`, `[T, width]`, as a view `[T, rows, columns]`."""
        index = BLOCKS.index(name)
        start, stop = self.offsets[index : index + 2]
        return matrix[:, start:stop].reshape(len(matrix), *self.shapes[index])


def pack(facts: StepFacts) -> tuple[Layout, Floats]:
    """Return the vector of one step and its layout."""
    tail = (*_ledger_values(facts.ledger), *_step_values(facts))
    parts = (facts.activation, facts.parameter, facts.inputs, facts.optimizer)
    shapes = (*(part.shape for part in parts), (1, len(LEDGER_FIELDS)), (1, len(STEP_FIELDS)))
    vector = np.concatenate(
        (*(part.ravel() for part in parts), np.array(tail, dtype=np.float32)),
        dtype=np.float32,
        casting="unsafe",
    )
    return Layout(shapes), vector


def pack_thinned(thinned: ThinnedSteps) -> tuple[Layout, Floats]:
    """Return the vectors of several thinned steps, `[T, layout.width]`, and their layout."""
    layout = Layout.of_run(thinned.run)
    count = len(thinned)
    matrix = np.full((count, layout.width), np.nan, dtype=np.float32)
    layout.block(matrix, "parameter")[:] = thinned.parameter(slice(None))
    layout.block(matrix, "optimizer")[:, : thinned.optimizer.shape[1]] = thinned.optimizer
    layout.block(matrix, "ledger")[:, 0] = thinned.ledger
    step = layout.block(matrix, "step")[:, 0]
    step[:, 0], step[:, 1:] = thinned.seconds, 0.0
    return layout, matrix


def repack(matrix: NDArray[Any], old: Layout, new: Layout, fill: float = np.nan) -> NDArray[Any]:
    """Return `matrix`, `[T, old.width]`, as `[T, new.width]`; what `old` lacks becomes `fill`."""
    if old == new:
        return matrix
    result = np.full((len(matrix), new.width), fill, dtype=matrix.dtype)
    for index, (rows, columns) in enumerate(old.shapes):
        source = matrix[:, old.offsets[index] : old.offsets[index + 1]]
        target = result[:, new.offsets[index] : new.offsets[index + 1]]
        place = target.reshape(len(matrix), *new.shapes[index])
        place[:, :rows, :columns] = source.reshape(len(matrix), rows, columns)
    return result
