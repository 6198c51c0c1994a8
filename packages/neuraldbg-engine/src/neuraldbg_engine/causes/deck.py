# SPDX-License-Identifier: LicenseRef-Proprietary
"""All cards together, by id: the engine's own, and one for every cause that a plugin adds."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING

from neuraldbg_engine.causes.card import Card

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from neuraldbg.causes import Cause

GROUPS = (
    "optimisation",
    "architecture",
    "data",
    "objective",
    "numerics",
    "wiring",
    "collapse",
)
"""Files in `cards/`, in the order of the vocabulary."""

Deck = MappingProxyType[str, Card]


def deck(more: Iterable[Cause] = ()) -> Deck:
    """Return the engine's cards, and after them those of further causes, in order of their ids.

    A plugin's `neuraldbg_causes` may return cards; a plain cause becomes a card without evidence,
    which only a specialist of its own can raise.
    """
    cards = dict(_own())
    for each in sorted(more, key=lambda cause: cause.id):
        if each.id not in cards:
            known = each if isinstance(each, Card) else Card(**each.model_dump())
            cards[each.id] = known
    return MappingProxyType(cards)


@cache
def _own() -> Mapping[str, Card]:
    cards: dict[str, Card] = {}
    for group in GROUPS:
        text = files(__package__).joinpath("cards", f"{group}.toml").read_text(encoding="utf-8")
        for name, fields in tomllib.loads(text).items():
            if name in cards:
                raise ValueError(f"cause {name!r} has two cards")
            cards[name] = Card.model_validate({"id": name, **fields})
    return MappingProxyType(cards)
