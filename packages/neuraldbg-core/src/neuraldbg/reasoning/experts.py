# SPDX-License-Identifier: MIT
"""Mixtures of experts: which layers stand in parallel behind a router, and which of them idle."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from neuraldbg.reasoning.view import measured, quiet
from neuraldbg.schema.facts import ActivationStat

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView

STARVED = 1e-3
"""Gradient RMS of an expert over that of the strongest."""
IDLE = 0.02
"""Share of a window's steps on which a starved expert may still be called."""
WINDOWS = 4
LEAST = 10
"""Measured steps in a window: an expert that is chosen on one step of ten is not idle."""
ROUTERS = ("router", "gate", "gating", "switch", "route", "dispatch")
NAMED_SO = re.compile(r"expert|branch|moe|ffn|ffs|mlps|specialist")


class Mixture(NamedTuple):
    """Layers of which a router chooses."""

    name: str
    """Their common path, `*` for the number."""
    members: tuple[str, ...]

    @property
    def owner(self) -> str:
        """Path of the module that holds the experts and what chooses among them."""
        return self._inside.rstrip(".").rpartition(".")[0]

    @property
    def _inside(self) -> str:
        return self.name.split("*", maxsplit=1)[0]

    def is_named_so(self) -> bool:
        """Whether the path says what they are."""
        return NAMED_SO.search(self._inside.lower()) is not None

    def scorer(self, view: CaseView) -> str | None:
        """Return the layer beside the experts that gives each of them a score."""
        for layer in view.flow.executed:
            is_beside = layer.path.startswith(self.owner) and not layer.path.startswith(
                self._inside
            )
            is_score = layer.units == len(self.members) and layer.path in view.flow.matrices
            if is_beside and is_score:
                return layer.path
        return None

    def router(self, view: CaseView) -> str | None:
        """Return the layer that chooses, or what owns them; None: unknown."""
        for layer in view.flow.executed:
            path = layer.path
            if path.startswith(self.owner) and any(w in path.lower() for w in ROUTERS):
                return path
        return self.scorer(view) or self.owner or None


def mixtures(view: CaseView, least: int) -> list[Mixture]:
    """Return groups of `least` or more weight layers whose paths differ in a number.

    They are called experts by their name; or they read the same values, are called on different
    steps, and a layer beside them gives as many scores as there are members.
    """
    groups: dict[str, dict[str, str]] = {}
    for layer in view.run.layers:
        if layer.path not in view.flow.matrices:
            continue
        for match in re.finditer(r"(?<=\.)\d+(?=\.|$)", layer.path):
            name = f"{layer.path[: match.start()]}*{layer.path[match.end() :]}"
            groups.setdefault(name, {})[match.group()] = layer.path
    found = [Mixture(name, tuple(numbered.values())) for name, numbered in groups.items()]
    return [
        one
        for one in found
        if len(one.members) >= least
        and (one.is_named_so() or (one.scorer(view) and _take_turns(view, one.members)))
    ]


def _take_turns(view: CaseView, members: tuple[str, ...]) -> bool:
    """Whether layers that read the same values ran on different steps, or some of them never."""
    ran = [path for path in members if view.flow.info[path].order >= 0]
    if not ran or len({view.flow.info[path].parents for path in ran}) > 1:
        return False
    rows = [view.flow.row[path] for path in members]
    called = measured(view.activation(ActivationStat.CALLS))[:, rows] > 0
    return bool((called.any(axis=1) & ~called.all(axis=1)).any())


def idle(view: CaseView, members: tuple[str, ...]) -> NDArray[np.bool_]:
    """Return who idles in each quarter of the measured steps, `[WINDOWS, E]`, the last one last.

    An expert idles that is hardly called, or whose gradient stays below a thousandth of the
    strongest one's. A rarely chosen one is not starved: the 90th percentile counts.
    """
    rows = [view.flow.row[path] for path in members]
    called = measured(view.activation(ActivationStat.CALLS))[:, rows] > 0
    gradients = measured(np.stack([view.layer_gradient(path) for path in members], axis=1))
    found = []
    for back in range(WINDOWS):
        felt = often(_window(gradients, back))
        seen = _window(called, back).mean(axis=0) if len(called) else np.ones(len(members))
        found.append(((felt < STARVED * felt.max()) | (seen < IDLE)) & (felt.max() > 0))
    return np.array(found[::-1])


def _window(values: NDArray[Any], back: int) -> NDArray[Any]:
    """Return the window that ends `back` windows before the end; the first where there is none."""
    size = max(LEAST, len(values) // WINDOWS)
    end = max(len(values) - back * size, min(size, len(values)))
    return values[max(end - size, 0) : end]


def often(gradients: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the 90th percentile over rows of `[T, E]`; 0 where there never was a gradient."""
    finite = np.where(np.isfinite(gradients), gradients, np.nan)
    return np.nan_to_num(quiet(np.nanquantile, finite, 0.9, axis=0))
