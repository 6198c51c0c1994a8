# SPDX-License-Identifier: MIT
"""Posterior collapse: the code of a VAE equals its prior, and the decoder ignores it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from neuraldbg.reasoning.view import CaseView
    from neuraldbg.schema.run import LayerInfo

FLAT = 0.12
"""Spread of the code between samples, in units of the prior's deviation, 1: next to noise of that
size it tells nothing."""
NOISE = 3.0
"""What the decoder reads over what the code gives: the difference is the noise of sampling."""
ENOUGH_STEPS = 50
"""A fresh VAE's code is near the prior too: give it time to leave."""

TOLD = 3.0
"""Times `FLAT` from which a code told samples apart. Heuristic: a third of the noise beside it."""
ENOUGH_TOLD = 20
"""Measured steps on which it did: a fresh encoder passes through all values."""
KEPT = 0.9
"""Share of the usual spread above which the code is as it was. Heuristic: batches vary less."""
SOON = 20
"""Steps by which the code may follow the loss: weights move by small steps."""


def assess(view: CaseView) -> Assessment | None:
    """Look for a code that the loss and a decoder read, lost in the noise that is added to it."""
    if len(view.steps) < ENOUGH_STEPS or view.is_broken or len(view.run.models) > 1:
        return None
    codes = _codes(view)
    late = {code.path: float(view.late(code_spread(view, code.path))) for code, _ in codes}
    for code, readers in codes:
        spread = code_spread(view, code.path)
        beside = [late[c.path] for c, others in codes if any(r in readers for r in others)]
        last = max(beside)  # a log-variance may be the same for all where the mean tells them apart
        size = float(view.late(view.activation(ActivationStat.RMS)[:, view.flow.row[code.path]]))
        incoming = view.activation(ActivationStat.INPUT_RMS)
        read = [float(view.late(incoming[:, view.flow.row[r.path]])) for r in readers]
        is_noisy = any(r > NOISE * last and r > 1.5 * size for r in read)
        if not (last < FLAT and is_noisy):
            continue
        flat = np.flatnonzero(spread < FLAT)
        turned = _turned_at(view, spread)
        step = view.label(int(flat[0]) if len(flat) else 0) if turned is None else turned
        return Assessment(
            cause="posterior_collapse",
            failure=FailureType.REPRESENTATION_COLLAPSE,
            confidence=0.85,
            description=(
                f"Posterior collapse in {named(code.path)} by step {step}: between samples the "
                f"code varies by {figure(last)}, next to sampling noise of about 1, so it carries "
                "nothing and the decoder gives one average."
            ),
            layer=code.path,
            onset=step,
            onset_range=(view.label(0), step) if turned is None else (step, step),
            evidence=view.events(types=["representation_collapse", "activation_regime_shift"]),
            chain=(
                link(code.path, step, "the KL term pulls the posterior onto the prior"),
                link(readers[0].path, step, "the decoder ignores the code"),
            ),
            explains=frozenset(
                {
                    "embedding_collapse",
                    "labels_unrelated_to_inputs",
                    "unknown",
                    "mode_collapse",
                    *(() if turned is None else ("target_outlier",)),
                }
            ),
        )
    return None


def _turned_at(view: CaseView, spread: NDArray[np.float64]) -> int | None:
    """Return the step on which the loss leapt and a code that had told something began to go.

    A weight that is raised in mid-run lifts the loss at once, and the code follows. A code that
    faded without a leap was under the same pull all along.
    """
    told = np.flatnonzero(spread > TOLD * FLAT)
    if len(told) < ENOUGH_TOLD:
        return None
    usual = float(np.median(spread[told]))
    last = view.label(int(np.flatnonzero(spread > KEPT * usual)[-1]))
    gone = view.label(int(told[-1]))
    for index, _, _ in view.curve.jumps:
        step = int(view.curve.steps[index])
        lasts = view.curve.level(index + 1, index + 1 + SOON) > view.curve.level(
            index - SOON, index
        )
        if last - SOON <= step <= gone and step > view.label(int(told[0])) + SOON and lasts:
            return step
    return None


def code_spread(view: CaseView, path: str) -> NDArray[np.float64]:
    """Return the standard deviation between samples of a layer's output, absolute, `[T]`."""
    row = view.flow.row[path]
    relative = view.activation(ActivationStat.SPREAD)[:, row]
    return np.asarray(relative * view.activation(ActivationStat.RMS)[:, row])


def _codes(view: CaseView) -> list[tuple[LayerInfo, list[LayerInfo]]]:
    """Return layers that both the loss and later layers of the model read, with those readers.

    The KL term reads mean and log-variance directly; the decoder reads them too.
    """
    found = []
    for layer in view.flow.weighted:
        if not layer.is_output or layer.units < 2:
            continue
        readers = [
            view.flow.info[child]
            for child in view.flow.children(layer.path)
            if child in view.flow.matrices
        ]
        if readers:
            found.append((layer, readers))
    return found
