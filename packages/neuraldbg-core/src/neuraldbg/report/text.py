# SPDX-License-Identifier: MIT
"""The diagnosis in a terminal: plain lines, coloured where the terminal can."""

from __future__ import annotations

import math
from io import StringIO
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from rich.console import Console
from rich.text import Text

from neuraldbg.causes import UNKNOWN, words
from neuraldbg.report.aquarium import sentence
from neuraldbg.report.diagnosis import Diagnosis, place, shortened
from neuraldbg.schema.keys import failure_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.hypotheses import CausalHypothesis, Coupling
    from neuraldbg.trace import Series

MOST_EVENTS = 6
MOST_COUPLINGS = 10
BARS = "▁▂▃▄▅▆▇█"


class PlainText:
    """The diagnosis as plain lines: what `summary()` returns and the command line prints."""

    name: ClassVar[str] = "text"
    suffix: ClassVar[str] = ".txt"

    def render(self, diagnosis: Diagnosis) -> str:
        """Return the lines without colours, ending in a newline."""
        buffer = StringIO()
        print_diagnosis(diagnosis, Console(file=buffer, width=100, color_system=None))
        return buffer.getvalue()


def print_diagnosis(
    diagnosis: Diagnosis,
    console: Console,
    hypotheses: Sequence[CausalHypothesis] | None = None,
) -> None:
    """Print headline, loss, hypotheses, couplings and notes.

    Args:
        diagnosis: What to print.
        console: Where to. Lines are never cut: a terminal wraps them, a file keeps them whole.
        hypotheses: Those to show; None: all.
    """
    shown = diagnosis.hypotheses if hypotheses is None else hypotheses
    for line in lines(diagnosis, shown):
        console.print(line, soft_wrap=True, highlight=False)


def lines(diagnosis: Diagnosis, hypotheses: Sequence[CausalHypothesis]) -> Iterator[Text]:
    """Yield the report line by line."""
    yield Text(f"NeuralDBG: {diagnosis.headline}", style="bold")
    if len(diagnosis.trace.loss):
        yield Text(loss_line(diagnosis.trace.loss))
    for number, hypothesis in enumerate(hypotheses, 1):
        yield Text()
        yield from hypothesis_lines(hypothesis, number)
    if diagnosis.hypotheses:
        yield from _block("First seen", _table_rows(diagnosis))
        yield from _block("One after the other", _coupling_lines(diagnosis.couplings))
    yield from _block("Notes", notes(diagnosis))


def hypothesis_lines(hypothesis: CausalHypothesis, number: int) -> Iterator[Text]:
    """Yield one hypothesis: its sentence, how it came about, what speaks for it, what to do."""
    why = "unknown cause" if hypothesis.cause == UNKNOWN else words(hypothesis.cause)
    head = Text(f"{number}. ")
    head.append(f"{why}", style="bold red")
    head.append(f"  {hypothesis.confidence:.0%}, {words(hypothesis.failure_type)}")
    yield head
    yield Text(f"   {hypothesis.description}")
    for detail in hypothesis.details:
        yield Text(f"   {detail}")
    chain = [sentence(link) for link in hypothesis.causal_chain]
    yield from _part("how it came about", chain, "yellow")
    yield from _part("seen", _event_lines(hypothesis.evidence), "cyan")
    yield from _part("speaks against it", _event_lines(hypothesis.counter_evidence), "magenta")
    yield from _part("what to do", hypothesis.remedies, "green")
    if hypothesis.verification is not None:
        proof = hypothesis.verification
        yield from _part("replayed", [f"{proof.intervention}: {proof.outcome}"], "blue")


def notes(diagnosis: Diagnosis) -> list[str]:
    """Return what limits the diagnosis: the end of the run, warnings, unreadable parts."""
    trace = diagnosis.trace
    found = []
    if trace.exception:
        found.append(f"the run ended with {shortened(trace.exception)}")
    elif not trace.is_finished and trace.step_count:
        found.append("the run is still going, or was killed")
    if not diagnosis.hypotheses and trace.events:
        count = len(trace.events)
        changes = f"{count} change{'s' * (count != 1)} of state"
        found.append(f"{changes} noted, none of them a failure")
    if diagnosis.hypotheses and diagnosis.note:
        found.append(diagnosis.note)
    found += trace.run.warnings
    found += [f"not readable: {problem}" for problem in trace.problems]
    return found


