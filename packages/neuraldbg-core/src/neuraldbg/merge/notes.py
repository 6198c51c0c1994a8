# SPDX-License-Identifier: MIT
"""Events and observations of several ranks: each once, with the ranks that saw it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from neuraldbg.schema.vocabulary import Severity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import Observation
    from neuraldbg.schema.hypotheses import CausalHypothesis
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.trace import Trace

RANKS = "ranks"
"""Under which name the evidence of an event says on which ranks it was seen."""
SEVERITIES = tuple(Severity)


def listed(ranks: Iterable[int]) -> str:
    """Return ranks as text, neighbours joined.

    Example:
        >>> listed([0, 1, 2, 5])
        '0-2, 5'
    """
    spans: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if spans and rank == spans[-1][-1] + 1:
            spans[-1].append(rank)
        else:
            spans.append([rank])
    return ", ".join(f"{s[0]}-{s[-1]}" if len(s) > 1 else str(s[0]) for s in spans)


def read(text: str) -> set[int]:
    """Return the ranks that `listed` wrote."""
    found: set[int] = set()
    for part in text.split(", "):
        low, _, high = part.partition("-")
        found.update(range(int(low), int(high or low) + 1))
    return found


def events(traces: Sequence[Trace]) -> list[SemanticEvent]:
    """Return the events of all ranks; the figures of one are those of the first rank that saw it.

    The same change of the same layer at the same step is one event, told by `evidence["ranks"]`.
    """
    seen: dict[str, list[tuple[int, SemanticEvent]]] = {}
    for trace in traces:
        for event in trace.events:
            seen.setdefault(event.id, []).append((trace.run.rank, event))
    merged = []
    for ranked in seen.values():
        ranks, same = zip(*ranked, strict=True)
        lasts = [event.last_step for event in same if event.last_step is not None]
        merged.append(
            same[0].model_copy(
                update={
                    "evidence": {**same[0].evidence, RANKS: listed(ranks)},
                    "severity": max((e.severity for e in same), key=SEVERITIES.index),
                    "confidence": max(event.confidence for event in same),
                    "count": max(event.count for event in same),
                    "last_step": max(lasts, default=None),
                }
            )
        )
    return merged


def observations(traces: Sequence[Trace]) -> list[Observation]:
    """Return the observations of all ranks, each once; what only some saw names them."""
    seen: dict[tuple[object, ...], list[tuple[int, Observation]]] = {}
    for trace in traces:
        for one in trace.observations:
            key = one.kind, one.step, one.layer, *sorted(one.words.items())
            seen.setdefault(key, []).append((trace.run.rank, one))
    found = []
    for ranked in seen.values():
        ranks = {rank for rank, _ in ranked}
        one = ranked[0][1]
        if len(ranks) < len(traces):
            one = replace(one, words={**one.words, RANKS: listed(ranks)})
        found.append(one)
    return sorted(found, key=lambda one: one.step)


def with_ranks(hypothesis: CausalHypothesis, run: RunInfo) -> CausalHypothesis:
    """Return a hypothesis on a merged run that says where only some ranks show its evidence."""
    seen = [event.evidence.get(RANKS) for event in hypothesis.evidence]
    if not run.ranks or not seen or not all(isinstance(text, str) for text in seen):
        return hypothesis
    ranks = set().union(*(read(str(text)) for text in seen))
    if ranks >= set(run.ranks):
        return hypothesis
    who, show = ("rank", "shows") if len(ranks) == 1 else ("ranks", "show")
    limit = f"Only {who} {listed(ranks)} of {run.world_size} {show} it."
    sentence = f"{hypothesis.description} {limit}"
    return hypothesis.model_copy(update={"description": sentence})
