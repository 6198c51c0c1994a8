"""Sharded over two processes (FSDP2)."""

from __future__ import annotations

import numpy as np
import pytest

from neuraldbg import load_trace
from neuraldbg.reasoning import reason
from neuraldbg.schema.facts import ParameterStat

NAMES = ("fsdp", "fsdp_clipped", "fsdp_nan")


@pytest.mark.parametrize("name", NAMES)
def test_watched_ranks_end_bit_equal_with_no_collective_added(folder, reports, name):
    for report in reports(folder, name):
        assert report["is_equal"]
        assert report["same_norms"]
        assert report["collectives"][0] == report["collectives"][1] > 0
        assert report["hooks"] == 0


def test_healthy_shards_are_quiet(folder, reports):
    assert [report["causes"] for report in reports(folder, "fsdp")] == [[], []]


def test_layers_have_the_names_and_kinds_of_the_modules_that_were_wrapped(folder):
    run = load_trace(folder / "fsdp.ndbg").trace.run
    assert [(layer.path, layer.kind) for layer in run.layers] == [
        ("first.0", "Linear"),
        ("first.1", "LayerNorm"),
        ("first.2", "Tanh"),
        ("second.0", "Linear"),
        ("second.1", "Tanh"),
        ("head", "Linear"),
    ]


def test_parameters_say_which_part_a_rank_holds(folder):
    runs = [load_trace(folder / f"fsdp{end}").trace.run for end in (".ndbg", ".rank1.ndbg")]
    for one, two in zip(runs[0].parameters, runs[1].parameters, strict=True):
        assert one.shape == two.shape
        assert (one.shard, two.shard) == ((0, 2), (1, 2))
        assert (one.local_size or 0) + (two.local_size or 0) == np.prod(one.shape)
    assert runs[1].parameters[-1].local_size == 0  # one row of a head cannot be divided


def test_gradient_norms_are_those_of_the_local_shards(folder, reports):
    for report, end in zip(reports(folder, "fsdp"), (".ndbg", ".rank1.ndbg"), strict=True):
        trace = load_trace(folder / f"fsdp{end}").trace
        seen = trace.facts.parameter[:, :, ParameterStat.GRAD_NORM]
        for row, parameter in enumerate(trace.run.parameters):
            expected = [step[parameter.name] for step in report["norms"]]
            if parameter.local_size:
                np.testing.assert_allclose(seen[:, row], expected, rtol=1e-5)
            else:
                assert np.isnan(seen[:, row]).all()


def test_a_nan_is_named_on_the_rank_whose_data_held_it(folder, reports):
    plain, bad = reports(folder, "fsdp_nan")
    assert bad["causes"][0] == "nan_in_input"
    assert "nan_in_input" not in plain["causes"]
    (first, *_) = reason(load_trace(folder / "fsdp_nan.ndbg").trace)
    assert "those of another rank came with the average" in first.description
