# SPDX-License-Identifier: LicenseRef-Proprietary
"""The shape of the main loss: plateau, spike, setback, oscillation, linear fall, rebound."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.baseline import difference_noise
from neuraldbg.reasoning.symptoms import lasting_jump, setback
from neuraldbg_engine.findings.case import logs
from neuraldbg_engine.findings.finding import Graded, both, finding, graded, log_ramp, ramp
from neuraldbg_engine.timeline import Onset, change_point

if TYPE_CHECKING:
    from neuraldbg.reasoning.curve import Curve
    from neuraldbg_engine.findings.case import Case

ENOUGH = 24
"""Losses below which a shape is noise."""
LOW = 0.2
"""Share of the origin below which a jump is one between two good losses."""
APART = 10
"""Jumps closer than this are one."""


def _curve(case: Case) -> Curve | None:
    """Return the main loss where it is long enough for a shape and keeps its sign."""
    curve = case.view.curve
    return curve if curve and len(curve.finite) >= ENOUGH and not curve.is_signed else None


def _height(curve: Curve, index: int) -> float:
    """Return a loss over the origin: near convergence even a hundredfold is next to nothing."""
    return float(curve.values[index]) / max(abs(curve.origin), 1e-12)


@finding(
    "curve.plateau",
    "Heuristic: 10 to 2 % of all that was gained comes in the second half, above half the start",
)
def plateau(case: Case) -> Graded | None:
    """The loss fell first, then stands still far from its floor."""
    curve = _curve(case)
    if curve is None or curve.is_broken:
        return None
    half = len(curve) // 2
    gained = curve.origin - curve.end
    rest = curve.level(half - 5, half + 5) - curve.end
    share = abs(rest) / max(gained, 1e-12)
    fell = ramp(curve.best_progress, 0.05, 0.15)
    left = ramp(curve.progress, 0.8, 0.5)
    near = np.flatnonzero(curve.smooth <= curve.end + 0.1 * max(gained, 0.0))
    found = np.flatnonzero(curve.smooth <= curve.end + 0.02 * max(gained, 0.0))
    first = int(curve.steps[near[0]]) if len(near) else 0
    last = int(curve.steps[found[0]]) if len(found) else first
    return graded(
        both(ramp(share, 0.1, 0.02), fell, left),
        f"{share:.1%} of what was gained came in the second half",
        onset=Onset.within(min(first, last), max(first, last)),
        late_share=share,
        progress=curve.progress,
    )


@finding(
    "curve.spike",
    "core's jumps (robust z of 8); Heuristic: z 8 to 30, 1.5 to 5 times, 10 to 50 % of the origin",
)
def spike(case: Case) -> Graded | None:
    """Single losses stand far above the recent past."""
    curve = _curve(case)
    if curve is None:
        return None
    if not curve.jumps:
        return graded(0.0)
    index, z, times = max(curve.jumps, key=lambda jump: min(jump[1] / 30, np.log(jump[2])))
    return graded(
        both(ramp(z, 8, 30), log_ramp(times, 1.5, 5.0), ramp(_height(curve, index), 0.1, 0.5)),
        f"the loss of step {int(curve.steps[index])} is {times:.3g} times the level before",
        onset=Onset.exact(int(curve.steps[index])),
        robust_z=z,
        ratio=times,
    )


@finding("curve.spikes_repeat", "Heuristic: one jump is an accident, five are the rule")
def spikes_repeat(case: Case) -> Graded | None:
    """The loss jumps again and again."""
    curve = _curve(case)
    if curve is None:
        return None
    places = [i for i, _, times in curve.jumps if times > 1.5 and _height(curve, i) > LOW]
    count = sum(1 for n, i in enumerate(places) if n == 0 or i - places[n - 1] >= APART)
    return graded(
        ramp(count, 1, 5),
        f"the loss jumped {count} times",
        onset=Onset.exact(int(curve.steps[places[0]])) if places else None,
        jumps=count,
    )


@finding(
    "curve.setback",
    "core's setback: lasting rise over the origin; Heuristic: 5 to 30 % of what there was to learn",
)
def setback_(case: Case) -> Graded | None:
    """A jump of the loss cost a lasting share of what had been learned."""
    curve = _curve(case)
    if curve is None:
        return None
    costs = [(setback(case.view, i), i) for i, _, times in curve.jumps[:64] if times > 1.2]
    if not costs:
        return graded(0.0)
    cost, index = max(costs)
    return graded(
        ramp(cost, 0.05, 0.3),
        f"after step {int(curve.steps[index])} the loss stays higher by {cost:.0%} of its origin",
        onset=Onset.exact(int(curve.steps[index])),
        share_of_origin=cost,
    )


@finding("curve.jump_lasts", "Heuristic: 1.5 to 5 times the level before, ten steps after")
def jump_lasts(case: Case) -> Graded | None:
    """After a jump the loss stays at a multiple of its level before."""
    curve = _curve(case)
    if curve is None:
        return None
    found = [
        (lasting_jump(case.view, i), i)
        for i, _, times in curve.jumps[:64]
        if times > 1.2 and _height(curve, i) > LOW
    ]
    if not found:
        return graded(0.0)
    times, index = max(found)
    return graded(
        log_ramp(times, 1.5, 5.0),
        f"after step {int(curve.steps[index])} the loss stays at {times:.3g} times its level",
        onset=Onset.exact(int(curve.steps[index])),
        ratio=times,
    )


@finding(
    "curve.oscillates",
    "Heuristic: the step-to-step noise of the second half is 15 to 60 % of the loss's origin",
)
def oscillates(case: Case) -> Graded | None:
    """The loss is thrown up and down by a large share of all that there is to learn."""
    curve = _curve(case)
    if curve is None or curve.is_broken:
        return None
    tail = curve.finite[len(curve.finite) // 2 :]
    size = difference_noise(tail) / max(abs(curve.origin), 1e-12)
    return graded(
        ramp(size, 0.15, 0.6),
        f"from step to step the loss moves by {size:.0%} of its origin",
        noise_over_origin=size,
    )


@finding(
    "curve.falls_linearly",
    "Heuristic: the four quarters gain alike (0.4 to 0.8), and half to a fifth of the way is done",
)
def falls_linearly(case: Case) -> Graded | None:
    """The loss falls slowly and at one speed: it would need many more steps, or larger ones."""
    curve = _curve(case)
    if curve is None or curve.is_broken or len(curve) < 2 * ENOUGH:
        return None
    count = len(curve)
    wide = max(count // 12, 3)
    edges = [curve.level(i * count // 4 - wide, i * count // 4 + wide) for i in range(5)]
    gains = -np.diff(edges)
    even = float(gains.min() / gains.max()) if gains.max() > 0 else 0.0
    beyond = ramp((edges[0] - edges[-1]) / max(curve.noise, 1e-12), 0.5, 2.0)
    return graded(
        both(ramp(even, 0.4, 0.8), ramp(curve.progress, 0.5, 0.2), beyond),
        f"its slowest quarter gained {even:.2f} of its fastest",
        slowest_over_fastest=even,
        progress=curve.progress,
    )


@finding(
    "curve.still_falling",
    "core's curve: the last third falls by 5 % or twice its noise",
    is_context=True,
)
def still_falling(case: Case) -> Graded | None:
    """The last third of the loss still falls."""
    curve = case.view.curve
    if not curve or len(curve.finite) < ENOUGH:
        return None
    return graded(
        1.0 if curve.is_falling else 0.0, "the loss still falls at the end", end=curve.end
    )


@finding(
    "curve.rises_at_start",
    "Heuristic: the worst of the first eleven losses after an update is 1.5 to 5 times the first",
)
def rises_at_start(case: Case) -> Graded | None:
    """The very first updates make the loss worse."""
    curve = _curve(case)
    if curve is None or curve.finite[0] <= 0:
        return None
    top = float(curve.finite[1:12].max())
    times = top / float(curve.finite[0])
    beyond = ramp((top - float(curve.finite[0])) / max(curve.noise, 1e-12), 3, 8)
    return graded(
        both(log_ramp(times, 1.5, 5.0), beyond),
        f"the first updates take the loss to {times:.3g} times its start",
        onset=case.start,
        ratio=times,
    )


@finding(
    "curve.rises",
    "change point of the log loss; Heuristic: odds of e^3 to e^15, a level 1.2 to 2 times higher",
)
def rises(case: Case) -> Graded | None:
    """From some step on the loss is on a higher level, or on its way up."""
    curve = _curve(case)
    if curve is None:
        return None
    change = change_point(logs(curve.values), curve.steps, direction=1, floor=0.02)
    if change is None:
        return graded(0.0)
    tail = float(np.exp(np.log(max(curve.end, 1e-30)) - change.before))
    return graded(
        both(ramp(change.evidence, 3, 15), log_ramp(tail, 1.2, 2.0)),
        f"from step {change.onset.best} on the loss rises, to {tail:.3g} times its level",
        onset=change.onset,
        log_odds=change.evidence,
        ratio=tail,
    )


@finding("curve.rebounds", "Heuristic: it ends at 1.3 to 3 times its best level")
def rebounds(case: Case) -> Graded | None:
    """The loss had been clearly lower than where it ended."""
    curve = _curve(case)
    if curve is None or curve.is_broken or not curve.best > 0:
        return None
    times = curve.end / curve.best
    share = (curve.end - curve.best) / max(abs(curve.origin), 1e-12)
    at = int(curve.steps[curve.best_at])
    return graded(
        both(log_ramp(times, 1.3, 3.0), ramp(share, 0.03, 0.15)),
        f"it ended at {times:.3g} times its best level, of step {at}",
        onset=Onset.within(at, int(curve.steps[-1]), at),
        ratio=times,
        share_of_origin=share,
    )


@finding("curve.noise_grows", "Heuristic: noise of the last quarter 2 to 8 times that of the first")
def noise_grows(case: Case) -> Graded | None:
    """The loss becomes more and more restless."""
    curve = _curve(case)
    if curve is None or len(curve.finite) < 2 * ENOUGH:
        return None
    quarter = len(curve.finite) // 4
    first, last = curve.finite[:quarter], curve.finite[-quarter:]
    times = difference_noise(last) / max(difference_noise(first), 1e-12)
    return graded(
        log_ramp(times, 2.0, 8.0),
        f"its noise grew to {times:.3g} times that of the first quarter",
        ratio=times,
    )


@finding("curve.short", "Heuristic: 20 to 60 steps show no shape", is_context=True)
def short(case: Case) -> Graded | None:
    """The run is too short to judge what the loss does."""
    count = case.trace.step_count
    return graded(ramp(count, 60, 20), f"{count} steps", steps=count)
