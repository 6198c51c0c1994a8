# SPDX-License-Identifier: MIT
"""Far back, steps become means, minima and maxima; near, and around events, they stay."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.facts import ActivationStat
from neuraldbg.schema.run import RunInfo
from neuraldbg.settings import Settings
from neuraldbg.testing import make_facts, make_run
from neuraldbg.trace import TraceWriter, decimation, facts, series, step_facts

RUN = make_run("only")
VALUE = st.sampled_from([0.0, 1.0, -2.5, 1e30, math.nan, math.inf, -math.inf, 3.25])


def event(step):
    return SemanticEvent(
        event_type="data_anomaly",
        step=step,
        step_range=(step, step),
        from_state="a",
        to_state="b",
        confidence=1,
    )


def record(count, *, events=(), value=float):
    writer = TraceWriter(None, RUN, Settings())
    for step in range(count):
        figure = value(step)
        cells = {("only", ActivationStat.RMS): figure}
        writer.write_step(make_facts(RUN, step, loss=figure, activation=cells))
        if step in events:
            writer.write_event(event(step))
    return writer


def twin(values):
    """The obvious way: NaN-aware mean, minimum, maximum and count of a column."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return math.nan, math.nan, math.nan, 0
    infinite = {value for value in known if math.isinf(value)}
    if len(infinite) == 2:
        mean = math.nan
    else:
        mean = infinite.pop() if infinite else math.fsum(known) / len(known)
    return mean, min(known), max(known), len(known)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(1, 12), st.integers(1, 3))
def test_merging_in_any_order_equals_the_slow_twin(data, count, width):
    rows = data.draw(
        st.lists(st.lists(VALUE, min_size=width, max_size=width), min_size=count, max_size=count)
    )
    buckets = [
        decimation.exact(n, 10 * n, np.array(row, dtype=np.float32)) for n, row in enumerate(rows)
    ]
    while len(buckets) > 1:
        start = data.draw(st.integers(0, len(buckets) - 2))
        stop = data.draw(st.integers(start + 2, len(buckets)))
        merged = decimation.merge(buckets[start:stop])
        stored = facts.row_bucket(facts.bucket_row(merged, 0), {0: WIDTHS[width]}, WIDTHS[width])
        buckets[start:stop] = [stored]
    (result,) = buckets
    assert (result.first, result.last, result.width) == (0, count - 1, count)
    assert (result.first_step, result.last_step) == (0, 10 * (count - 1))
    for column in range(width):
        mean, low, high, number = twin([float(np.float32(row[column])) for row in rows])
        assert result.mean[column] == pytest.approx(mean, rel=1e-5, abs=1e24, nan_ok=True)
        assert result.low[column] == pytest.approx(low, nan_ok=True)
        assert result.high[column] == pytest.approx(high, nan_ok=True)
        assert result.counts[column] == number


WIDTHS = {
    width: facts.Layout(((1, width), (0, 9), (0, 9), (0, 7), (0, 16), (0, 3)))
    for width in (1, 2, 3)
}


def test_the_cheapest_pair_is_narrow_and_old_and_has_no_gap():
    assert decimation.cheapest_pair([], 10) is None
    assert decimation.cheapest_pair([(0, 3)], 10) is None
    assert decimation.cheapest_pair([(0, 3), (5, 8)], 10) is None
    assert decimation.cheapest_pair([(0, 15), (16, 31), (32, 35), (36, 39), (40, 43)], 44) == 2
    assert decimation.cheapest_pair([(0, 3), (4, 7), (8, 11)], 100) == 0


def test_first_and_last_steps_and_those_around_events_are_exact():
    writer = record(6000, events={2000, 3003})
    table = writer.as_trace().facts
    exact = set(table.steps[table.is_exact].tolist())

    assert set(range(64)) <= exact
    assert set(range(6000 - 1024, 6000)) <= exact
    for step in (2000, 3003):
        assert set(range(step - 16, step + 17)) <= exact
    assert len(exact) <= 64 + 1024 + 64 + 2 * 33
    assert 1000 not in exact


