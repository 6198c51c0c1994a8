# SPDX-License-Identifier: MIT
"""`Inquiry`: every question that can be put to a run, live or loaded from a file."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from neuraldbg.causes import Vocabulary, unknown_name
from neuraldbg.merge import merge_files, with_ranks
from neuraldbg.plugins import PluginHost
from neuraldbg.question import Question, names, understand
from neuraldbg.reasoning import couplings as couple_heuristically
from neuraldbg.reasoning import reason as reason_heuristically
from neuraldbg.report.diagnosis import Diagnosis, first_occurrences, headline
from neuraldbg.trace import Trace, open_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from os import PathLike

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.hypotheses import CausalHypothesis, CausalLink, Coupling, RootCause

T = TypeVar("T")

ENGINE = "engine"
"""Entry point of the distribution `neuraldbg-engine`."""
WITHOUT_ENGINE = (
    "explained by rules, each cause by itself; neuraldbg-engine, installed beside, weighs causes "
    "against one another and says how sure that makes it, by measure"
)


class Inquiry:
    """Answers questions about one trace. Answers are kept until the trace grows.

    Args:
        trace: A finished trace, or the live view of a run.
        host: The plugins that may reason; None: those that are installed.

    Example:
        >>> inquiry = load_trace("run.ndbg")  # doctest: +SKIP
        >>> inquiry  # doctest: +SKIP
        <Inquiry: 312 steps, no failure found>
    """

    def __init__(self, trace: Trace, host: PluginHost | None = None) -> None:
        self._trace = trace
        self._host = host
        self._answers: dict[str, Any] = {}
        self._grown: tuple[object, ...] = ()
        self._is_by_rules = False

    @property
    def trace(self) -> Trace:
        """What was recorded."""
        return self._trace

    @property
    def host(self) -> PluginHost:
        """The plugins, loaded on first use."""
        if self._host is None:
            self._host = PluginHost()
        return self._host

    # -- what was seen ---------------------------------------------------------------------

    @property
    def events(self) -> list[SemanticEvent]:
        """Every change of state, in order of step."""
        return list(self.trace.events)

    def get_events(self) -> list[SemanticEvent]:
        """Return every change of state, in order of step; `events` under its 1.x call."""
        return self.events

    @property
    def loss_history(self) -> list[float]:
        """Values of the main loss, in order of step; means where the trace is decimated."""
        return [float(value) for value in self.trace.loss.values]

    @property
    def first_failure_layer(self) -> dict[str, str | None]:
        """Layer on which each failure was first seen, by failure key."""
        return {row.failure: row.layer for row in self.get_root_causes()}

    @property
    def first_failure_step(self) -> dict[str, int]:
        """Step on which each failure was first seen, by failure key."""
        return {row.failure: row.step for row in self.get_root_causes()}

    # -- why -------------------------------------------------------------------------------

    def explain_failure(self, failure_type: object = None) -> list[CausalHypothesis]:
        """Return what may have caused a failure, most probable first.

        Args:
            failure_type: A failure type, event type, state, failure key such as
                `gradient_vanishing`, or cause; an enum member or a string in any case. None: any.

        Returns:
            Hypotheses; empty where nothing of the kind was found.

        Raises:
            UnknownNameError: There is no such name; the message has the nearest ones.
        """
        if failure_type is None:
            return self.get_causal_hypotheses()
        return self._question(failure_type).answers(self._hypotheses())

    def get_causal_hypotheses(self) -> list[CausalHypothesis]:
        """Return what may have caused any failure, most probable first; empty on a healthy run."""
        return list(self._hypotheses())

    def get_root_causes(self) -> list[RootCause]:
        """Return where and when each failure was first seen, earliest first."""
        return list(
            self._kept(
                "root causes", lambda: first_occurrences(self._hypotheses(), self.trace.events)
            )
        )

    def trace_causal_chain(self, name: object) -> list[CausalLink]:
        """Return the links from the root of a symptom to that symptom.

        Args:
            name: What `explain_failure` takes, the path of a layer, or the id of an event.

        Returns:
            The chain of the most probable hypothesis that holds the symptom, up to its last link
            that shows it; empty where no hypothesis does.

        Raises:
            UnknownNameError: There is no such name; the message has the nearest ones.
        """
        layers = {layer.path for layer in self.trace.run.layers}
        events = {event.id: event for event in self.trace.events}
        if name in layers or name in events:
            return next(filter(None, map(_until(name), self._hypotheses())), [])
        try:
            question = self._question(name)
        except ValueError:
            known = [*self._names(), *sorted(layers), *events]
            raise unknown_name("failure, layer or event", name, known) from None
        answers = question.answers(self._hypotheses())
        for hypothesis in answers:
            chain = list(hypothesis.causal_chain)
            if chain:
                return _shown(chain, question, events) or chain
        for hypothesis in self._hypotheses():
            shown = _shown(list(hypothesis.causal_chain), question, events)
            if shown:
                return shown
        return []

    def detect_coupled_failures(self, window: int = 5) -> list[Coupling]:
        """Return pairs of failures of which one follows the other along the data flow.

        Args:
            window: Largest distance in steps between the two.
        """

        def couplings() -> list[Coupling]:
            found = self.host.couplings(self.trace, window)
            return couple_heuristically(self.trace, window) if found is None else found

        return list(self._kept(f"couplings {window}", couplings))

    # -- documents -------------------------------------------------------------------------

    def diagnosis(self) -> Diagnosis:
        """Return everything that reporters show, as one immutable object."""
        return self._kept(
            "diagnosis",
            lambda: Diagnosis(
                self.trace,
                tuple(self._hypotheses()),
                tuple(self.detect_coupled_failures()),
                self._vocabulary(),
                note=self._edition(),
            ),
        )

    def export_aquarium_package(self, path: str | PathLike[str]) -> str:
        """Write the diagnosis as versioned, strict JSON, and return the path."""
        from neuraldbg.report.aquarium import Aquarium

        return _write(path, Aquarium().render(self.diagnosis()))

    def export_mermaid_causal_graph(self) -> str:
        """Return the causal graph as Mermaid text."""
        from neuraldbg.report.mermaid import Mermaid

        return Mermaid().render(self.diagnosis())

    def report(self, path: str | PathLike[str]) -> str:
        """Write the diagnosis as one HTML page that works offline, and return the path."""
        from neuraldbg.report.html import Html

        return _write(path, Html().render(self.diagnosis()))

    def summary(self) -> str:
        """Return what was found, as a few lines of plain text."""
        from neuraldbg.report.text import PlainText

        return PlainText().render(self.diagnosis()).rstrip("\n")

    def __repr__(self) -> str:
        try:
            story = headline(self.trace, self._hypotheses())
        except Exception as error:  # noqa: BLE001  # a repr is shown by debuggers and must not fail
            story = f"not explained: {error!r}"
        return f"<{type(self).__name__}: {story}>"

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Return what a notebook shows: cards and charts that need no scripts."""
        from neuraldbg.report.html import fragment

        try:
            page = fragment(self.diagnosis())
        except Exception:  # noqa: BLE001  # a cell that shows the session must not fail
            page = f"<pre>{escape(repr(self))}</pre>"
        return {"text/plain": repr(self), "text/html": page}

    # -- inside ----------------------------------------------------------------------------

    def _hypotheses(self) -> list[CausalHypothesis]:
        def reason() -> list[CausalHypothesis]:
            found = self.host.reason(self.trace)
            self._is_by_rules = found is None
            found = reason_heuristically(self.trace) if found is None else found
            return [with_ranks(one, self.trace.run) for one in found]

        return self._kept("hypotheses", reason)

    def _edition(self) -> str:
        """Return what the engine would add, where core's rules answered for want of it."""
        self._hypotheses()
        if not self._is_by_rules or any(each.name == ENGINE for each in self.host.describe()):
            return ""
        return WITHOUT_ENGINE

    def _vocabulary(self) -> Vocabulary:
        return self._kept("vocabulary", self.host.vocabulary)

    def _question(self, name: object) -> Question:
        return understand(name, causes=self._vocabulary().causes, events=self.trace.events)

    def _names(self) -> list[str]:
        return names(self._vocabulary().causes, self.trace.events)

    def _kept(self, name: str, compute: Callable[[], T]) -> T:
        """Return the answer kept under this name; compute it where the trace has grown since."""
        trace = self.trace
        grown = (id(trace), trace.step_count, len(trace.events), trace.is_finished)
        if grown != self._grown:
            self._answers, self._grown = {}, grown
        if name not in self._answers:
            self._answers[name] = compute()
        return cast("T", self._answers[name])


