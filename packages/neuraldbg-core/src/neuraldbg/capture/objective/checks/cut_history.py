# SPDX-License-Identifier: MIT
"""A layer that is called once per time step, and only its last call gets a gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.objective.tape import is_inside

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

OUTPUTS = 2
"""Outputs of one call that may lie behind the loss: state and memory of an LSTM's."""
SHORTEST = 8
"""Calls per call of the container from which they are time steps. Heuristic: as for `recurrent`."""


class CutHistory:
    """Reports layers of which a container's call makes many calls, and the loss reaches one.

    The state is detached (or taken through `.data` or numpy) on its way from one time step to the
    next: what came before the last step cannot be learned. Truncated backpropagation, which cuts
    every so many steps, leaves several calls behind the loss and is silent.
    """

    def __init__(self) -> None:
        self._told: set[str] = set()

    def observe(self, view: View) -> Iterable[Observation]:
        """Compare the calls of each layer with those of what holds it, or else stands beside it."""
        if not view.tape.is_complete:
            return
        reached: dict[str, int] = {}
        for chain in view.tape.marks.values():
            for path in chain:
                reached[path] = reached.get(path, 0) + 1
        for path, calls in view.calls.items():
            holder = _holder(path, view.calls) or _neighbour(path, view.calls)
            behind = reached.get(path, 0)
            if holder is None or path in self._told or not 1 <= behind <= OUTPUTS:
                continue
            outer = view.calls[holder]
            # A module of which some calls are not behind this loss proves nothing: those of other
            # backward passes of the step, or of a generator that was detached.
            if reached.get(holder) != outer or calls < SHORTEST * outer * behind:
                continue
            self._told.add(path)
            yield view.observation(
                "history_cut",
                path,
                confidence=0.85,
                figures={"calls": calls / outer},
                cause="detached_graph",
            )


def _holder(path: str, calls: Iterable[str]) -> str | None:
    """Return the nearest module around `path` whose output was seen."""
    around = [other for other in calls if is_inside(path, other)]
    return max(around, key=len, default=None)


def _neighbour(path: str, calls: Mapping[str, int]) -> str | None:
    """Return the module beside `path` that was called least: the loop calls them by itself."""
    beside = [other for other in calls if other != path and not is_inside(other, path)]
    return min(beside, key=lambda other: calls[other], default=None)