def test_decimated_rows_cover_every_step_once_and_hold_its_extremes():
    count = 5000
    table = record(count, events={2500}).as_trace().facts
    assert table.widths.sum() == count
    assert table.steps[0] == 0
    assert (table.steps[1:] == table.stops[:-1] + 1).all()
    assert (table.stops - table.steps + 1 == table.widths).all()
    rms = table.activation[:, 0, ActivationStat.RMS]
    middle = (table.steps + table.stops) / 2
    assert rms == pytest.approx(middle, rel=1e-6)
    assert (table.low.activation[:, 0, ActivationStat.RMS] == table.steps).all()
    assert (table.high.activation[:, 0, ActivationStat.RMS] == table.stops).all()
    assert (table.low.low.activation == table.low.activation).all()


def test_a_step_that_leaves_alone_between_two_events_is_read_as_exact():
    table = record(1300, events=(80, 80 + 2 * facts.AROUND + 2)).as_trace().facts
    alone = int(np.flatnonzero(table.steps == 80 + facts.AROUND + 1)[0])
    assert table.widths[alone] == 1
    assert len(table.extremes[0]) == len(table.extremes[1]) == int((~table.is_exact).sum()) > 0
    for one in (table, table.low, table.high):
        assert one.activation[alone, 0, ActivationStat.RMS] == table.steps[alone]


def test_a_nan_neither_spreads_nor_disappears():
    table = record(4000, value=lambda s: math.nan if s % 2 else 2.0).as_trace().facts
    rms = table.activation[:, 0, ActivationStat.RMS]
    assert set(rms[~table.is_exact].tolist()) == {2.0}


def test_resolution_falls_with_age():
    table = record(20_000).as_trace().facts
    age = 20_000 - table.steps
    wide = table.widths > 1
    assert (table.widths[wide] / age[wide]).max() < 0.08
    assert wide.sum() <= facts.BUCKETS


def test_an_event_at_a_step_long_gone_or_unknown_pins_nothing_that_is_not_there():
    writer = record(3000)
    writer.write_event(event(200))
    writer.write_event(event(10**6))
    for step in range(3000, 5000):
        writer.write_step(make_facts(RUN, step))
    table = writer.as_trace().facts
    assert table.widths.sum() == 5000


def test_a_run_of_events_only_keeps_a_bounded_number_of_exact_steps():
    table = record(9000, events=set(range(0, 9000, 30))).as_trace().facts
    assert table.widths.sum() == 9000
    assert table.is_exact.sum() <= 64 + 1088 + facts.PINNED + 33


def test_large_models_keep_fewer_exact_steps():
    run = make_run(*(f"layer{n}" for n in range(600)))
    one = make_facts(run, 0)
    writer = TraceWriter(None, run, Settings())
    count = 1500
    for step in range(count):
        writer.write_step(dataclasses.replace(one, step=step))
    table = writer.as_trace().facts
    exact_bytes = table.is_exact.sum() * table.layout.width * 4
    assert exact_bytes < facts.TAIL_BYTES + 2 * facts.PERIOD * table.layout.width * 4


