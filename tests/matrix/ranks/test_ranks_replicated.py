"""Replicated over two processes (DDP)."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg import load_trace
from neuraldbg.reasoning import reason
from neuraldbg.schema.facts import GradState, ParameterStat

RANKS = 2
SAME = ("ddp", "ddp_inner", "accumulation", "bypassed", "bypassed_inner", "nan_on_one")


@pytest.mark.parametrize("name", SAME)
def test_watched_ranks_end_bit_equal_with_no_collective_added(folder, reports, name):
    for report in reports(folder, name):
        assert report["is_equal"]
        assert report["same_norms"]
        assert report["collectives"][0] == report["collectives"][1] > 0
        assert report["hooks"] == 0


@pytest.mark.parametrize("name", ["ddp", "ddp_inner"])
def test_each_rank_writes_a_trace_of_its_own_from_one_path(folder, name):
    traces = [load_trace(folder / f"{name}{end}").trace for end in (".ndbg", ".rank1.ndbg")]
    assert [trace.run.rank for trace in traces] == [0, 1]
    assert {trace.run.world_size for trace in traces} == {RANKS}
    assert [trace.step_count for trace in traces] == [40, 40]


@pytest.mark.parametrize("name", ["ddp", "ddp_inner"])
def test_names_are_those_of_the_modules_inside_the_wrapper(folder, name):
    run = load_trace(folder / f"{name}.ndbg").trace.run
    paths = [layer.path for layer in run.layers]
    assert paths == ["encoder.0", "encoder.1", "encoder.2", "head"]
    assert not [p.name for p in run.parameters if "module" in p.name]


@pytest.mark.parametrize("name", ["ddp", "ddp_inner", "accumulation"])
def test_gradient_norms_are_those_of_the_average(folder, reports, name):
    both = [report["norms"] for report in reports(folder, name)]
    assert both[0] == both[1]
    for end in (".ndbg", ".rank1.ndbg"):
        trace = load_trace(folder / f"{name}{end}").trace
        seen = trace.facts.parameter[:, :, ParameterStat.GRAD_NORM]
        names = [parameter.name for parameter in trace.run.parameters]
        expected = [[step[name] for name in names] for step in both[0]]
        np.testing.assert_allclose(seen, expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["ddp", "ddp_inner", "accumulation"])
def test_healthy_ranks_are_quiet(folder, reports, name):
    assert [report["causes"] for report in reports(folder, name)] == [[], []]


@pytest.mark.parametrize("name", ["bypassed", "bypassed_inner"])
def test_a_wrapper_that_is_never_called_is_named_by_one_rank_alone(folder, reports, name):
    for report, end in zip(reports(folder, name), (".ndbg", ".rank1.ndbg"), strict=True):
        assert report["causes"][0] == "rank_divergence"
        (event,) = [
            one
            for one in load_trace(folder / f"{name}{end}").events
            if one.to_state == "wrapper_bypassed"
        ]
        assert event.event_type == "wiring_fault"
        assert event.step <= 1


def test_a_nan_of_one_rank_reaches_the_gradients_of_both(folder, reports):
    plain, bad = reports(folder, "nan_on_one")
    assert bad["causes"][0] == "nan_in_input"
    assert "nan_in_input" not in plain["causes"]
    (first, *_) = reason(load_trace(folder / "nan_on_one.ndbg").trace)
    assert "those of another rank came with the average" in first.description
    state = load_trace(folder / "nan_on_one.ndbg").trace.facts.parameter[:, :, 1]
    assert (state[20] == GradState.NONFINITE).all()
    assert (state[:20] == GradState.PRESENT).all()
