# SPDX-License-Identifier: MIT
"""Traces of runs made by hand: healthy but for what is given."""

from __future__ import annotations

import math

import numpy as np
from traces import trace_of

from neuraldbg.schema.run import INPUT, LayerInfo, LayerRole
from neuraldbg.testing import make_facts, make_run
from neuraldbg_engine.findings import Case, registered

RUN = make_run("fc1", "fc2", "fc3", "fc4", "head")
STEPS = 120


def learns(step):
    """A loss that falls, with 2 % noise."""
    return (2.0 * math.exp(-step / 30) + 0.1) * math.exp(0.02 * math.sin(12.9898 * step))


def case(run=RUN, count=STEPS, *, loss=learns, **changes):
    """Return the case of a run; changes are values or functions of the step."""
    jitter = np.random.default_rng(0)

    def steps():
        for step in range(count):
            now = {k: v(step) if callable(v) else v for k, v in changes.items()}
            value = loss(step) if callable(loss) else loss
            facts = make_facts(run, step, loss=value, **now)
            facts.parameter[:, 0] *= np.exp(0.05 * jitter.normal(size=len(facts.parameter)))
            yield facts

    return Case(trace_of(steps()))


def grade(name, one):
    """Return one finding of a case: grade, layer, and the interval of its onset."""
    answer = registered()[name].look(one)
    if answer is None:
        return None, None, None
    return answer.grade, answer.layer, answer.onset.interval(0.9) if answer.onset else None


def chain(*kinds, **fields):
    """Return a run of layers in series; kinds are (path, role, activation)."""
    layers = []
    for order, (path, role, activation) in enumerate(kinds):
        layers.append(
            LayerInfo(
                path=path,
                kind=str(role).title(),
                role=LayerRole(role),
                activation=activation,
                parents=(layers[-1].path if layers else INPUT,),
                order=order,
                is_output=order == len(kinds) - 1,
                units=16,
                fan_in=16,
                **fields,
            )
        )
    return make_run(*layers)
