# SPDX-License-Identifier: MIT
"""Who feeds whom: ancestors, entries, outputs, the frontier of a set of layers."""

from __future__ import annotations

from neuraldbg.reasoning.flow import Flow
from neuraldbg.schema.run import INPUT, LayerInfo, LayerRole
from neuraldbg.testing import make_run


def layer(path, order, *parents, role=LayerRole.LINEAR, **more):
    return LayerInfo(path=path, kind="X", role=role, order=order, parents=parents, **more)


def diamond():
    run = make_run(
        layer("drop", 0, INPUT, role=LayerRole.DROPOUT),
        layer("left", 1, "drop"),
        layer("right", 2, INPUT),
        layer("join", 3, "left", "right", has_residual=True, is_output=True),
    )
    return Flow(run.model_copy(update={"parameters": run.parameters[1:]}))


def test_ancestors_follow_all_paths():
    flow = diamond()
    assert flow.ancestors("join") == {"left", "right", "drop", INPUT}
    assert flow.is_upstream("drop", "join")
    assert not flow.is_upstream("left", "right")


def test_entries_look_through_passive_layers():
    assert [x.path for x in diamond().entries] == ["left", "right"]


def test_frontier_names_where_it_began_not_the_cone():
    flow = diamond()
    assert flow.frontier({"drop", "left", "join"}) == ["drop"]
    assert flow.frontier({"left", "right", "join"}) == ["left", "right"]


def test_layers_that_never_ran_are_not_executed():
    flow = Flow(make_run(layer("used", 0, INPUT), layer("unused", -1)))
    assert [x.path for x in flow.executed] == ["used"]


def test_without_recorded_parents_execution_order_stands_in():
    flow = Flow(make_run(layer("a", 0), layer("b", 1)))
    assert flow.ancestors("b") == {"a", INPUT}


def test_input_normalisation_is_seen_behind_passive_layers():
    norm = layer("bn", 1, "pool", role=LayerRole.NORMALIZATION)
    flow = Flow(make_run(layer("pool", 0, INPUT, role=LayerRole.POOLING), norm))
    assert flow.is_input_normalized
    assert not diamond().is_input_normalized
