# SPDX-License-Identifier: MIT
"""Thinned steps are judged in blocks, and give the very events that one by one gives."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from neuraldbg.detectors.loss_curve import MANY, REVIEW_EVERY, LossCurve
from neuraldbg.detectors.transitions import observed
from neuraldbg.hookspecs import hookimpl
from neuraldbg.plugins import DetectorRunner, PluginHost
from neuraldbg.schema.facts import GradState
from neuraldbg.schema.thinned import ThinnedSteps
from neuraldbg.schema.vocabulary import EventType
from neuraldbg.settings import Settings
from neuraldbg.testing import make_facts, make_run
from neuraldbg.trace.layout import LEDGER_FIELDS

RUN = make_run("0", "1")
PARAMETERS = len(RUN.parameters)


@st.composite
def curves(draw):
    """Return losses of 300 to 1,500 steps, `[T]`: noise on a trend, with jumps, drifts and gaps."""
    count = draw(st.integers(300, 1500))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    steps = np.arange(count)
    level = draw(st.sampled_from([1e-30, 1e-3, 1.0, 1e6]))
    trend = 1 + np.exp(-steps / draw(st.sampled_from([1e9, 1000.0, 100.0])))
    losses = trend + draw(st.sampled_from([0.0, 1e-3, 0.1, 1.0])) * random.standard_normal(count)
    for kind in draw(st.lists(st.sampled_from(["jump", "rise", "swing", "level", "nan"]))):
        at = draw(st.integers(0, count - 1))
        if kind == "jump":
            losses[at : at + draw(st.integers(1, 3))] *= draw(st.sampled_from([1.6, 3.0, 100.0]))
        elif kind == "rise":
            losses[at:] += (steps[at:] - at) * draw(st.sampled_from([1e-3, 0.03]))
        elif kind == "swing":
            losses[at::2] += 1.0
        elif kind == "level":
            losses[at:] = losses[at]
        else:
            losses[at] = draw(st.sampled_from([math.nan, math.inf, -math.inf]))
    return losses * level


def block(first, losses, norms):
    """Return thinned steps with these losses, NaN of none, and gradient norms `[T, P]`."""
    known = ~np.isnan(norms)
    return ThinnedSteps(
        run=RUN,
        steps=np.arange(first, first + len(losses)),
        losses=tuple({} if loss is None else {"loss": loss} for loss in losses),
        metrics=tuple({} for _ in losses),
        grad_norm=norms.astype(np.float32),
        grad_state=np.where(known, GradState.PRESENT, np.nan).astype(np.float32),
        optimizer=np.zeros((len(losses), 0, 7), dtype=np.float32),
        ledger=np.zeros((len(losses), len(LEDGER_FIELDS))),
        seconds=np.zeros(len(losses)),
    )


def both(losses, norms, sizes):
    """Return the runner that was shown blocks of these sizes, and that of single steps, ended."""
    host = PluginHost(discover=False)
    bulk, single = (DetectorRunner(host, RUN, Settings()) for _ in range(2))
    told = {}, {}
    first, turn = 0, 0
    while first < len(losses):
        part = slice(first, first + sizes[turn % len(sizes)])
        steps = block(first, losses[part], norms[part])
        for index in range(len(steps)):
            found = single.on_step(steps.facts(index))
            told[1].update({event.id: event for event in found})
        told[0].update({event.id: event for event in bulk.on_thinned(steps)})
        first, turn = part.stop, turn + 1
    for events, runner in zip(told, (bulk, single), strict=True):
        events.update({event.id: event for event in runner.on_finish()})
    return told


@settings(max_examples=30, deadline=None)
@given(
    curves(),
    st.lists(st.sampled_from([1, 4, MANY - 1, MANY, 63, 64, 65, 300, 1024]), min_size=1),
    st.sampled_from([1, 1, 1, 3]),
    st.integers(0, 2**32 - 1),
)
@example(np.ones(900), [300], 1, 0)
@example(np.linspace(1, 0, 900), [900], 1, 0)
def test_blocks_give_the_events_of_single_steps(losses, sizes, recorded_every, seed):
    given_losses = [None if i % recorded_every else x for i, x in enumerate(losses.tolist())]
    random = np.random.default_rng(seed)
    norms = 10 ** random.normal(-1, 0.3, (len(losses), PARAMETERS))
    norms[random.random(len(losses)) < 0.9] = np.nan
    norms[len(losses) // 2 :] *= random.choice([1.0, 1e-5, 1e-7])  # around what has vanished, below
    norms[random.random(len(losses)) < 0.002] *= 1e4
    bulk, single = both(given_losses, norms, sizes)
    assert list(bulk) == list(single)
    assert bulk == single


@settings(max_examples=30, deadline=None)
@given(curves(), st.integers(MANY, 700))
def test_a_block_leaves_the_loss_curve_as_single_steps_do(losses, size):
    one_by_one, at_once = LossCurve(RUN, Settings()), LossCurve(RUN, Settings())
    norms = np.full((len(losses), PARAMETERS), np.nan)
    for first in range(0, len(losses), size):
        part = slice(first, first + size)
        steps = block(first, losses[part].tolist(), norms[part])
        before = {name: repr(value) for name, value in vars(at_once).items()}
        told = [[*one_by_one.on_step(steps.facts(index))] for index in range(len(steps))]
        assert at_once.absorb(steps) is not any(told)
        if any(told):
            assert {name: repr(value) for name, value in vars(at_once).items()} == before
            for index in range(len(steps)):
                at_once.on_step(steps.facts(index))
        assert vars(at_once) == vars(one_by_one)


@pytest.mark.parametrize("count", [0, 1, MANY, 5 * REVIEW_EVERY])
def test_steps_without_a_loss_are_taken(count):
    curve = LossCurve(RUN, Settings())
    for step in range(100):
        curve.on_step(make_facts(RUN, step, loss=1.0))
    before = dict(vars(curve))
    assert curve.absorb(block(100, [None] * count, np.full((count, PARAMETERS), np.nan)))
    assert vars(curve) == before


class Marked:
    """Tells of one step, and takes all others in bulk."""

    name = "marked"
    event_types = frozenset({EventType.OPTIMIZER_INSTABILITY})

    def __init__(self, run, settings):
        self.alone, self.taken = [], []

    def on_step(self, facts):
        self.alone.append(facts.step)
        told = EventType.OPTIMIZER_INSTABILITY, ("stable", "loss_spike")
        where = {"kind": "told", "step": facts.step, "layer": None, "evidence": {}}
        return [observed(self.name, *told, **where)] if facts.step == 700 else []

    def absorb(self, steps):
        if 700 in steps.steps:
            return False
        self.taken += steps.steps.tolist()
        return True

    def on_finish(self):
        return ()


def test_a_block_with_one_step_to_tell_is_taken_in_bulk_around_it():
    made = []

    class Kept(Marked):
        def __init__(self, run, settings):
            super().__init__(run, settings)
            made.append(self)

    class Plugin:
        @hookimpl
        def neuraldbg_detectors(self):
            return [Kept]

    host = PluginHost(plugins={"tested": Plugin()}, discover=False, disabled="builtin")
    runner = DetectorRunner(host, RUN, Settings())
    events = runner.on_thinned(block(0, [1.0] * 1024, np.full((1024, PARAMETERS), np.nan)))
    (marked,) = made
    assert [event.step for event in events] == [700]
    assert runner.fresh == tuple(events)
    assert len(marked.alone) <= 4
    assert sorted(marked.alone + marked.taken) == list(range(1024))
