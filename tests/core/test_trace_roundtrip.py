# SPDX-License-Identifier: MIT
"""What is written is what is read, live and from a file."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.facts import LedgerFacts, Observation, StepFacts
from neuraldbg.schema.vocabulary import EventType
from neuraldbg.settings import Settings
from neuraldbg.testing import make_facts, make_run, recorded_run, steps_of
from neuraldbg.trace import LEDGER_FIELDS, TraceWriter, open_trace, step_facts
from neuraldbg.trace.codec import Chunk, Damage, decode_chunk, encode_chunk
from neuraldbg.trace.layout import Layout, pack, repack

RUN = make_run("fc1", "head")
ANY_FLOAT32 = st.floats(width=32, allow_nan=True, allow_infinity=True)
ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True)


def event(step=3, *, layer="fc1", **changes):
    fields = {
        "event_type": EventType.DATA_ANOMALY,
        "layer": layer,
        "step": step,
        "step_range": (step - 1, step),
        "from_state": "normal",
        "to_state": "outlier",
        "confidence": 0.5,
        "detector": "made",
    }
    return SemanticEvent(**{**fields, **changes})


def same(one, other):
    return np.array_equal(one, other, equal_nan=True)


@st.composite
def steps(draw):
    ledger = LedgerFacts(
        forwards=draw(st.integers(0, 9)),
        clip_max_norm=draw(ANY_FLOAT32),
        is_cleared=draw(st.booleans()),
        batch_size=draw(st.integers(0, 4096)),
    )
    shapes = [getattr(make_facts(RUN, 0), name).shape for name in ARRAYS]
    parts = [draw(arrays.arrays(np.float32, shape, elements=ANY_FLOAT32)) for shape in shapes]
    return make_facts(
        RUN,
        draw(st.integers(-5, 10**9)),
        loss=draw(st.none() | ANY_FLOAT),
        metrics=draw(st.dictionaries(st.sampled_from(["accuracy", "lr"]), ANY_FLOAT)),
        ledger=ledger,
        is_sampled=draw(st.booleans()),
        seconds=draw(ANY_FLOAT32),
    ), parts


ARRAYS = ("activation", "parameter", "inputs", "optimizer")


@settings(max_examples=25, deadline=None)
@given(st.lists(steps(), max_size=12))
def test_steps_come_back_as_they_were_written(drawn):
    written = [
        dataclasses.replace(facts, **dict(zip(ARRAYS, parts, strict=True)))
        for facts, parts in drawn
    ]
    writer = TraceWriter(None, RUN, Settings())
    for facts in written:
        writer.write_step(facts)
    trace = writer.as_trace()

    assert trace.step_count == len(written)
    table = trace.facts
    assert table.steps.tolist() == table.stops.tolist() == [facts.step for facts in written]
    for row, facts in enumerate(written):
        for name in ARRAYS:
            assert same(getattr(table, name)[row], getattr(facts, name))
        ledger = np.array([getattr(facts.ledger, name) for name in LEDGER_FIELDS], np.float32)
        assert same(table.ledger[row], ledger)
        assert table.sampled[row] == facts.is_sampled
        assert same(table.seconds[row], np.float32(facts.seconds))
    for kind, attribute in ((trace.losses, "losses"), (trace.metrics, "metrics")):
        for name in {name for facts in written for name in getattr(facts, attribute)}:
            having = [facts for facts in written if name in getattr(facts, attribute)]
            assert kind[name].steps.tolist() == [facts.step for facts in having]
            expected = [getattr(facts, attribute)[name] for facts in having]
            assert same(kind[name].values, np.array(expected))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), ANY_FLOAT), min_size=1, max_size=20))
def test_chunks_of_series_lose_nothing(pairs):
    labels, values = zip(*pairs, strict=True)
    steps_, figures = decode_chunk(encode_chunk(labels, values))
    assert steps_.tolist() == list(labels)
    assert same(figures, np.array(values))


def test_losses_of_float32_tensors_take_four_bytes_each():
    values = [float(np.float32(1 / n)) for n in range(1, 101)]
    chunk = encode_chunk(range(0, 1000, 10), values)
    assert len(chunk.figures) == 400
    assert chunk.steps is None
    assert len(encode_chunk(range(100), [math.pi] * 100).figures) == 800


def test_a_chunk_with_a_flipped_bit_is_damage():
    chunk = encode_chunk(range(3), [1.0, 2.0, 3.0])
    broken = chunk._replace(figures=b"\x01" + chunk.figures[1:])
    with pytest.raises(Damage, match="check sum"):
        decode_chunk(Chunk(*broken))


def test_events_and_observations_keep_every_figure():
    strange = {"nan": math.nan, "inf": -math.inf, "word": "NaN", "number": 0.1}
    made = event(evidence=strange, layer=None)
    seen = Observation("frozen", 2, "fc1", {"x": math.nan, "y": 1e300}, {"name": "é\x00'"})
    writer = TraceWriter(None, RUN, Settings())
    writer.write_step(make_facts(RUN, 2, observations=[seen]))
    writer.write_event(made)
    trace = writer.as_trace()

    (back,) = trace.events
    assert back.id == made.id
    assert str(back.evidence) == str(made.evidence)
    (observed,) = trace.observations
    assert str(observed) == str(seen)


def test_an_event_seen_again_replaces_itself():
    writer = TraceWriter(None, RUN, Settings())
    trace = writer.as_trace()
    writer.write_event(event())
    assert trace.events[0].count == 1
    writer.write_event(event(count=7, last_step=20))
    assert [one.count for one in trace.events] == [7]


def test_events_come_in_order_of_step_detector_and_layer():
    writer = TraceWriter(None, RUN, Settings())
    made = [
        event(5, detector="b"),
        event(5, detector="a", layer="z"),
        event(1, detector="z"),
        event(5, detector="a", layer=None),
    ]
    for one in made:
        writer.write_event(one)
    order = [(one.step, one.detector, one.layer) for one in writer.as_trace().events]
    assert order == [(1, "z", "fc1"), (5, "a", None), (5, "a", "z"), (5, "b", "fc1")]


def test_a_file_reads_like_the_live_trace(tmp_path):
    path = tmp_path / "run.ndbg"
    writer = TraceWriter(path, RUN, Settings(threshold_vanishing=1e-9))
    live = writer.as_trace()
    for step in range(150):
        writer.write_step(make_facts(RUN, step, loss=1 / (step + 1), metrics={"m": step}))
    writer.write_event(event(140))
    writer.finish(ValueError("broken"))
    loaded = open_trace(path)

    for trace in (live, loaded):
        assert trace.path == path
        assert trace.run == RUN
        assert trace.settings.threshold_vanishing == 1e-9
        assert trace.exception == "ValueError('broken')"
        assert trace.is_finished
        assert (trace.step_count, trace.last_step) == (150, 149)
        assert trace.problems == ()
        assert [one.id for one in trace.events] == [event(140).id]
    assert same(live.facts.matrix, loaded.facts.matrix)
    assert same(live.loss.values, loaded.loss.values)
    assert [one.name for one in tmp_path.iterdir()] == ["run.ndbg"]


def test_an_empty_run_is_a_trace(tmp_path):
    path = tmp_path / "run.ndbg"
    TraceWriter(path, RUN, Settings()).finish()
    trace = open_trace(path)
    assert (trace.step_count, trace.last_step, trace.is_finished) == (0, None, True)
    assert len(trace.facts) == 0
    assert trace.facts.activation.shape == (0, 2, 14)
    assert len(trace.facts.low) == 0
    assert not trace.loss
    assert list(step_facts(trace)) == []


def test_rows_of_early_steps_are_nan_where_inputs_and_optimizers_came_later():
    bare = make_run("fc1", "head", inputs=(), optimizers=())
    writer = TraceWriter(None, bare, Settings())
    writer.write_step(make_facts(bare, 0))
    writer.write_step(make_facts(RUN, 1))
    trace = writer.as_trace()

    assert trace.run == RUN
    assert trace.facts.inputs.shape == (2, 1, 9)
    assert np.isnan(trace.facts.inputs[0]).all()
    assert np.isnan(trace.facts.optimizer[0]).all()
    assert not np.isnan(trace.facts.inputs[1]).any()
    assert same(trace.facts.activation[0], make_facts(bare, 0).activation)


def test_facts_have_as_many_rows_as_the_run_even_before_a_step_shows_them():
    writer = TraceWriter(None, make_run("fc1", "head", inputs=()), Settings())
    writer.write_step(make_facts(make_run("fc1", "head", inputs=()), 0))
    trace = writer.as_trace()
    assert trace.facts.inputs.shape == (1, 0, 9)
    writer.write_run(RUN)
    assert trace.run.inputs == RUN.inputs


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 3))
def test_repacking_keeps_every_figure_in_its_row(layers, extra, inputs):
    old = Layout(((layers, 14), (2, 9), (inputs, 9), (0, 7), (1, 16), (1, 3)))
    new = Layout(((layers + extra, 14), (3, 10), (inputs + 1, 9), (2, 7), (1, 17), (1, 3)))
    matrix = np.arange(2 * old.width, dtype=np.float32).reshape(2, old.width)
    moved = repack(matrix, old, new)
    for name in ("activation", "parameter", "inputs", "ledger", "step"):
        block = old.block(matrix, name)
        assert same(new.block(moved, name)[:, : block.shape[1], : block.shape[2]], block)
    assert np.isnan(moved).sum() == 2 * (new.width - old.width)
    assert old.union(new) == new


def test_a_layout_of_an_older_file_lacks_what_came_later():
    layout = Layout.from_json('{"activation": [2, 13], "step": [1, 3]}')
    assert layout.shapes[1] == (0, 0)
    assert layout.width == 29


def test_pack_takes_any_float_array():
    facts = dataclasses.replace(make_facts(RUN, 0), activation=np.ones((2, 14)))
    layout, vector = pack(facts)
    assert vector.dtype == np.float32
    assert layout == Layout.of_run(RUN)


@pytest.mark.parametrize("name", ["healthy", "nan_loss"])
def test_a_replayed_step_is_the_recorded_one(name):
    for before, after in zip(steps_of(name), step_facts(recorded_run(name)), strict=True):
        for field in dataclasses.fields(StepFacts):
            one, other = getattr(before, field.name), getattr(after, field.name)
            if isinstance(one, np.ndarray):
                assert same(one, other)
            elif field.name == "seconds":
                assert other == pytest.approx(one)
            else:
                assert str(one) == str(other)


def test_the_main_loss_is_the_one_named_loss_else_the_first():
    writer = TraceWriter(None, RUN, Settings())
    trace = writer.as_trace()
    writer.write_step(make_facts(RUN, 0, loss=None, losses={"aux": 3.0, "total": 4.0}))
    assert trace.loss.values.tolist() == [3.0]
    assert list(trace.losses) == ["aux", "total"]
    writer.write_step(make_facts(RUN, 1, loss=5.0))
    assert trace.loss.values.tolist() == [5.0]


def test_what_is_read_is_kept_until_the_run_goes_on():
    writer = TraceWriter(None, RUN, Settings())
    writer.write_step(make_facts(RUN, 0))
    trace = writer.as_trace()
    facts, events = trace.facts, trace.events
    assert trace.facts is facts
    writer.write_event(event())
    assert trace.facts is facts
    assert trace.events is not events
    writer.write_step(make_facts(RUN, 1))
    assert len(trace.facts) == 2


def test_the_same_facts_give_the_same_bytes():
    def answers():
        writer = TraceWriter(None, RUN, Settings())
        for step in range(3000):
            writer.write_step(make_facts(RUN, step, loss=1 / (step + 1)))
            if step == 1500:
                writer.write_event(event(1490))
        trace = writer.as_trace()
        return trace.facts.matrix.tobytes() + trace.loss.values.tobytes() + bytes(trace.facts.steps)

    assert answers() == answers()
