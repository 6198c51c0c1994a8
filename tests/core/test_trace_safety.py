# SPDX-License-Identifier: MIT
"""Kills, full disks, foreign and damaged files: nothing reaches training, nothing lies."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

from neuraldbg.errors import TraceError
from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.facts import Observation
from neuraldbg.schema.run import SCHEMA_VERSION
from neuraldbg.settings import Settings
from neuraldbg.testing import make_facts, make_run
from neuraldbg.trace import TraceWriter, open_trace
from neuraldbg.trace.store import Busy

RUN = make_run("fc1", "head")
PROGRAM = """
import os, resource, sys, time, warnings
warnings.simplefilter("error")
from neuraldbg.settings import Settings
from neuraldbg.testing import make_facts, make_run
from neuraldbg.trace import TraceWriter, open_trace
RUN = make_run("fc1", "head")
"""


def program(source, *arguments):
    return [sys.executable, "-c", PROGRAM + textwrap.dedent(source), *map(str, arguments)]


def event(step):
    return SemanticEvent(
        event_type="data_anomaly",
        step=step,
        step_range=(step, step),
        from_state="a",
        to_state="b",
        confidence=1,
    )


def record(path, count=300, *, is_finished=True):
    writer = TraceWriter(path, RUN, Settings())
    for step in range(count):
        writer.write_step(make_facts(RUN, step, loss=float(step)))
    writer.write_event(event(count - 10))
    if is_finished:
        writer.finish()
    return writer


def test_a_killed_process_leaves_a_trace_that_loses_at_most_a_second(tmp_path):
    path = tmp_path / "run.ndbg"
    source = """
        writer = TraceWriter(sys.argv[1], RUN, Settings())
        for step in range(10**9):
            writer.write_step(make_facts(RUN, step, loss=float(step)))
            print(step, time.time(), flush=True)
            time.sleep(0.002)
    """
    with subprocess.Popen(program(source, path), stdout=subprocess.PIPE, text=True) as process:
        lines = []
        for line in process.stdout:
            lines.append(line.split())
            if len(lines) == 1500:
                process.send_signal(signal.SIGKILL)
                break
        lines += [line.split() for line in process.stdout if line.endswith("\n")]
    trace = open_trace(path)

    assert not trace.is_finished
    assert trace.exception is None
    assert trace.problems == ()
    times = {int(step): float(when) for step, when in lines}
    last = max(times)
    assert times[last] - times[min(last, trace.last_step + 1)] < 1.0
    assert trace.loss.values.tolist() == [float(step) for step in range(trace.step_count)]


def test_another_process_reads_while_training_writes(tmp_path):
    path = tmp_path / "run.ndbg"
    writer = TraceWriter(path, RUN, Settings())
    code = program("print(open_trace(sys.argv[1]).step_count)", path)
    for step in range(70):
        writer.write_step(make_facts(RUN, step))
    writer.flush()
    first = subprocess.run(code, capture_output=True, text=True, check=True)
    reader = open_trace(path)
    assert reader.step_count == int(first.stdout) == 70
    for step in range(70, 200):
        writer.write_step(make_facts(RUN, step))
        if step % 20 == 0:
            assert reader.step_count <= step + 1
    writer.flush()
    assert reader.step_count == 200
    assert len(reader.facts) == 200
    assert not reader.is_finished
    writer.finish()
    assert reader.is_finished


@pytest.mark.parametrize("limit_bytes", [20_000, 200_000, 600_000])
def test_a_full_disk_sends_the_trace_to_memory_with_one_warning(tmp_path, limit_bytes):
    path = tmp_path / "run.ndbg"
    source = """
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
        writer = TraceWriter(sys.argv[1], RUN, Settings())
        for step in range(1500):
            writer.write_step(make_facts(RUN, step, loss=float(step)))
        trace = writer.as_trace()
        assert writer.path is None
        assert trace.step_count == 1500, trace.step_count
        assert trace.loss.values.tolist() == list(map(float, range(1500)))
        assert len(trace.run.warnings) == 1, trace.run.warnings
        writer.finish()
        print(trace.run.warnings[0])
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    """
    done = subprocess.run(
        program(source, path, limit_bytes), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "cannot be written" in done.stdout
    assert done.stderr.count("cannot be written") == 1


@pytest.mark.parametrize("what", ["missing folder", "folder", "foreign file", "foreign database"])
def test_a_place_that_cannot_be_written_is_named_and_left_alone(tmp_path, caplog, what):
    path = tmp_path / "run.ndbg"
    if what == "missing folder":
        path = tmp_path / "no" / "run.ndbg"
    elif what == "folder":
        path.mkdir()
    elif what == "foreign file":
        path.write_text("precious")
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE precious (x)")
        connection.close()
    before = path.read_bytes() if path.is_file() else None
    writer = record(path)

    assert writer.path is None
    trace = writer.as_trace()
    assert trace.step_count == 300
    assert len(caplog.records) == len(trace.run.warnings) == 1
    assert str(path) in trace.run.warnings[0]
    assert (path.read_bytes() if path.is_file() else None) == before


def test_a_folder_removed_during_the_run_sends_the_trace_to_memory(tmp_path, caplog):
    folder = tmp_path / "folder"
    folder.mkdir()
    writer = record(folder / "run.ndbg", is_finished=False)
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    for step in range(300, 500):
        writer.write_step(make_facts(RUN, step))
    writer.finish()

    assert writer.as_trace().step_count == 500
    assert writer.path is None
    assert len(caplog.records) == 1


class Failing:
    """A connection on which some calls fail."""

    def __init__(self, connection, *calls):
        self.connection = connection
        self.calls = calls

    def __getattr__(self, name):
        if name in self.calls:
            raise sqlite3.OperationalError("disk I/O error")
        return getattr(self.connection, name)


def test_any_failure_of_the_database_is_survived_once(tmp_path, caplog):
    writer = record(tmp_path / "run.ndbg", 100, is_finished=False)
    writer._store.connection = Failing(writer._store.connection, "executemany")
    for step in range(100, 400):
        writer.write_step(make_facts(RUN, step, loss=float(step)))
    trace = writer.as_trace()

    assert trace.loss.values.tolist() == [float(step) for step in range(400)]
    assert [one.id for one in trace.events] == [event(90).id]
    assert len(caplog.records) == len(trace.run.warnings) == 1


def test_a_file_that_cannot_even_be_read_any_more_costs_what_is_in_it(tmp_path, monkeypatch):
    monkeypatch.setattr("neuraldbg.trace.series.LIMIT", 2048)
    writer = record(tmp_path / "run.ndbg", 6000, is_finished=False)
    calls = "executemany", "backup"
    writer._store.connection = Failing(writer._store.connection, *calls)
    for step in range(6000, 12_000):
        writer.write_step(make_facts(RUN, step, loss=float(step)))
    trace = writer.as_trace()
    assert trace.step_count == 12_000
    assert trace.facts.widths.sum() >= 5936
    assert trace.facts.stops[-1] == 11_999
    assert len(trace.loss) <= 2048
    assert trace.loss.steps[-1] > 11_990
    assert trace.settings == Settings()


def test_another_file_in_the_place_of_the_trace_is_left_alone(tmp_path, caplog):
    path = tmp_path / "run.ndbg"
    writer = record(path, 100, is_finished=False)
    path.unlink()
    path.write_text("precious")
    for step in range(100, 200):
        writer.write_step(make_facts(RUN, step))
    writer.finish()
    assert writer.as_trace().step_count == 200
    assert path.read_text() == "precious"
    assert "another file has taken its place" in caplog.text


def test_a_reader_that_holds_a_file_without_a_log_only_delays_writing(tmp_path, caplog):
    writer = record(tmp_path / "run.ndbg", 100, is_finished=False)
    transact = writer._store.transact

    def busy(work):
        raise Busy

    writer._store.transact = busy
    for step in range(100, 300):
        writer.write_step(make_facts(RUN, step, loss=float(step)))
    writer._store.transact = transact
    writer.finish()
    trace = open_trace(tmp_path / "run.ndbg")
    assert trace.loss.values.tolist() == [float(step) for step in range(300)]
    assert not caplog.records


def test_an_older_trace_at_the_same_place_is_replaced(tmp_path):
    path = tmp_path / "run.ndbg"
    record(path, 300)
    record(path, 20)
    assert open_trace(path).step_count == 20


def test_each_rank_writes_its_own_file(tmp_path):
    run = RUN.model_copy(update={"rank": 3, "world_size": 4})
    writer = TraceWriter(tmp_path / "run.ndbg", run, Settings())
    writer.finish()
    assert [path.name for path in tmp_path.iterdir()] == ["run.rank3.ndbg"]
    assert open_trace(tmp_path / "run.rank3.ndbg").run.rank == 3


def test_calls_after_the_end_and_in_a_forked_child_do_nothing(tmp_path):
    path = tmp_path / "run.ndbg"
    writer = record(path, 50, is_finished=False)
    child = os.fork()
    if child == 0:
        try:
            writer.write_step(make_facts(RUN, 99))
            writer.write_event(event(99))
            writer.finish()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    writer.write_step(make_facts(RUN, 50))
    writer.finish()
    writer.write_step(make_facts(RUN, 51))
    writer.write_event(event(51))
    writer.finish(ValueError())
    trace = open_trace(path)
    assert (trace.step_count, trace.exception, len(trace.events)) == (51, None, 1)


def test_threads_may_write_at_once():
    writer = TraceWriter(None, RUN, Settings())

    def work(start):
        for step in range(start, start + 200):
            writer.write_step(make_facts(RUN, step))
            writer.write_event(event(step))

    threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trace = writer.as_trace()
    assert trace.step_count == len(trace.events) == 800


def test_an_exception_that_cannot_be_shown_is_named_by_its_type():
    class Awkward(Exception):  # noqa: N818
        def __repr__(self):
            raise RuntimeError

    writer = TraceWriter(None, RUN, Settings())
    writer.finish(Awkward())
    assert writer.as_trace().exception == "Awkward"


def test_observations_of_one_kind_are_bounded():
    writer = TraceWriter(None, RUN, Settings())
    for step in range(100):
        seen = [Observation("again", step, "fc1"), Observation("again", step, "head")]
        writer.write_step(make_facts(RUN, step, observations=seen))
    observed = writer.as_trace().observations
    assert len(observed) == 128
    assert [one.step for one in observed[:2]] == [0, 0]


def test_a_slow_step_is_committed_at_once(tmp_path):
    path = tmp_path / "run.ndbg"
    writer = TraceWriter(path, RUN, Settings())
    for step in range(3):
        time.sleep(0.6)
        writer.write_step(make_facts(RUN, step))
        assert open_trace(path).step_count == step + 1
    writer.finish()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be opened"),
        (b"", "is empty"),
        (b"hello" * 100, "no SQLite file"),
        (b"SQLite format 3\x00" + bytes(100), "another program's"),
    ],
)
def test_what_is_no_trace_is_refused_by_name(tmp_path, content, words):
    path = tmp_path / "strange.ndbg"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TraceError, match=words) as caught:
        open_trace(path)
    assert str(path) in str(caught.value)


def test_a_newer_trace_is_refused_by_name(tmp_path):
    path = tmp_path / "run.ndbg"
    record(path)
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.close()
    with pytest.raises(TraceError, match=r"newer NeuralDBG.*upgrade"):
        open_trace(path)


@pytest.mark.parametrize("share", [0.95, 0.7, 0.4])
def test_a_truncated_trace_gives_what_is_left_and_says_so(tmp_path, share):
    path = tmp_path / "run.ndbg"
    record(path, 1000)
    whole = open_trace(path)
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    trace = open_trace(path)

    assert trace.run == RUN
    assert trace.problems
    table = trace.facts
    assert len(table) > 100 * share
    rows = {int(step): row for row, step in enumerate(whole.facts.steps)}
    for row, step in enumerate(table.steps.tolist()):
        assert (table.activation[row] == whole.facts.activation[rows[step]]).all()


def test_pages_overwritten_in_the_middle_are_noticed(tmp_path):
    path = tmp_path / "run.ndbg"
    record(path, 1000)
    content = bytearray(path.read_bytes())
    middle = len(content) // 8192 * 4096
    content[middle : middle + 3 * 4096] = os.urandom(3 * 4096)
    path.write_bytes(content)
    trace = open_trace(path)
    assert trace.problems
    assert 900 < len(trace.facts) < 1000


def test_unreadable_events_are_counted_and_the_others_stay(tmp_path):
    path = tmp_path / "run.ndbg"
    record(path)
    with sqlite3.connect(path) as connection:
        connection.execute("INSERT INTO event VALUES ('x', '{not json')")
        connection.execute('INSERT INTO observation VALUES (1, \'{"kind": 1, "odd": 2}\')')
        connection.execute("UPDATE chunk SET check_sum = 0")
        connection.execute("UPDATE fact SET check_sum = 0 WHERE first = 7")
    connection.close()
    trace = open_trace(path)
    assert [one.step for one in trace.events] == [290]
    assert 7 not in trace.facts.steps
    assert len(trace.problems) == 4


def test_a_trace_without_its_description_is_damaged(tmp_path):
    path = tmp_path / "run.ndbg"
    record(path)
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM meta WHERE name = 'run'")
    connection.close()
    with pytest.raises(TraceError, match="description of the run"):
        open_trace(path)


def test_a_trace_without_its_tables_is_damaged(tmp_path):
    path = tmp_path / "run.ndbg"
    record(path)
    content = path.read_bytes()
    path.write_bytes(content[:100] + os.urandom(4096))
    with pytest.raises(TraceError, match="damaged"):
        open_trace(path)


def test_a_copy_of_the_main_file_alone_is_a_trace(tmp_path):
    path = tmp_path / "run.ndbg"
    writer = record(path, is_finished=False)
    copy = tmp_path / "copy.ndbg"
    copy.write_bytes(path.read_bytes())
    writer.finish()
    trace = open_trace(copy)
    assert trace.run == RUN
    assert trace.problems == ()
    assert trace.step_count < open_trace(path).step_count


def test_the_example_of_schema_version_1_still_loads():
    path = Path(__file__).parents[1] / "data" / "trace_v1.ndbg"
    trace = open_trace(path)
    assert trace.problems == ()
    assert (trace.step_count, trace.last_step) == (1300, 1299)
    assert trace.run.layers[0].path == "fc1"
    assert trace.exception == "RuntimeError('made up')"
    assert [one.step for one in trace.events] == [1000]
    assert trace.events[0].evidence["ratio"] == 4.5
    assert trace.observations[0].kind == "frozen_parameters"
    assert trace.loss.values[:3].tolist() == [1.0, 0.5, 0.25]
    assert trace.metrics["accuracy"].values[-1] == 1299 / 1300
    assert trace.facts.widths.sum() == 1300
    assert trace.facts.activation.shape[1:] == (1, 14)
    assert not trace.facts.is_exact.all()


def test_a_reader_that_never_lets_go_costs_the_file_and_not_the_memory(
    tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr("neuraldbg.trace.writer.PATIENCE_STEPS", 200)
    writer = record(tmp_path / "run.ndbg", 100, is_finished=False)
    transact = writer._store._commit
    monkeypatch.setattr(
        writer._store, "_commit", lambda work: transact(work if writer.path is None else held)
    )
    step = 100
    while writer.path is not None and step < 20_000:  # it writes, and loses patience, by the clock
        writer.write_step(make_facts(RUN, step, loss=float(step)))
        step += 1
    assert writer.path is None
    assert writer.as_trace().loss.values.tolist() == [float(label) for label in range(step)]
    assert len(caplog.records) == 1
    writer.finish()


def test_an_end_that_a_reader_holds_up_is_named(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("neuraldbg.trace.writer.PATIENCE_CALLS", 2)
    path = tmp_path / "run.ndbg"
    writer = record(path, 100, is_finished=False)
    writer.flush()
    transact = writer._store._commit
    monkeypatch.setattr(writer._store, "_commit", lambda work: transact(held))
    writer.finish()
    assert caplog.messages == [f"the end of trace {str(path)!r} is lost: a reader holds it"]
    assert not open_trace(path).is_finished


def held(connection):
    error = sqlite3.OperationalError("database is locked")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    raise error


def test_how_far_a_live_run_is_costs_no_commit():
    writer = TraceWriter(None, RUN, Settings())
    trace = writer.as_trace()
    writer.write_step(make_facts(RUN, 7))
    assert (trace.step_count, trace.last_step) == (1, 7)
    assert writer._rows


ODD = {
    "bytes": b"\x80\x04\x95pickle",
    "text": "no number",
    "number": 7,
    "nothing": None,
    "list": "[]",
    "document": '{"kind": 1, "step": "one", "figures": [], "activation": "wide"}',
    "huge": 2**62,
}


def columns_of(path):
    with sqlite3.connect(path) as connection:
        query = "SELECT name FROM sqlite_schema WHERE type = 'table'"
        found = [
            (table, row[1])
            for (table,) in connection.execute(query).fetchall()
            for row in connection.execute(f"PRAGMA table_info({table})")
        ]
    connection.close()
    return found


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_column_that_holds_something_else_costs_at_most_what_it_held(tmp_path, odd):
    path = tmp_path / "run.ndbg"
    writer = record(path, 1300, is_finished=False)
    writer.write_step(make_facts(RUN, 1300, observations=[Observation("seen", 1300, "fc1")]))
    writer.finish(ValueError("over"))
    whole = path.read_bytes()
    readable = 0
    for table, column in columns_of(path):
        path.write_bytes(whole)
        connection = sqlite3.connect(path)
        try:
            connection.execute(f"UPDATE {table} SET {column} = ?", (odd,))  # noqa: S608 - own names
            connection.commit()
        except sqlite3.Error:
            continue  # a constraint forbids it
        finally:
            connection.close()
        try:
            trace = open_trace(path)
        except TraceError:
            assert table == "meta"
            continue
        readable += 1
        assert isinstance(trace.problems, tuple), (table, column)
        assert trace.exception is None or isinstance(trace.exception, str)
        assert trace.last_step is None or isinstance(trace.last_step, int)
        assert all(isinstance(name, str) for name in (*trace.losses, *trace.metrics))
        assert all(isinstance(one.kind, str) for one in trace.observations)
        assert len(trace.facts.steps) == len(trace.facts.activation)
        assert isinstance(trace.step_count, int)
        assert trace.facts.low.activation.shape == trace.facts.activation.shape
    assert readable > 4


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_regular_file_is_left_alone(tmp_path, kind, caplog):
    place = tmp_path / "run.ndbg"
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.mkdir()
    before = place.lstat().st_mode
    writer = TraceWriter(place, make_run(), Settings())
    assert writer.path is None
    assert place.lstat().st_mode == before
    assert not (tmp_path / "elsewhere").exists()
    assert caplog.records


def test_a_finished_trace_does_not_answer_for_the_run_that_replaced_it(tmp_path):
    place = tmp_path / "run.ndbg"
    traces = []
    for count in (3, 5):
        writer = TraceWriter(place, make_run(), Settings())
        for step in range(count):
            writer.write_step(make_facts(make_run(), step, loss=1.0))
        writer.finish()
        traces.append(writer.as_trace())
    with pytest.raises(TraceError, match="replaced"):
        _ = traces[0].events
    assert traces[1].step_count == 5
    assert len(traces[1].loss) == 5
