# SPDX-License-Identifier: MIT
"""Cards: the whole vocabulary, resting on findings that exist; a plugin adds one and no more."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from neuraldbg.causes import Cause, vocabulary
from neuraldbg_engine.causes import Card, Strength, deck
from neuraldbg_engine.findings import registered

PLAIN = {"id": "loose_belt", "failures": ("optimizer_instability",), "signs": "s", "remedy": "r"}


def test_the_deck_is_cores_vocabulary_word_for_word_and_in_its_order():
    known = vocabulary().causes
    assert list(deck()) == list(known)
    for name, card in deck().items():
        assert {field: getattr(card, field) for field in Cause.model_fields} == known[
            name
        ].model_dump()


@pytest.mark.parametrize("card", deck().values(), ids=lambda card: card.id)
def test_a_card_rests_on_findings_and_causes_that_exist(card):
    assert [name for name in card.findings if name not in registered()] == []
    assert [name for name in card.explains if name not in deck()] == []
    assert card.id not in card.explains


@pytest.mark.parametrize("card", deck().values(), ids=lambda card: card.id)
def test_no_finding_speaks_twice_for_a_cause_or_for_and_against_it(card):
    listed = [n for names in card.speaks_for.values() for n in names]
    listed += [n for names in card.speaks_against.values() for n in names]
    assert len(listed) == len(set(listed))
    assert listed, "a cause that nothing speaks for cannot be found"


def test_what_capture_saw_of_a_fault_is_evidence_on_some_card():
    listed = {name for card in deck().values() for name in card.findings}
    assert [n for n in registered() if n.startswith("observed.") and n not in listed] == []


def test_a_plugins_cause_becomes_a_card_and_its_card_is_kept():
    card = Card.model_validate(PLAIN | {"for": {"decisive": ["loss.diverged"]}})
    plain = Cause(**PLAIN | {"id": "another"})
    cards = deck([*vocabulary().causes.values(), card, plain])
    assert cards["loose_belt"] is card
    assert cards["another"].speaks_for == {}
    assert list(cards)[-2:] == ["another", "loose_belt"]


def test_a_plugin_cannot_redefine_a_card():
    other = Card.model_validate(PLAIN | {"id": "lr_too_high"})
    assert deck([other])["lr_too_high"].remedy != "r"


def test_a_card_with_a_strength_or_direction_that_does_not_exist_is_refused():
    with pytest.raises(ValidationError, match="decisive"):
        Card.model_validate(PLAIN | {"for": {"certain": ["loss.diverged"]}})
    with pytest.raises(ValidationError, match="more"):
        Card.model_validate(PLAIN | {"where": {"is.gan": "rather"}})


def test_strengths_are_listed_from_the_clearest_to_a_hint():
    assert [str(one) for one in Strength] == ["decisive", "strong", "moderate", "weak"]
