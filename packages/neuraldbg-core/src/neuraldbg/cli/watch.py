# SPDX-License-Identifier: MIT
"""`neuraldbg watch`: the state of a run in a few lines, read again and again from its trace."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from neuraldbg.report.text import event_line, figure, loss_line

if TYPE_CHECKING:
    from collections.abc import Iterator

    from neuraldbg.inquiry import Inquiry

MOST_EVENTS = 8
STYLES = {"critical": "bold red", "warning": "yellow", "info": "cyan"}


def follow(inquiry: Inquiry, console: Console, interval_s: float, *, is_once: bool) -> None:
    """Show a run until it ends.

    Args:
        inquiry: Of a trace that is perhaps still being written.
        console: On a terminal the lines are redrawn in place; elsewhere the headline is printed
            whenever it differs from the last one.
        interval_s: Time between two looks.
        is_once: Show the present state and return.
    """
    if is_once or inquiry.trace.is_finished:
        console.print(state(inquiry), soft_wrap=True)
        return
    with suppress(KeyboardInterrupt):
        if console.is_terminal:
            _redraw(inquiry, console, interval_s)
        else:
            _print_changes(inquiry, console, interval_s)


def state(inquiry: Inquiry) -> Group:
    """Return headline, loss, metrics and the latest events."""
    return Group(*_lines(inquiry))


def _lines(inquiry: Inquiry) -> Iterator[Text]:
    trace = inquiry.trace
    diagnosis_style = "bold red" if inquiry.get_causal_hypotheses() else "bold green"
    yield Text(_headline(inquiry), style=diagnosis_style)
    if len(trace.loss):
        yield Text(loss_line(trace.loss))
    for name, series in trace.metrics.items():
        yield Text(f"{name} {figure(float(series.values[-1]))}")
    for event in trace.events[-MOST_EVENTS:]:
        yield Text(event_line(event), style=STYLES[str(event.severity)])
    for problem in trace.problems:
        yield Text(f"not readable: {problem}", style="red")


def _headline(inquiry: Inquiry) -> str:
    told = repr(inquiry).removeprefix(f"<{type(inquiry).__name__}: ").removesuffix(">")
    return told if inquiry.trace.is_finished else f"running: {told}"


def _redraw(inquiry: Inquiry, console: Console, interval_s: float) -> None:
    with Live(state(inquiry), console=console, auto_refresh=False) as live:
        while not inquiry.trace.is_finished:
            time.sleep(interval_s)
            live.update(state(inquiry), refresh=True)


def _print_changes(inquiry: Inquiry, console: Console, interval_s: float) -> None:
    last = ""
    while True:
        is_finished = inquiry.trace.is_finished
        line = _headline(inquiry)
        if line != last:
            console.print(line, soft_wrap=True, markup=False)
            last = line
        if is_finished:
            return
        time.sleep(interval_s)
