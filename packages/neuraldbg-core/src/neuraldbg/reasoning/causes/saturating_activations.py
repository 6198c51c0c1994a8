# SPDX-License-Identifier: MIT
"""Saturating activations: sigmoid or tanh in depth shrink the gradient by a factor per layer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.cause import Assessment, figure, link, named
from neuraldbg.reasoning.symptoms import BOUNDED, flat_share, gradient_depth
from neuraldbg.schema.run import LayerRole
from neuraldbg.schema.vocabulary import FailureType

if TYPE_CHECKING:
    from neuraldbg.reasoning.view import CaseView
    from neuraldbg.schema.run import LayerInfo

SUDDEN = 0.8
"""Flat share from which a layer that was not flat at all became flat."""
VANISHED = 0.03
"""First layer's gradient RMS over that of the last ones."""


def assess(view: CaseView) -> Assessment | None:
    """Look for bounded activations in series over which the gradient falls, or that are flat."""
    curve, flow = view.curve, view.flow
    sudden = _sudden(view)
    if sudden is not None:
        return sudden
    if not curve or curve.learned or view.is_broken or not len(view.steps):
        return None
    bounded = [
        layer
        for layer in flow.executed
        if layer.activation in BOUNDED and layer.role is not LayerRole.RECURRENT
    ]
    heads = _heads(flow.executed)
    inner = [layer for layer in bounded if not layer.is_output and layer.path not in heads]
    if not inner:
        return None
    depth = gradient_depth(view)
    flat = {x.path: float(view.early(flat_share(view, x.path))) for x in inner}
    late = {x.path: float(view.late(flat_share(view, x.path))) for x in inner}
    saturated = [x for x in inner if max(flat[x.path], late[x.path]) > 0.5]
    series = _in_series(view, inner)
    fades = depth is not None and depth.ratio < VANISHED and depth.slope > 0.3 and series >= 3
    fails = view.is_failing and not (view.objective.is_policy and not view.is_broken)
    if not fades and not (saturated and fails):
        return None  # what a policy is trained on says nothing of how it does
    step = view.label(0)
    if fades and depth is not None:
        layer = _first_weighted(view, inner[0].path)
        factor = float(np.exp(depth.slope))
        return Assessment(
            cause="saturating_activations",
            failure=FailureType.VANISHING_GRADIENTS,
            confidence=0.75 + 0.1 * (depth.ratio < 1e-3) + 0.05 * bool(saturated),
            description=(
                f"Gradient vanishing originated in {named(layer)} at step {step}: "
                f"{series} {inner[0].activation} layers in series shrink the gradient by "
                f"{figure(factor)} per layer, to {figure(depth.ratio)} at the first."
            ),
            layer=layer,
            onset=step,
            onset_range=(step, step),
            evidence=view.events(types=["gradient_health_transition", "activation_regime_shift"]),
            chain=(
                link(
                    layer, step, f"each {inner[0].activation} passes on a fraction of its gradient"
                ),
                link(layer, step, f"the first layers get {figure(depth.ratio)} of the last one's"),
            ),
            explains=frozenset(
                {
                    "lr_too_low",
                    "deep_without_residual",
                    "unknown",
                    "labels_unrelated_to_inputs",
                    "recurrent_vanishing",
                }
            ),
        )
    where = saturated[0]
    from_start = flat[where.path] > 0.5
    onset = step if from_start else _onset(view, where.path)
    return Assessment(
        cause="saturating_activations",
        failure=FailureType.SATURATED_ACTIVATIONS,
        confidence=0.5,
        description=(
            f"Activations saturated in {named(where.path)} at step {onset}: "
            f"{100 * max(flat[where.path], late[where.path]):.0f} % of its {where.activation} "
            "outputs lie where the derivative is near zero."
        ),
        layer=where.path,
        onset=onset,
        onset_range=(onset, onset),
        evidence=view.events(types=["activation_regime_shift"], state="saturated"),
        chain=(link(where.path, onset, "outputs lie in the flat region, so nothing flows back"),),
        explains=frozenset({"unknown", "labels_unrelated_to_inputs"}),
    )