def event_line(event: SemanticEvent) -> str:
    """Return what an event says, with its figures."""
    where = "" if event.layer is None else f" in {place(event.layer)}"
    repeats = f", seen {event.count} times" if event.count > 1 else ""
    listed = ", ".join(f"{words(name)} {figure(value)}" for name, value in event.evidence.items())
    return (
        f"step {event.step:,}{where}: {event.from_state} -> {event.to_state}"
        f"{repeats}{f' ({listed})' if listed else ''}"
    )


def coupling_line(coupling: Coupling) -> str:
    """Return which failure followed which, how much later, and how."""
    first, second = (
        words(failure_key(each)) + ("" if each.layer is None else f" in {place(each.layer)}")
        for each in (coupling.trigger, coupling.consequence)
    )
    return (
        f"{first} -> {second}, {distance(coupling.step_difference)} "
        f"({coupling.confidence:.0%}): {coupling.mechanism}"
    )


def distance(steps: int) -> str:
    """Return a number of steps between two events in words.

    Example:
        >>> distance(0), distance(1), distance(7)
        ('in the same step', '1 step later', '7 steps later')
    """
    return f"{steps:,} step{'s' * (steps != 1)} later" if steps else "in the same step"


def figure(value: float | str) -> str:
    """Return a figure with at most four significant digits; words as they are.

    Example:
        >>> figure(0.000123456)
        '0.0001235'
    """
    return f"{value:.4g}" if isinstance(value, float | int) else str(value)


def loss_line(series: Series) -> str:
    """Return the loss as a sparkline with its first, lowest and last value."""
    values = [float(value) for value in series.values]
    finite = [
        (value, step)
        for value, step in zip(values, series.steps, strict=True)
        if math.isfinite(value)
    ]
    low = ""
    if finite:
        lowest, step = min(finite)
        low = f", lowest {figure(lowest)} at step {int(step):,}"
    ends = f"{figure(values[0])} -> {figure(values[-1])}"
    return f"loss {sparkline(values)} {ends}{low}"


def sparkline(values: Sequence[float], width: int = 48) -> str:
    """Return one character per bin of neighbouring values; `x` where one is not finite.

    A bin shows its largest value, so that a spike is never averaged away.

    Example:
        >>> sparkline([1.0, 2.0, float("nan"), 8.0])
        '▁▂x█'
    """
    bins = min(width, len(values))
    cuts = [len(values) * index // bins for index in range(bins + 1)] if bins else []
    chunks = [values[start:stop] for start, stop in pairwise(cuts)]
    finite = [value for value in values if math.isfinite(value)]
    low = min(finite, default=0.0)
    span = (max(finite, default=0.0) - low) or 1.0
    return "".join(
        BARS[round((max(chunk) - low) / span * (len(BARS) - 1))]
        if all(map(math.isfinite, chunk))
        else "x"
        for chunk in chunks
    )


def _event_lines(events: Sequence[SemanticEvent]) -> list[str]:
    shown = [event_line(event) for event in events[:MOST_EVENTS]]
    rest = len(events) - len(shown)
    return [*shown, f"and {rest} more"] if rest else shown


def _coupling_lines(couplings: Sequence[Coupling]) -> list[str]:
    shown = [coupling_line(each) for each in couplings[:MOST_COUPLINGS]]
    rest = len(couplings) - len(shown)
    return [*shown, f"and {rest} more"] if rest else shown


def _table_rows(diagnosis: Diagnosis) -> list[str]:
    rows = diagnosis.root_causes
    width = max((len(row.failure) for row in rows), default=0)
    return [f"{row.failure:<{width}}  step {row.step:,}  {place(row.layer)}" for row in rows]


def _part(title: str, items: Iterable[str], style: str) -> Iterator[Text]:
    listed = list(items)
    if listed:
        yield Text(f"   {title}:", style=style)
        for item in listed:
            yield Text(f"     - {item}")


def _block(title: str, items: Iterable[str]) -> Iterator[Text]:
    listed = list(items)
    if listed:
        yield Text()
        yield Text(f"{title}:", style="bold")
        for item in listed:
            yield Text(f"  {item}")
