# SPDX-License-Identifier: MIT
"""Promises 5 and 6: what it says can be checked; local and safe.

Each has a check, and the check with the promise broken on purpose.
"""

from __future__ import annotations

import dataclasses
import json
import os
import socket
import sqlite3
import subprocess
import sys
import textwrap

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg, load_trace
from neuraldbg.errors import TraceError
from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.vocabulary import EventType
from neuraldbg.settings import Settings
from neuraldbg.testing import make_facts, make_run
from neuraldbg.trace import TraceWriter

N = 20


def tower(depth=2, width=16):
    hidden = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.Tanh())]
    for layer in hidden[::2]:
        nn.init.orthogonal_(layer.weight, gain=1.2)
    return nn.Sequential(nn.Linear(6, width), *hidden, nn.Linear(width, 1))


def one_step(model, optimizer, rows=16, spoil=None):
    x = torch.randn(rows, 6)
    y = x[:, :1] - x[:, 1:2]
    if spoil is not None:
        x = spoil(x)
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def broken(*_, **__):
    raise ZeroDivisionError("broken on purpose")


def python(code, *arguments, cwd, **options):
    """Run a program of its own and return what it did."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=cwd, text=True, capture_output=True, timeout=100, check=False, **options,
    )  # fmt: skip


# -- 5. what it says can be checked ----------------------------------------------------------------

ANSWERS = """
    import sys

    class Forbidden:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] == "torch":
                raise ImportError("no torch here")

    if "without" in sys.argv:
        sys.meta_path.insert(0, Forbidden())
    from neuraldbg import load_trace

    dbg = load_trace(sys.argv[1])
    for hypothesis in dbg.explain_failure():
        print(hypothesis.model_dump_json())
    for row in dbg.get_root_causes():
        print(row.model_dump_json())
    for coupling in dbg.detect_coupled_failures():
        print(coupling.model_dump_json())
    for link in dbg.trace_causal_chain("nan_detected"):
        print(link.model_dump_json())
    print(dbg.summary())
    print(dbg.export_mermaid_causal_graph())
    print(open(dbg.export_aquarium_package("out.json")).read())
    print(open(dbg.report("out.html")).read())
    assert "torch" not in sys.modules or "without" not in sys.argv
