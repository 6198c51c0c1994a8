# SPDX-License-Identifier: MIT
"""The diagnosis in a terminal: plain, complete, never a crash."""

from __future__ import annotations

import math
from io import StringIO

import pytest
from rich.console import Console

from neuraldbg.report.reporter import Reporter
from neuraldbg.report.text import PlainText, figure, print_diagnosis, sparkline


def test_text_tells_everything(failed):
    text = PlainText().render(failed.diagnosis())
    for part in (
        "NeuralDBG: 50 steps, vanishing gradients in 'net.0' from step 28",
        "1. saturating activations  87%, vanishing gradients",
        "at step 28 in 'net.0': the sigmoid saturates",
        "step 30 in 'net.0': healthy -> vanishing (gradient norm 1e-09, ratio inf)",
        "speaks against it:",
        "use ReLU/GELU",
        "2. init too large",
        "gradient_vanishing      step 30  'net.0'",
        "2 steps later (80%): a flat sigmoid passes no gradient",
    ):
        assert part in text, part


def test_text_has_no_escape_codes_and_no_markup(hostile, kit):
    text = PlainText().render(hostile.diagnosis())
    assert "\x1b" not in text
    assert kit.HOSTILE in text


def test_brackets_are_not_taken_for_styles(record, kit):
    told = kit.hypothesis(description="layer [bold]x[/bold] of ['a'][red]")
    assert "layer [bold]x[/bold] of ['a'][red]" in record(hypotheses=[told]).summary()


def test_long_lines_are_not_cut(record, kit):
    told = kit.hypothesis(description="x" * 500)
    assert "x" * 500 in record(hypotheses=[told]).summary()


def test_terminal_gets_colours(failed):
    buffer = StringIO()
    console = Console(file=buffer, force_terminal=True, color_system="standard")
    print_diagnosis(failed.diagnosis(), console)
    assert "\x1b[" in buffer.getvalue()


def test_unfinished_run_is_called_so(record):
    inquiry = record(is_finished=False)
    assert "still going, or was killed" in inquiry.summary()
    inquiry.writer.finish()


def test_warnings_of_the_run_are_shown(record, kit):
    assert "cannot watch x" in record(run=kit.description(warnings=("cannot watch x",))).summary()


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([], ""),
        ([1.0], "▁"),
        ([0.0, 1.0], "▁█"),
        ([math.nan], "x"),
        ([math.inf, 1.0, math.nan], "x▁x"),
        ([5.0] * 4, "▁▁▁▁"),
    ],
)
def test_sparkline_shows_every_value(values, line):
    assert sparkline(values) == line


def test_sparkline_keeps_spikes_and_width():
    values = [1.0] * 5000
    values[2500] = 100.0
    values[100] = math.nan
    line = sparkline(values, width=40)
    assert len(line) == 40
    assert line.count("█") == line.count("x") == 1


@pytest.mark.parametrize(
    ("value", "shown"), [(1e-9, "1e-09"), (12345678, "1.235e+07"), (math.nan, "nan"), ("a", "a")]
)
def test_figures_are_short(value, shown):
    assert figure(value) == shown


def test_built_in_reporters_keep_the_contract():
    from neuraldbg.plugins import PluginHost

    reporters = PluginHost(disabled="all").reporters()
    names = [each.name for each in reporters]
    assert names == ["aquarium", "html", "jsonl", "mermaid", "text"]
    for each in reporters:
        assert isinstance(each(), Reporter)
        assert each.suffix.startswith(".")


@pytest.mark.parametrize("name", ["aquarium", "html", "jsonl", "mermaid", "text"])
def test_every_format_survives_every_run(name, healthy, failed, hostile, record):
    from neuraldbg.plugins import PluginHost

    (reporter,) = [each for each in PluginHost(disabled="all").reporters() if each.name == name]
    for inquiry in (healthy, failed, hostile, record(steps=0), record(steps=1)):
        document = reporter().render(inquiry.diagnosis())
        assert document.endswith("\n")
        assert document == reporter().render(inquiry.diagnosis())
