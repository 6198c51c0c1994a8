# SPDX-License-Identifier: MIT
"""`Diagnosis`: everything a reporter may show of one run, computed once, immutable."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.causes import UNKNOWN, Vocabulary, vocabulary, words
from neuraldbg.schema.hypotheses import CausalHypothesis, Coupling, RootCause
from neuraldbg.schema.keys import SYMPTOMS, failure_key
from neuraldbg.trace import LEDGER_FIELDS, Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from neuraldbg.schema.events import SemanticEvent


@dataclass(frozen=True)
class Diagnosis:
    """A trace and what is thought of it."""

    trace: Trace
    hypotheses: tuple[CausalHypothesis, ...]
    """Most probable first; empty on a healthy run."""
    couplings: tuple[Coupling, ...] = ()
    causes: Vocabulary = field(default_factory=vocabulary)
    """Built-in causes and those of plugins."""
    note: str = ""
    """Who explained the run, where that is worth saying."""

    @property
    def root_causes(self) -> list[RootCause]:
        """The first-occurrence table, see `first_occurrences`."""
        return first_occurrences(self.hypotheses, self.trace.events)

    @property
    def headline(self) -> str:
        """How long the run was and how it fares, in one clause."""
        return headline(self.trace, self.hypotheses)


def first_occurrences(
    hypotheses: Sequence[CausalHypothesis], events: Sequence[SemanticEvent]
) -> list[RootCause]:
    """Return where and when each failure was first seen, earliest first.

    Only events that a hypothesis cites (as evidence or in its chain) count: an event that nothing
    rests on is a change of state, not a failure. A hypothesis itself counts where no
    such event shows its failure. Healthy runs have an empty table.
    """
    chained = {link.event for each in hypotheses for link in each.causal_chain if link.event}
    cited = {event.id: event for each in hypotheses for event in each.evidence}
    cited |= {event.id: event for event in events if event.id in chained}
    first: dict[str, SemanticEvent] = {}
    for event in sorted(cited.values(), key=lambda each: (each.step, each.layer or "", each.id)):
        first.setdefault(failure_key(event), event)
    rows = {
        name: RootCause(failure=name, layer=event.layer, step=event.step, event=event.id)
        for name, event in first.items()
    }
    for hypothesis in hypotheses:
        row = _own_row(hypothesis, rows)
        if row is not None:
            rows[row.failure] = row
    return sorted(rows.values(), key=lambda row: row.step)


def _own_row(hypothesis: CausalHypothesis, rows: Mapping[str, RootCause]) -> RootCause | None:
    """Return the row of a hypothesis whose failure no event shows; None otherwise."""
    patterns = SYMPTOMS[hypothesis.failure_type]
    is_shown = any(fnmatchcase(name, pattern) for name in rows for pattern in patterns)
    if hypothesis.onset is None or is_shown:
        return None
    name = patterns[0].replace("*", hypothesis.cause)
    return RootCause(failure=name, layer=hypothesis.layer, step=hypothesis.onset, event="")


UNTRAINED = ", but no backward pass and no optimizer step was seen"
"""What is added where nothing was trained, as far as hooks can tell: silence is no praise then."""


def is_untrained(trace: Trace) -> bool:
    """Return whether steps are recorded, none of which held a backward pass or optimizer step."""
    facts = trace.facts.ledger
    columns = [LEDGER_FIELDS.index(name) for name in ("backwards", "steps", "skipped")]
    return trace.step_count > 0 and not np.nansum(facts[:, columns])


def headline(trace: Trace, hypotheses: Sequence[CausalHypothesis]) -> str:
    """Return how long the run was and how it fares, in one clause."""
    count = trace.step_count
    steps = "no step recorded" if not count else f"{count:,} step{'s' * (count != 1)}"
    ending = f", stopped by {shortened(trace.exception)}" if trace.exception else ""
    if not hypotheses:
        return f"{steps}{ending}, no failure found{UNTRAINED if is_untrained(trace) else ''}"
    return f"{steps}{ending}, {finding(hypotheses[0])}"


def finding(hypothesis: CausalHypothesis) -> str:
    """Return failure, place, onset and cause of a hypothesis as one short clause."""
    where = "" if hypothesis.layer is None else f" in {place(hypothesis.layer)}"
    when = "" if hypothesis.onset is None else f" from step {hypothesis.onset:,}"
    why = "cause unknown" if hypothesis.cause == UNKNOWN else words(hypothesis.cause)
    return f"{words(hypothesis.failure_type)}{where}{when} ({why}, {hypothesis.confidence:.0%})"


def place(layer: str | None) -> str:
    """Return a layer's path for people; the root module has none of its own."""
    if layer is None:
        return "the run as a whole"
    return repr(layer) if layer else "the model itself"


def shortened(text: str, limit: int = 120) -> str:
    """Return one line of at most `limit` characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 3]}..."
