# SPDX-License-Identifier: MIT
"""Similarities divided by a temperature out of any use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.capture.objective.activations import VIEWS
from neuraldbg.capture.objective.reading import axis, rows, scalar
from neuraldbg.capture.objective.tape import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation

HOT = 0.2
"""Scale of cosine similarities from which softmax stays flat: the largest share of one class among
K can be e^0.4 / K. Usual scales are 1 / 0.07 to 1 (SimCLR, arXiv:2002.05709, table 5)."""
COLD = 80.0
"""Scale at which exp of a cosine overflows float32 (88.7) or softmax is one-hot (CLIP clamps its
learned scale at 100, arXiv:2103.00020, section 2.5; that stays silent in log-softmax)."""
CLAMPED = 101.0
FLAT = 0.5
"""Range of log-probabilities within a row that is flat, in nats: twice `HOT` and rounding."""
_STEPS = frozenset({*VIEWS, "MaskedFill", "Where", "Sub"})


class Temperature:
    """Looks at the scale between cosine similarities and the softmax or exp of a loss.

    Only where the similarities come from normalised vectors: they are bounded, so the scale alone
    decides. Attention, distillation and the logits of a linear head are silent.
    """

    def __init__(self) -> None:
        self._told = False

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at each log-softmax and exp between the outputs and the loss."""
        if self._told:
            return
        for place, name in enumerate(view.tape.names):
            if name not in {"LogSoftmax", "Logsumexp", "Exp"} or place not in view.above:
                continue
            found = self._scale(view, view.tape.inputs[place][0])
            if found is None:
                continue
            word = self._judge(view, place, name, found)
            if word:
                self._told = True
                yield view.observation(
                    "temperature",
                    None,
                    confidence=0.8,
                    figures={"scale": found, "temperature": 1 / found},
                    cause="temperature_misset",
                    softmax=word,
                    reads=view.layer_of(place) or "",
                )
                return

    def _judge(self, view: View, place: int, name: str, scale: float) -> str | None:
        values = rows(view.tape.saved(place, "result"))
        if name == "Exp":
            return "overflow" if abs(scale) > COLD else None
        if name == "Logsumexp" or values is None:
            return "one-hot" if abs(scale) > CLAMPED else None
        dim = axis(view.tape.saved(place, "dim"), values.ndim) or 0
        if abs(scale) > CLAMPED:
            largest = values.amax(dim).exp().mean()
            return "one-hot" if float(largest) > 0.95 else None
        spread = self._spread(values, dim)
        return "flat" if abs(scale) <= HOT and spread < FLAT else None

    def _spread(self, values: torch.Tensor, dim: int) -> float:
        seen = values.masked_fill(values < -1e3, float("nan"))
        high = seen.nan_to_num(-1e4).amax(dim)
        low = seen.nan_to_num(1e4).amin(dim)
        return float((high - low).max())

    def _scale(self, view: View, place: int) -> float | None:
        """Return the factor on cosine similarities, None where there is none or they are not."""
        tape, scale, seen = view.tape, 1.0, False
        for _ in range(12):
            place = tape.through(place, _STEPS)
            if place == NONE:
                return None
            name, below = tape.names[place], tape.inputs[place]
            if name in {"Mul", "Div"} and below[0] != NONE and below[-1] == NONE:
                by = scalar(tape.saved(place, "other"))
                if not by:
                    return None
                scale, seen = scale * (by if name == "Mul" else 1 / by), True
                place = below[0]
            elif name == "Cat" and below:
                place = max(below)
            elif name in {"Mm", "Bmm", "Addmm"}:
                return scale if seen and self._is_normalised(view, below) else None
            else:
                return None
        return None

    def _is_normalised(self, view: View, sides: tuple[int, ...]) -> bool:
        """Return whether the factors of a product are vectors divided by their norms."""
        carried = [i for i in sides if i != NONE]
        return bool(carried) and all(self._has_norm(view, i) for i in carried)

    def _has_norm(self, view: View, place: int) -> bool:
        tape = view.tape
        for _ in range(6):
            place = tape.through(place)
            if place == NONE:
                return False
            if tape.names[place] == "Div" and len(tape.inputs[place]) > 1:
                below = tape.through(
                    tape.inputs[place][1], frozenset({*VIEWS, "ClampMin", "Clamp"})
                )
                below = (
                    below if below == NONE or tape.names[below] != "Add" else tape.inputs[below][0]
                )
                return below != NONE and "Norm" in tape.names[below]
            if tape.names[place] not in {"Cat", "Stack"}:
                return False
            place = max(tape.inputs[place])
        return False
