# SPDX-License-Identifier: MIT
"""The command line: what it prints, how it ends, and that it never ends in a traceback."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from io import StringIO
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from neuraldbg.cli import neuraldbg
from neuraldbg.cli.doctor import examine
from neuraldbg.cli.watch import follow
from neuraldbg.inquiry import Inquiry, load_trace

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "cli.md"
COMMANDS = ("explain", "report", "export", "merge", "watch", "plugins", "doctor")


@pytest.fixture
def call():
    """A function that runs a command and returns its result."""

    def run(*arguments, code=0):
        result = CliRunner().invoke(neuraldbg, [str(each) for each in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result

    return run


@pytest.fixture
def reasoned(monkeypatch, kit):
    """Make the installed reasoner blame saturating activations."""
    monkeypatch.setattr(
        "neuraldbg.plugins.PluginHost.reason", lambda self, trace: [kit.hypothesis()]
    )
    monkeypatch.setattr("neuraldbg.plugins.PluginHost.couplings", lambda self, trace, window: [])


@pytest.fixture
def trace(record, kit, tmp_path, reasoned) -> Path:
    record(path="run.ndbg", events=[kit.FLAT, kit.GONE, kit.PLATEAU], bad_from=28)
    return tmp_path / "run.ndbg"


@pytest.fixture
def healthy_trace(record, monkeypatch, tmp_path) -> Path:
    monkeypatch.setattr("neuraldbg.plugins.PluginHost.reason", lambda self, trace: [])
    monkeypatch.setattr("neuraldbg.plugins.PluginHost.couplings", lambda self, trace, window: [])
    record(path="healthy.ndbg")
    return tmp_path / "healthy.ndbg"


# -- explain ---------------------------------------------------------------------------------


def test_explain_prints_the_diagnosis(call, trace):
    output = call("explain", trace).stdout
    assert "1. saturating activations  87%" in output
    assert "\x1b" not in output


def test_explain_of_a_healthy_run_says_so(call, healthy_trace):
    assert "50 steps, no failure found" in call("explain", healthy_trace, "--exit-code").stdout


def test_explain_can_fail_a_pipeline(call, trace):
    call("explain", trace, "--exit-code", code=1)


def test_explain_answers_one_question(call, trace):
    assert "saturating" in call("explain", trace, "--failure", "Gradient-Vanishing").stdout
    output = call("explain", trace, "--failure", "data_anomaly", "--exit-code").stdout
    assert "None of what was found is about 'data_anomaly'" in output


def test_explain_of_an_unknown_name_suggests(call, trace):
    result = call("explain", trace, "--failure", "vanishing_gradient", code=2)
    assert "did you mean 'vanishing_gradients'" in result.stderr


def test_explain_prints_strict_json(call, trace, kit):
    answer = json.loads(call("explain", trace, "--json").stdout, parse_constant=pytest.fail)
    assert list(answer) == ["schema_version", "run", "hypotheses", "events"]
    assert answer["hypotheses"][0]["cause"] == "saturating_activations"
    assert [each["id"] for each in answer["events"]] == [kit.FLAT.id, kit.GONE.id, kit.PLATEAU.id]


def test_explain_prints_json_of_a_healthy_run(call, healthy_trace):
    answer = json.loads(call("explain", healthy_trace, "--json").stdout)
    assert answer["hypotheses"] == answer["events"] == []


# -- report and export -----------------------------------------------------------------------


def test_report_is_written_beside_the_trace(call, trace):
    assert call("report", trace).stdout.strip() == str(trace.with_suffix(".html"))
    assert trace.with_suffix(".html").read_text().startswith("<!doctype html>")


def test_report_is_written_where_asked(call, trace, tmp_path):
    call("report", trace, "-o", tmp_path / "out.html")
    assert (tmp_path / "out.html").exists()


@pytest.mark.parametrize(
    ("name", "start"),
    [
        ("aquarium", "{"),
        ("mermaid", "graph TD"),
        ("jsonl", '{"record": "run"'),
        ("text", "NeuralDBG: "),
        ("html", "<!doctype html>"),
    ],
)
def test_export_writes_every_format(call, trace, tmp_path, name, start):
    printed = call("export", trace, "--format", name).stdout
    assert printed.startswith(start)
    call("export", trace, "--format", name, "-o", tmp_path / "out")
    assert (tmp_path / "out").read_text(encoding="utf-8") == printed


def test_export_of_an_unknown_format_suggests(call, trace):
    assert "did you mean 'mermaid'" in call("export", trace, "--format", "mermade", code=2).stderr


def test_unwritable_output_is_one_line(call, trace, tmp_path):
    for command in (["report"], ["export", "--format", "text"]):
        result = call(*command, trace, "-o", tmp_path / "absent" / "x", code=4)
        assert result.stderr.count("\n") == 1
        assert "absent" in result.stderr


# -- traces that cannot be used ----------------------------------------------------------------


def missing(path: Path) -> None:
    path.unlink(missing_ok=True)


def folder(path: Path) -> None:
    path.mkdir()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def foreign(path: Path) -> None:
    path.write_bytes(os.urandom(8192))


def database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE meta (name, value)")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("spoil", [missing, folder, empty, foreign, database])
@pytest.mark.parametrize("command", ["explain", "report", "export", "watch"])
def test_unusable_trace_is_one_clear_line(call, tmp_path, spoil, command):
    place = tmp_path / "spoilt.ndbg"
    spoil(place)
    result = call(command, place, code=3)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert "spoilt.ndbg" in result.stderr


def test_newer_trace_is_refused_by_name(call, trace):
    connection = sqlite3.connect(trace)
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    connection.execute(f"PRAGMA user_version = {version + 1}")
    connection.commit()
    connection.close()
    result = call("explain", trace, code=3)
    assert "newer" in result.stderr
    assert result.stderr.count("\n") == 1


def test_damaged_trace_gives_what_is_readable(call, trace):
    content = bytearray(trace.read_bytes())
    middle = len(content) * 2 // 3
    content[middle : middle + 4096] = b"\xff" * 4096
    trace.write_bytes(content)
    result = CliRunner().invoke(neuraldbg, ["explain", str(trace)])
    assert result.exit_code in {0, 3}
    assert "Traceback" not in result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)


# -- watch -----------------------------------------------------------------------------------


def test_watch_of_a_finished_run_ends_at_once(call, trace):
    output = call("watch", trace).stdout
    assert "vanishing gradients in 'net.0'" in output
    assert "step 30 in 'net.0': healthy -> vanishing" in output


def test_watch_once_shows_a_running_run(call, record, reasoned, tmp_path):
    inquiry = record(path="live.ndbg", is_finished=False)
    output = call("watch", tmp_path / "live.ndbg", "--once").stdout
    assert output.startswith("running: 50 steps")
    inquiry.writer.finish()


def test_watch_follows_a_run_to_its_end(call, record, kit, healthy_trace, tmp_path):
    inquiry = record(path="live.ndbg", is_finished=False, steps=5)

    def train():
        for step in range(5, 40):
            inquiry.writer.write_step(kit.facts(inquiry.trace.run, step, 1.0))
        inquiry.writer.finish()

    timer = threading.Timer(0.4, train)
    timer.start()
    output = call("watch", tmp_path / "live.ndbg", "--interval", "0.05").stdout
    timer.join()
    lines = output.splitlines()
    assert lines[0] == "running: 5 steps, no failure found"
    assert lines[-1] == "40 steps, no failure found"


def test_watch_redraws_on_a_terminal(record, kit, tmp_path):
    inquiry = record(path="live.ndbg", is_finished=False, steps=5)
    timer = threading.Timer(0.2, inquiry.writer.finish)
    timer.start()
    buffer = StringIO()
    console = Console(file=buffer, force_terminal=True, width=100)
    watched = Inquiry(load_trace(tmp_path / "live.ndbg").trace, inquiry.host)
    follow(watched, console, 0.05, is_once=False)
    timer.join()
    assert "running: 5 steps" in buffer.getvalue()
    assert "\x1b[2K" in buffer.getvalue()


# -- plugins and doctor ------------------------------------------------------------------------


def test_plugins_lists_the_built_in_ones(call):
    assert "builtin_reports" in call("plugins").stdout
    listed = json.loads(call("plugins", "--json").stdout)["plugins"]
    assert {"name": "builtin_reports", "state": "on"}.items() <= listed[1].items()


def test_doctor_finds_nothing_wrong(call):
    output = call("doctor").stdout
    assert "torch" in output
    assert "global torch hooks in this process: none" in output
    assert output.endswith("no problem found\n")
    assert json.loads(call("doctor", "--json").stdout)["problems"] == []


def test_doctor_finds_a_hook_left_behind(call):
    from torch.nn.modules.module import register_module_forward_hook

    handle = register_module_forward_hook(lambda *_: None)
    try:
        assert "PROBLEM: 1 global torch hooks" in call("doctor", code=1).stdout
    finally:
        handle.remove()


def test_doctor_names_a_plugin_that_is_off(monkeypatch):
    from neuraldbg.plugins import PluginDescription

    broken = PluginDescription("bad", "pkg", "1.0", (), "off", "ImportError('x')")
    monkeypatch.setattr("neuraldbg.plugins.PluginHost.describe", lambda self: [broken])
    assert "plugin 'bad' is off: ImportError('x')" in examine().problems


def test_commands_of_plugins_are_taken_in(monkeypatch):
    from neuraldbg.cli.commands import neuraldbg as original
    from neuraldbg.cli.group import Commands

    @click.command()
    def fly():
        click.echo("flying")

    def commands(self, group):
        group.add_command(fly)

    monkeypatch.setattr("neuraldbg.plugins.PluginHost.commands", commands)
    group = Commands("neuraldbg", commands=dict(original.commands))
    assert CliRunner().invoke(group, ["fly"]).output == "flying\n"
    assert "fly" in CliRunner().invoke(group, ["--help"]).output


# -- the command as a process ------------------------------------------------------------------


def process(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    program = "from neuraldbg.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | variables,
    )


def test_terminal_without_unicode_is_survived(trace):
    done = process("explain", str(trace), PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 0
    assert "Error" not in done.stderr
    assert "50 steps" in done.stdout


def test_version_is_printed():
    import neuraldbg as package

    assert process("--version").stdout.split()[-1] == package.__version__


def test_unknown_command_is_a_usage_error():
    done = process("explian")
    assert done.returncode == 2
    assert "No such command" in done.stderr


# -- the page ----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_page_shows_the_help_of_every_command(call, command):
    text = CliRunner().invoke(
        neuraldbg, [command, "--help"], prog_name="neuraldbg", terminal_width=80
    )
    assert f"```text\n{text.output}```" in PAGE.read_text(encoding="utf-8")


def test_page_knows_every_built_in_command():
    assert set(neuraldbg.commands) == set(COMMANDS)