"""


def failed_run(path, steps=60):
    torch.manual_seed(5)
    model = tower(3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with NeuralDbg(model, trace=path) as dbg:
        for step in range(steps):
            loss = one_step(model, optimizer, spoil=lambda x, step=step: x if step != 40 else x / 0)
            dbg.record_loss(loss)
    return dbg


def said(dbg):
    return [h.model_dump_json() for h in dbg.explain_failure()]


def test_every_machine_gives_the_same_answers_without_torch(tmp_path):
    live = failed_run(tmp_path / "run.ndbg")
    answers = []
    for seed, mode in (("1", "without"), ("2", "without"), ("3", "with")):
        cwd = tmp_path / seed
        cwd.mkdir()
        environment = os.environ | {"PYTHONHASHSEED": seed, "TZ": f"UTC{seed}", "LANG": "C"}
        done = python(ANSWERS, tmp_path / "run.ndbg", mode, cwd=cwd, env=environment)
        assert done.returncode == 0, done.stderr
        answers.append(done.stdout)
    assert answers[0] == answers[1] == answers[2]
    assert answers[0].splitlines()[: len(said(live))] == said(live) != []


def test_every_hypothesis_points_to_events_and_figures(tmp_path):
    live = failed_run(tmp_path / "run.ndbg")
    loaded = load_trace(tmp_path / "run.ndbg")
    events = {event.id: event for event in loaded.events}
    assert [e.id for e in live.events] == list(events)
    for hypothesis in loaded.explain_failure():
        assert hypothesis.evidence or hypothesis.causal_chain
        assert all(event.id in events and event.evidence for event in hypothesis.evidence)
        assert all(link.event in events for link in hypothesis.causal_chain if link.event)
    package = json.loads(
        (tmp_path / loaded.export_aquarium_package(tmp_path / "a.json")).read_text(
            encoding="utf-8"
        ),
        parse_constant=broken,
    )
    assert {"events", "hypotheses", "couplings", "loss_history", "schema_version", "run"} <= set(
        package
    )


@pytest.mark.parametrize("offset", range(16))
def test_a_long_trace_is_read_without_a_problem_wherever_its_events_stand(offset):
    """Steps around an event stay exact; what is left between them and the merged ones varies."""
    run = make_run("only")
    facts, step = make_facts(run, 0), 1_200 + offset
    event = SemanticEvent(
        event_type=EventType.DATA_ANOMALY,
        step=step,
        step_range=(step, step),
        from_state="normal",
        to_state="outlier",
        confidence=0.5,
    )
    writer = TraceWriter.open(None, run, Settings())
    for ordinal in range(2_500):
        writer.write_step(dataclasses.replace(facts, step=ordinal))
        if ordinal == step:
            writer.write_event(event)
    writer.finish(None)
    table = writer.as_trace().facts
    assert writer.as_trace().problems == ()
    assert int(table.widths.sum()) == 2_500


def test_an_answer_by_the_clock_is_noticed(tmp_path):
    failed_run(tmp_path / "run.ndbg")
    answers = {
        python(
            ANSWERS.replace("print(dbg.summary())", "import time; print(time.time_ns())"),
            tmp_path / "run.ndbg", "without", cwd=tmp_path,
        ).stdout
        for _ in range(2)
    }  # fmt: skip
    assert len(answers) == 2


# -- 6. local and safe -----------------------------------------------------------------------------

AUDITED = """
    import json, sys

    seen = []

    def audit(event, arguments):
        if event.startswith(("socket.", "pickle.", "subprocess.", "os.system")):
            seen.append([event, str(arguments)])
        if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
            seen.append([event, str(arguments[0])])
        if event in ("os.mkdir", "os.rename", "sqlite3.connect") or event.startswith("tempfile."):
            seen.append([event, str(arguments[0])])

    import torch
    from torch import nn
    import neuraldbg
    torch.set_num_threads(1)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters())
    loss = model(torch.randn(8, 6)).pow(2).mean()
    loss.backward(); optimizer.step()  # what torch itself does the first time
    sys.addaudithook(audit)
    trace = None if sys.argv[1] == "-" else sys.argv[1]
    with neuraldbg.NeuralDbg(model, trace=trace) as dbg:
        for step in range(40):
            x = torch.randn(8, 6)
            if step == 25:
                x[0, 0] = float("inf")
            loss = (model(x) - 1).pow(2).mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            dbg.record_loss(loss)
        EXTRA
    assert dbg.explain_failure()
    dbg.summary(), dbg.get_root_causes(), dbg.detect_coupled_failures(), repr(dbg)
    dbg.export_mermaid_causal_graph(), dbg._repr_mimebundle_()
    if trace:
        assert neuraldbg.load_trace(trace).explain_failure()
    print(json.dumps(seen))