def _heads(executed: list[LayerInfo]) -> set[str]:
    """Return what gives the output of each model: its last activation, and the layer before it.

    A bounded output is at its bounds where the data are: black and white pictures under a tanh.
    """
    heads: set[str] = set()
    for model in {layer.model for layer in executed}:
        last = [layer for layer in executed if layer.model == model][-2:]
        if last[-1].role is LayerRole.ACTIVATION:
            heads |= {layer.path for layer in last}
    return heads


def _in_series(view: CaseView, bounded: list[LayerInfo]) -> int:
    """Return how many bounded activations one model applies, each counted once.

    A layer whose activation is a module of its own carries its name too: the module counts.
    """
    counts: dict[str, int] = {}
    for layer in bounded:
        own = any(
            view.flow.info[child].role is LayerRole.ACTIVATION
            and view.flow.info[child].activation == layer.activation
            for child in view.flow.children(layer.path)
        )
        if layer.role is LayerRole.ACTIVATION or not own:
            counts[layer.model] = counts.get(layer.model, 0) + 1
    return max(counts.values(), default=0)


def _first_weighted(view: CaseView, path: str) -> str:
    """Return the weight layer that feeds the activation at `path` (or `path` itself)."""
    if path in view.flow.matrices:
        return path
    for parent in view.flow.parents(path):
        if parent in view.flow.matrices:
            return parent
    return path


def _onset(view: CaseView, path: str) -> int:
    rows = np.flatnonzero(flat_share(view, path) > 0.5)
    return view.label(int(rows[0])) if len(rows) else view.label(0)


def _sudden(view: CaseView) -> Assessment | None:
    """Look for a bounded layer that became flat from one look to the next, and hurt the loss."""
    if not view.curve or view.is_broken or view.curve.is_signed or not len(view.steps):
        return None
    for layer in view.flow.executed:
        if layer.activation not in BOUNDED or layer.is_output or layer.role is LayerRole.RECURRENT:
            continue
        flat = flat_share(view, layer.path)
        known = np.flatnonzero(np.isfinite(flat))
        turns = np.flatnonzero((flat[known][1:] > SUDDEN) & (flat[known][:-1] < 0.3)) + 1
        for turn in turns:
            if turn < WARM_UP or float(np.median(flat[known][turn:])) < SUDDEN:
                continue
            row = _leap_between(view, int(known[turn - 1]), int(known[turn]))
            if row is not None:
                return _turned(view, layer, row, float(flat[known][turn]))
    return None


WARM_UP = 5
"""Looks at a layer before it has a usual state."""
HARM = 3.0
"""Loss at once and at the end over the level before."""


def _leap_between(view: CaseView, before: int, after: int) -> int | None:
    """Return the row in (before, after] on which the loss leapt and did not come back."""
    curve = view.curve
    for row in range(before + 1, after + 1):
        index = int(np.searchsorted(curve.steps, view.label(row)))
        usual = curve.level(index - 10, index)
        at_once = curve.level(index, index + 3)
        leapt = index < len(curve) and curve.values[index] > HARM * usual
        if leapt and at_once > HARM * usual and curve.end > HARM * usual and usual > 0:
            return row
    return None


def _turned(view: CaseView, layer: LayerInfo, row: int, share: float) -> Assessment:
    step = view.label(row)
    return Assessment(
        cause="saturating_activations",
        failure=FailureType.SATURATED_ACTIVATIONS,
        confidence=0.75,
        description=(
            f"Activations saturated in {named(layer.path)} at step {step}: from one step to the "
            f"next {100 * share:.0f} % of its {layer.activation} outputs lie where the derivative "
            "is near zero, and the loss leapt with it."
        ),
        layer=layer.path,
        onset=step,
        onset_range=(max(step - 1, 0), step),
        evidence=view.events(types=["activation_regime_shift"], state="saturated"),
        chain=(
            link(layer.path, step, "what enters the activation became far too large"),
            link(layer.path, step, "outputs lie in the flat region, so nothing flows back"),
        ),
        explains=frozenset({"unknown", "labels_unrelated_to_inputs", "stale_second_moment"}),
    )