def _shown(
    chain: list[CausalLink], question: Question, events: Mapping[str, SemanticEvent]
) -> list[CausalLink]:
    """Return a chain up to its last link whose event shows what is asked; empty where none does."""
    for length in range(len(chain), 0, -1):
        event = events.get(chain[length - 1].event or "")
        if event is not None and question.is_about(event):
            return chain[:length]
    return []


def load_trace(path: str | PathLike[str]) -> Inquiry:
    """Return the answers of a recorded run; torch need not be installed.

    Args:
        path: A file that `NeuralDbg(model, trace=path)` wrote, of this version or older.

    Raises:
        TraceError: The file is missing, foreign, newer or unreadable.
    """
    return Inquiry(open_trace(path))


def merge_traces(paths: Sequence[str | PathLike[str]], output: str | PathLike[str]) -> Inquiry:
    """Join the traces of the ranks of one run, and return the answers of the whole.

    Norms of sharded parameters add up, copies of the same parameter must agree (where they part
    for good, that is a failure), and every event names the ranks that saw it.

    Args:
        paths: Of the ranks' traces, in any order; `NeuralDbg(model, trace="run.ndbg")` writes
            `run.ndbg`, `run.rank1.ndbg`, and so on.
        output: File to write: a trace like any other.

    Raises:
        TraceError: A file is missing or no trace, or they are not of different ranks of one run.
    """
    merge_files(paths, output)
    return load_trace(output)


def _until(name: object) -> Callable[[CausalHypothesis], list[CausalLink]]:
    """Return what cuts a hypothesis' chain after its last link on this layer or event."""

    def cut(hypothesis: CausalHypothesis) -> list[CausalLink]:
        chain = list(hypothesis.causal_chain)
        shown = [index for index, link in enumerate(chain) if name in (link.layer, link.event)]
        return chain[: shown[-1] + 1] if shown else []

    return cut


def _write(path: str | PathLike[str], text: str) -> str:
    Path(path).write_text(text, encoding="utf-8", newline="\n")
    return str(path)
