# SPDX-License-Identifier: MIT
"""Tests of the plugin, with nothing but `neuraldbg.testing`: no model, no torch."""

from __future__ import annotations

from neuraldbg_drift import plugin
from neuraldbg_drift.detector import WeightDrift

from neuraldbg.schema.facts import ParameterStat
from neuraldbg.testing import check_detector, feed, make_facts, make_run, replay

RUN = make_run("encoder", "head")


def drifting(growth):
    """Return 300 steps on which the weights of `encoder` grow by `growth` in all."""
    for step in range(300):
        rms = 0.1 * growth ** (step / 299)
        cells = {("encoder.weight", ParameterStat.WEIGHT_RMS): rms}
        yield make_facts(RUN, step, parameter=cells)


def test_weights_that_grow_tenfold_are_reported_once_with_their_layer():
    (event,) = feed(WeightDrift, drifting(10.0))
    assert event.layer == "encoder"
    assert event.to_state == "weight_drift"
    assert 250 < event.step < 299
    assert event.step_range == (event.step - 1, event.step)
    assert event.evidence["growth_ratio"] > 8


def test_weights_that_grow_fivefold_are_not_reported():
    assert feed(WeightDrift, drifting(5.0)) == []


def test_weights_that_start_at_zero_have_nothing_to_drift_from():
    cells = {(None, ParameterStat.WEIGHT_RMS): 0.0}
    later = {(None, ParameterStat.WEIGHT_RMS): 0.5}
    steps = [make_facts(RUN, 0, parameter=cells)]
    steps += [make_facts(RUN, step, parameter=later) for step in range(1, 50)]
    assert feed(WeightDrift, steps) == []


def test_the_detector_keeps_its_contract():
    check_detector(WeightDrift)


def test_a_recorded_healthy_run_is_quiet(neuraldbg_recorded):
    assert replay(WeightDrift, neuraldbg_recorded("healthy")) == []


def test_the_hooks_are_accepted_and_the_cause_is_known(neuraldbg_host):
    host = neuraldbg_host(drift=plugin)
    assert WeightDrift in host.detectors()
    assert "weight_decay_missing" in host.vocabulary().causes
