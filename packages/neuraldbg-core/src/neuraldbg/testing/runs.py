# SPDX-License-Identifier: MIT
"""Small named runs, synthetic and without torch: the same facts on every call."""

from __future__ import annotations

import math
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.schema.facts import ActivationStat, GradState, InputStat, ParameterStat, StepFacts
from neuraldbg.settings import Settings
from neuraldbg.testing.build import make_facts, make_run
from neuraldbg.trace import Trace, TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STEPS = 200
"""Steps of every named run."""
ONSET = 100
"""Step at which what is to go wrong begins to."""
RUN = make_run("fc1", "fc2", "fc3", "head")


def _noise(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _healthy(seed: int = 0) -> Iterator[StepFacts]:
    """Learn: the loss falls with noise, gradients shrink a little, figures jitter."""
    random = _noise(seed)
    for step in range(STEPS):
        loss = 2.3 * math.exp(-step / 80) + 0.2
        facts = make_facts(RUN, step, loss=loss * float(random.lognormal(0, 0.05)))
        for array, columns in (
            (facts.activation, [ActivationStat.MEAN, ActivationStat.RMS, ActivationStat.RANK]),
            (facts.parameter, [ParameterStat.GRAD_NORM, ParameterStat.UPDATE_RMS]),
            (facts.inputs, [InputStat.RMS]),
        ):
            array[:, columns] *= random.lognormal(0, 0.05, (len(array), len(columns)))
        facts.parameter[:, ParameterStat.GRAD_NORM] *= math.exp(-step / 300)
        facts.parameter[:, ParameterStat.WEIGHT_RMS] *= 1 + step / 2000
        facts.parameter[:, ParameterStat.GRAD_COSINE] = random.normal(0, 0.2, 4)
        yield facts


def _vanishing() -> Iterator[StepFacts]:
    """Lose the gradient of `fc1` by a factor of ten every ten steps, from `ONSET` on."""
    for facts in _healthy(1):
        late = max(0, facts.step - ONSET)
        for row, strength in enumerate((1.0, 0.7, 0.3, 0.0)):
            facts.parameter[row, ParameterStat.GRAD_NORM] *= 10 ** (-late * strength / 10)
            facts.parameter[row, ParameterStat.UPDATE_RMS] *= 10 ** (-late * strength / 10)
        yield facts


def _exploding() -> Iterator[StepFacts]:
    """Grow all gradients, then updates and loss, by 30 % a step from `ONSET` on."""
    for facts in _healthy(2):
        late = min(max(0, facts.step - ONSET), 80)
        facts.parameter[:, ParameterStat.GRAD_NORM] *= 1.3**late
        facts.parameter[:, ParameterStat.UPDATE_RMS] *= 1.3**late
        yield _with(facts, facts.loss * 1.2**late)


def _dead() -> Iterator[StepFacts]:
    """Silence `fc2` for good at `ONSET`: zeros out, zero gradient in."""
    for facts in _healthy(3):
        if facts.step >= ONSET:
            figures = facts.activation[1]
            figures[[ActivationStat.MEAN, ActivationStat.RMS]] = 0.0
            figures[[ActivationStat.MIN, ActivationStat.MAX, ActivationStat.ROW_MAX]] = 0.0
            figures[[ActivationStat.ZERO_SHARE, ActivationStat.SILENT_SHARE]] = 1.0
            figures[[ActivationStat.FLAT_SHARE]] = 1.0
            for row in (0, 1):
                facts.parameter[row, ParameterStat.GRAD_NORM] = 0.0
                facts.parameter[row, ParameterStat.GRAD_STATE] = GradState.ZERO
                facts.parameter[row, ParameterStat.GRAD_ZERO_SHARE] = 1.0
        yield facts


def _nan_loss() -> Iterator[StepFacts]:
    """Give NaN as the loss, and in every gradient, at `ONSET` and ever after."""
    for facts in _healthy(4):
        if facts.step < ONSET:
            yield facts
            continue
        facts.parameter[:, ParameterStat.GRAD_NORM] = np.nan
        facts.parameter[:, ParameterStat.GRAD_STATE] = GradState.NONFINITE
        if facts.step > ONSET:
            facts.activation[:, ActivationStat.MEAN : ActivationStat.MAX + 1] = np.nan
            facts.activation[:, ActivationStat.NONFINITE] = 1.0
        yield _with(facts, math.nan)


def _nan_input() -> Iterator[StepFacts]:
    """Feed one batch with a NaN at `ONSET`; the loss of that step is NaN."""
    for facts in _healthy(5):
        if facts.step != ONSET:
            yield facts
            continue
        facts.inputs[0, [InputStat.MEAN, InputStat.RMS, InputStat.MIN, InputStat.MAX]] = np.nan
        facts.inputs[0, InputStat.NAN] = 1.0
        yield _with(facts, math.nan)


def _with(facts: StepFacts, loss: float) -> StepFacts:
    """Return `facts` with another loss."""
    return replace(facts, losses={"loss": loss})


RUNS: MappingProxyType[str, Callable[[], Iterator[StepFacts]]] = MappingProxyType(
    {
        "healthy": _healthy,
        "vanishing_gradient": _vanishing,
        "exploding_gradient": _exploding,
        "dead_layer": _dead,
        "nan_loss": _nan_loss,
        "nan_input": _nan_input,
    }
)
"""The named runs: what makes the facts of each."""


def steps_of(name: str) -> list[StepFacts]:
    """Return the facts of a named run: 200 steps, of which number 100 is the first bad one.

    Raises:
        KeyError: There is no such run; the message has the names.

    Example:
        >>> len(steps_of("nan_loss")), steps_of("nan_loss")[100].loss
        (200, nan)
    """
    if name not in RUNS:
        raise KeyError(f"no run {name!r}; runs are {', '.join(RUNS)}")
    return list(RUNS[name]())


def recorded_run(name: str, *, settings: Settings | None = None) -> Trace:
    """Return the trace of a named run, in memory, as capture alone leaves it: without events.

    Raises:
        KeyError: There is no such run; the message has the names.

    Example:
        >>> recorded_run("healthy").step_count
        200
    """
    steps = steps_of(name)
    writer = TraceWriter(None, RUN, settings or Settings())
    for facts in steps:
        writer.write_step(facts)
    writer.finish()
    return writer.as_trace()
