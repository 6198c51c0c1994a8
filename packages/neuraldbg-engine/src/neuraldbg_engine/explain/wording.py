# SPDX-License-Identifier: LicenseRef-Proprietary
"""Sentences for people: one for each hypothesis, and those that say more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.causes import UNKNOWN, words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from neuraldbg_engine.explain.draft import Draft
    from neuraldbg_engine.findings import Finding

TOLD = 3
"""Findings that are told for, or against, one hypothesis."""


def sentence(cause: str, layer: str | None, step: int | None, held: Sequence[Finding]) -> str:
    """Return the sentence of a cause that only its findings speak for.

    Example:
        >>> sentence("dying_relu", "body.1", 40, [])
        "Dying ReLU in layer 'body.1' at step 40."
    """
    where = "" if layer is None else f" in layer {layer or '(root)'!r}"
    when = "" if step is None else f" at step {step:,}"
    facts = "; ".join(one.says for one in held[:2] if one.says)
    title = words(cause)
    return f"{title[:1].upper()}{title[1:]}{where}{when}{': ' if facts else ''}{facts}."


def details(draft: Draft, drafts: Sequence[Draft]) -> tuple[str, ...]:
    """Return the sentences that say more: why, since when, where, how sure, what else, what next.

    Args:
        draft: The hypothesis.
        drafts: All hypotheses of the run, most probable first.
    """
    parts = (
        _why(draft),
        _since(draft),
        _where(draft),
        _sure(draft),
        _else(draft, drafts),
        _settle(draft),
    )
    return tuple(part for part in parts if part)


def _why(draft: Draft) -> str:
    told = [one.says for one in draft.held[:TOLD] if one.says]
    return f"Why: {'; '.join(told)}." if told else ""


def _since(draft: Draft) -> str:
    if draft.onset is None:
        return ""
    first, last = draft.onset_range or (draft.onset, draft.onset)
    if last - first <= 1:
        return f"Since when: step {draft.onset:,}."
    return f"Since when: step {draft.onset:,}, surely between {first:,} and {last:,}."


def _where(draft: Draft) -> str:
    if draft.layer is None:
        return ""
    later = dict.fromkeys(
        link.layer for link in draft.chain if link.layer is not None and link.layer != draft.layer
    )
    shown = f"; it shows in {', '.join(map(_named, list(later)[:TOLD]))} too" if later else ""
    return f"Where: {_named(draft.layer)}{shown}."


def _named(layer: str) -> str:
    return f"layer {layer!r}" if layer else "the model itself"


def _sure(draft: Draft) -> str:
    against = "; ".join(one.says for one in draft.denied[:TOLD] if one.says)
    doubt = f"; against it speaks that {against}" if against else ""
    return f"How sure: {percent(draft.confidence)}{doubt}."


def percent(share: float) -> str:
    """Return a probability in percent; nothing is quite impossible, and nothing quite certain.

    Example:
        >>> percent(0.874), percent(0.9991)
        ('87%', 'more than 99%')
    """
    if share > 0.99:
        return "more than 99%"
    return "less than 1%" if share < 0.01 else f"{share:.0%}"


def _else(draft: Draft, drafts: Sequence[Draft]) -> str:
    others = [
        f"{_title(one.cause)} ({percent(one.confidence)})" for one in drafts if one is not draft
    ]
    if not others:
        return "What else: nothing that the trace supports."
    return f"What else: {', '.join(others[:TOLD])}."


def _title(cause: str) -> str:
    return "a cause that no rule knows" if cause == UNKNOWN else words(cause)


def _settle(draft: Draft) -> str:
    if draft.cause == UNKNOWN:
        return ""
    if draft.confirm:
        return f"To settle it: {draft.confirm}."
    if draft.missing:
        return f"To settle it: find out whether this holds: {draft.missing[0].rstrip('.')}."
    return ""