"""


def check_traceless(tmp_path, trace="-", extra="pass"):
    """Run a session in an empty home and folder; return what it did to the outside."""
    home, cwd = tmp_path / "home", tmp_path / "work"
    home.mkdir(exist_ok=True)
    cwd.mkdir(exist_ok=True)
    environment = os.environ | {
        "HOME": str(home), "XDG_CACHE_HOME": str(home / "c"), "TMPDIR": str(home),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    done = python(AUDITED.replace("EXTRA", extra), trace, cwd=cwd, env=environment)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    asked = {str(cwd / trace), str(cwd / f"{trace}-wal"), str(cwd / f"{trace}-shm"), ":memory:"}
    outside = [
        (event, what)
        for event, what in seen
        if event != "sqlite3.connect" or not any(name in what for name in asked)
    ]
    assert outside == []
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert files == (set() if trace == "-" else {f"work/{trace}"})


@pytest.mark.parametrize("trace", ["-", "run.ndbg"])
def test_no_file_no_network_no_pickle_no_process(tmp_path, trace):
    check_traceless(tmp_path, trace)


@pytest.mark.parametrize(
    "extra",
    [
        "open('notes.txt', 'w').close()",
        "__import__('socket').socket().close()",
        "__import__('pickle').loads(__import__('pickle').dumps(nn.Linear))",
        "__import__('os').system('true')",
    ],
)
def test_a_file_a_socket_a_pickle_and_a_process_are_noticed(tmp_path, extra):
    with pytest.raises(AssertionError):
        check_traceless(tmp_path, extra=extra)


def test_a_run_needs_no_network(monkeypatch, tmp_path):
    monkeypatch.setattr(socket, "socket", broken)
    monkeypatch.setattr(socket, "create_connection", broken)
    monkeypatch.setattr(socket, "getaddrinfo", broken)
    dbg = failed_run(tmp_path / "run.ndbg")
    assert dbg.explain_failure()
    assert load_trace(tmp_path / "run.ndbg").report(tmp_path / "report.html")


class Bomb:
    def __reduce__(self):
        return (os.mkdir, ("exploded",))


def test_no_pickle_planted_in_a_trace_is_ever_loaded(tmp_path, monkeypatch):
    import pickle

    monkeypatch.chdir(tmp_path)
    failed_run(tmp_path / "run.ndbg")
    original = (tmp_path / "run.ndbg").read_bytes()
    with sqlite3.connect(tmp_path / "run.ndbg") as connection:
        columns = [
            (table, row[1])
            for (table,) in connection.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table'"
            ).fetchall()
            for row in connection.execute(f"PRAGMA table_info({table})")
            if row[2].upper() in ("BLOB", "TEXT", "")
        ]
    connection.close()
    assert columns
    bomb = pickle.dumps(Bomb())
    for table, column in columns:
        (tmp_path / "run.ndbg").write_bytes(original)
        connection = sqlite3.connect(tmp_path / "run.ndbg")
        try:
            connection.execute(f"UPDATE {table} SET {column} = ?", (bomb,))  # noqa: S608 - own names
            connection.commit()
        except sqlite3.Error:
            continue  # a key that must stay unique
        finally:
            connection.close()
        try:
            loaded = load_trace(tmp_path / "run.ndbg")
            loaded.explain_failure()
            loaded.summary()
        except TraceError:
            pass
    assert not (tmp_path / "exploded").exists()


def triples(tensor):
    """Return the bytes of every three neighbouring numbers, as float32 and as float64."""
    rows = tensor.detach().contiguous().view(-1)
    found = set()
    for numbers in (rows.float(), rows.double()):
        data = bytes(numbers.numpy().tobytes())
        size = numbers.element_size()
        found |= {data[i : i + 3 * size] for i in range(0, len(data) - 2 * size, size)}
    return found


def check_no_tensor_in(path, tensors):
    data = path.read_bytes()
    assert not any(triple in data for tensor in tensors for triple in triples(tensor))
    text = data.decode("latin-1")
    assert not any(repr(value) in text for t in tensors for value in t.view(-1)[1:6].tolist())


def secret_run(path):
    torch.manual_seed(11)
    model = tower()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    seen = [p.detach().clone() for p in model.parameters() if p.numel() > 1]
    with NeuralDbg(model, trace=path) as dbg:
        for step in range(30):
            x = torch.randn(16, 6)
            seen.append(x.clone())
            if step == 20:
                x[1, 1] = float("nan")  # the microscope looks at this step
            loss = F.mse_loss(model(x), x[:, :1])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    assert dbg.explain_failure()
    return seen, dbg


def test_a_trace_holds_no_tensor_of_the_user(tmp_path):
    seen, dbg = secret_run(tmp_path / "run.ndbg")
    check_no_tensor_in(tmp_path / "run.ndbg", seen)
    figures = set(dbg.trace.facts.inputs.reshape(-1).tolist())
    values = {value for x in seen[-30:] for value in x.view(-1).tolist()}
    assert len(values & figures) <= 2 * 30  # the smallest and the largest value of each batch


def test_a_tensor_in_the_trace_is_noticed(tmp_path):
    seen, _ = secret_run(tmp_path / "run.ndbg")
    connection = sqlite3.connect(tmp_path / "run.ndbg")
    connection.execute("CREATE TABLE leak (x BLOB)")
    connection.execute("INSERT INTO leak VALUES (?)", (seen[-1].numpy().tobytes(),))
    connection.commit()
    connection.close()
    with pytest.raises(AssertionError):
        check_no_tensor_in(tmp_path / "run.ndbg", seen)
