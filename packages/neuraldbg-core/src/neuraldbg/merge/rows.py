# SPDX-License-Identifier: MIT
"""The recorded steps of several ranks, side by side.

Ranks that train together step together, so the n-th step of one is the n-th of all. Each keeps
other steps exactly (those around its own events); a row of the merged trace covers the fewest
steps that no rank has merged with others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.merge.combine import Array, Shards, combine
from neuraldbg.trace.decimation import Bucket, merge
from neuraldbg.trace.facts import row_bucket
from neuraldbg.trace.layout import BLOCKS, Layout
from neuraldbg.trace.reader import stored_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from neuraldbg.schema.run import RunInfo
    from neuraldbg.trace import Trace

CHUNK = 64
"""Rows that are combined at a time. Heuristic: some megabytes for a thousand layers."""


@dataclass(frozen=True, eq=False)
class Steps:
    """The rows of all ranks over the same steps."""

    layout: Layout
    ranks: list[list[Bucket | None]]
    """For each rank, its row or None (it had ended, or the row is lost)."""

    def __len__(self) -> int:
        return len(self.ranks[0])

    def exact(self) -> tuple[Array, Array, Array]:
        """Return what every rank kept exactly: labels `[T]`, parameters and optimizers.

        These are `[R, T, P, columns]` and `[R, T, O, columns]`.
        """
        whole = [
            row
            for row in zip(*self.ranks, strict=True)
            if all(bucket is not None and bucket.width == 1 for bucket in row)
        ]
        labels = np.array([row[0].first_step for row in whole if row[0]], dtype=np.int64)
        matrices = [
            np.array([bucket.mean for bucket in rank if bucket is not None], dtype=np.float32)
            for rank in zip(*whole, strict=True)
        ] or [np.zeros((0, self.layout.width), dtype=np.float32) for _ in self.ranks]
        parameter, optimizer = (
            np.stack([self.layout.block(matrix, name) for matrix in matrices])
            for name in ("parameter", "optimizer")
        )
        return labels, parameter, optimizer

    def combined(self, shards: Shards) -> Iterator[Bucket]:
        """Yield the rows of the whole run."""
        for start in range(0, len(self), CHUNK):
            rows = [rank[start : start + CHUNK] for rank in self.ranks]
            parts = [
                self._combine(
                    [[None if b is None else getattr(b, part) for b in rank] for rank in rows],
                    shards,
                )
                for part in ("mean", "low", "high")
            ]
            for place, row in enumerate(zip(*rows, strict=True)):
                known = [bucket for bucket in row if bucket is not None]
                counts = np.maximum.reduce([bucket.counts for bucket in known])
                mean, low, high = (part[place] for part in parts)
                yield Bucket(
                    known[0].first,
                    known[0].last,
                    known[0].first_step,
                    known[0].last_step,
                    mean,
                    low,
                    high,
                    np.maximum(counts, (~np.isnan(mean)).astype(np.uint32)),
                )

    def _combine(self, vectors: list[list[Array | None]], shards: Shards) -> Array:
        width = self.layout.width
        absent = np.full(width, np.nan, dtype=np.float32)
        matrices = [np.array([absent if v is None else v for v in rank]) for rank in vectors]
        result = np.full((len(matrices[0]), width), np.nan, dtype=np.float32)
        for block in BLOCKS:
            x = np.stack([self.layout.block(matrix, block) for matrix in matrices])
            self.layout.block(result, block)[:] = combine(block, x, shards)
        return result


def aligned(traces: Sequence[Trace], run: RunInfo) -> Steps:
    """Return the rows of the traces over the same steps, by the rows that `run` has."""
    stored = [stored_rows(trace) for trace in traces]
    layout = Layout.of_run(run)
    for _, layouts in stored:
        for each in layouts.values():
            layout = layout.union(each)
    ranks = []
    for trace, (rows, layouts) in zip(traces, stored, strict=True):
        buckets = [row_bucket(row, layouts, layout) for row in rows]
        order = _input_order(trace.run, run)
        ranks.append([_reordered(bucket, layout, order) for bucket in buckets])
    return Steps(layout, _over_the_same(ranks))


def _input_order(own: RunInfo, whole: RunInfo) -> list[int]:
    """Return where each of a rank's inputs stands in the merged run."""
    places = {one.name: place for place, one in enumerate(whole.inputs)}
    return [places[one.name] for one in own.inputs]


def _reordered(bucket: Bucket, layout: Layout, order: list[int]) -> Bucket:
    if order == sorted(order) == list(range(len(order))):
        return bucket
    parts = {}
    for name in ("mean", "low", "high", "counts"):
        old = getattr(bucket, name)[None]
        new = old.copy()
        target = layout.block(new, "inputs")
        target[:] = 0 if name == "counts" else np.nan
        target[:, order] = layout.block(old, "inputs")[:, : len(order)]
        parts[name] = new[0]
    return Bucket(
        bucket.first, bucket.last, bucket.first_step, bucket.last_step,
        parts["mean"], parts["low"], parts["high"], parts["counts"],
    )  # fmt: skip


def _over_the_same(ranks: list[list[Bucket]]) -> list[list[Bucket | None]]:
    """Merge each rank's rows so that all have the same bounds; None where a rank has nothing."""
    ends = np.unique([bucket.last for rank in ranks for bucket in rank])
    is_cut = np.ones(len(ends), dtype=bool)
    for rank in ranks:
        for bucket in rank:
            inside = slice(*np.searchsorted(ends, (bucket.first, bucket.last)))
            is_cut[inside] = False
    cuts = ends[is_cut]
    result: list[list[Bucket | None]] = []
    for rank in ranks:
        groups: list[list[Bucket]] = [[] for _ in cuts]
        for bucket in rank:
            groups[int(np.searchsorted(cuts, bucket.last))].append(bucket)
        result.append([_joined(group) for group in groups])
    return result


def _joined(group: list[Bucket]) -> Bucket | None:
    if len(group) < 2:
        return group[0] if group else None
    return merge(group)