def test_series_are_exact_to_their_limit_and_halved_beyond():
    writer = TraceWriter(None, RunInfo(neuraldbg_version="", torch_version=""), Settings())
    empty = make_facts(writer._run, 0, loss=None)
    values = np.random.default_rng(0).random(series.LIMIT + 1001)
    values[[7, 10_000]] = math.nan, math.inf
    for step, value in enumerate(values.tolist()):
        writer._append_all("loss", [step], [{"loss": value}])
        if step == series.LIMIT - 1000:
            writer.write_step(empty)
        if step % 4096 == 0:
            writer.flush()
        if step == series.LIMIT - 2:
            exact = writer.as_trace().loss
            assert np.array_equal(exact.values, values[: series.LIMIT - 1], equal_nan=True)
            assert exact.stride == 1

    loss = writer.as_trace().loss
    pairs = values[: len(values) // 2 * 2]
    expected = [*((pairs[0::2] + pairs[1::2]) / 2), values[-1]]
    assert loss.stride == 2
    assert loss.steps.tolist() == list(range(0, len(values), 2))
    assert loss.values == pytest.approx(np.array(expected), nan_ok=True)
    assert math.isnan(loss.values[3])
    assert loss.values[5_000] == math.inf


@settings(max_examples=60, deadline=None)
@given(st.lists(VALUE, max_size=90), st.integers(1, 7))
def test_a_halved_series_equals_the_slow_twin(values, period):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(series, "CHUNK", 4)
        patch.setattr(series, "LIMIT", 16)
        writer = TraceWriter(None, RUN, Settings())
        for step, value in enumerate(values):
            writer._append_all("loss", [step], [{"loss": value}])
            if step % period == 0:
                writer.flush()
        loss = writer.as_trace().loss
    assert len(loss) <= 16
    stride = loss.stride
    groups = [values[n : n + stride] for n in range(0, len(values), stride)]
    assert loss.steps.tolist() == list(range(0, len(values), stride))
    for group, got in zip(groups, loss.values.tolist(), strict=True):
        with np.errstate(all="ignore"):
            mean = float(np.array(group).sum() / len(group))
        assert got == pytest.approx(mean, rel=1e-9, abs=1e15, nan_ok=True)


def test_a_replay_of_decimated_steps_gives_means():
    trace = record(4000).as_trace()
    steps = list(step_facts(trace))
    assert len(steps) == len(trace.facts)
    (row,) = [n for n, facts_ in enumerate(steps) if facts_.step <= 1000][-1:]
    first, last = int(trace.facts.steps[row]), int(trace.facts.stops[row])
    assert last > first
    assert steps[row].loss == pytest.approx((first + last) / 2)
    assert steps[row].ledger.batch_size == 32
    assert steps[row].ledger.is_cleared is True
    exact = list(step_facts(trace, is_exact_only=True))
    assert len(exact) == trace.facts.is_exact.sum()
    assert exact[-1].loss == 3999.0


def test_names_made_up_per_step_do_not_fill_the_memory(caplog):
    writer = TraceWriter(None, RUN, Settings())
    for step in range(600):
        writer.write_step(make_facts(RUN, step, loss=None, losses={f"loss{step}": 1.0}))
    trace = writer.as_trace()
    assert len(trace.losses) == 512
    assert len([one for one in trace.run.warnings if "names" in one]) == 1
    assert len(caplog.records) == 1


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_million_steps_stay_small_in_file_and_memory(tmp_path):
    path = tmp_path / "run.ndbg"
    run = RunInfo(neuraldbg_version="", torch_version="")
    writer = TraceWriter(path, run, Settings())
    one = make_facts(run, 0)
    process = psutil.Process()
    sizes = {}
    for step in range(1_000_000):
        writer.write_step(dataclasses.replace(one, step=step, losses={"loss": 1 / (step + 1)}))
        if step in (2_000, 300_000, 999_999):
            writer.flush()
            sizes[step] = process.memory_info().rss
    writer.finish()
    table = writer.as_trace().facts
    assert table.widths.sum() == 1_000_000
    assert len(table) <= 64 + 1088 + facts.BUCKETS
    assert len(writer.as_trace().loss) <= series.LIMIT
    assert path.stat().st_size < 4_000_000
    assert sizes[999_999] - sizes[300_000] < 4_000_000


@given(
    blocks=st.lists(st.lists(VALUE, max_size=40), max_size=8),
    stride=st.sampled_from([1, 2, 4, 16]),
    filled=st.integers(0, series.CHUNK),
)
@settings(max_examples=80, deadline=None)
def test_many_numbers_at_once_are_kept_as_one_by_one(blocks, stride, filled):
    single, bulk = series.SeriesWriter(0), series.SeriesWriter(0)
    for writer in (single, bulk):
        for step in range(filled):
            writer.append(step, 1.0)
        writer.stride = stride
    first = filled
    for block in blocks:
        steps = list(range(first, first + len(block)))
        for step, value in zip(steps, block, strict=True):
            single.append(step, value)
        bulk.extend(steps, block)
        first += len(block)
    assert repr(bulk.unsaved()) == repr(single.unsaved())
