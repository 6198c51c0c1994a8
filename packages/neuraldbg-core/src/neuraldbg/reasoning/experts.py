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
NAMED_SO = re.compile(r"expert|branch|moe|ffn|ffs|mlps|specialist")


class Mixture(NamedTuple):
    """Layers of which a router chooses."""

    name: str
    """Their common path, `*` for the number."""
    members: tuple[str, ...]
    router: str | None
    """The layer that scores them, or what owns them; None: unknown."""


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
    found = []
    for name, numbered in groups.items():
        members = tuple(numbered.values())
        if len(members) < least:
            continue
        is_named = NAMED_SO.search(name.split("*", maxsplit=1)[0].lower())
        if is_named or (scorer(view, name, len(members)) and _take_turns(view, members)):
            found.append(Mixture(name, members, _router(view, name, len(members))))
    return found


def scorer(view: CaseView, name: str, count: int) -> str | None:
    """Return the layer beside the experts that gives each of them a score."""
    inside = name.split("*", maxsplit=1)[0]
    owner = inside.rstrip(".").rpartition(".")[0]
    for layer in view.flow.executed:
        is_beside = layer.path.startswith(owner) and not layer.path.startswith(inside)
        if is_beside and layer.units == count and layer.path in view.flow.matrices:
            return layer.path
    return None


def _router(view: CaseView, name: str, count: int) -> str | None:
    owner = name.split("*", maxsplit=1)[0].rstrip(".").rpartition(".")[0]
    words = ("router", "gate", "gating", "switch", "route", "dispatch")
    for layer in view.flow.executed:
        if layer.path.startswith(owner) and any(w in layer.path.lower() for w in words):
            return layer.path
    return scorer(view, name, count) or owner or None


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
