# SPDX-License-Identifier: MIT
"""Inference over evidence made by hand: what raises a cause, and what explains it away."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

import pytest

from neuraldbg.causes import UNKNOWN
from neuraldbg_engine.calibration import Calibration, from_dict, shipped
from neuraldbg_engine.causes import Card, deck
from neuraldbg_engine.inference import Evidence, Opinion, infer

NUMBERS = Calibration()


def card(name, **fields):
    base = {"id": name, "failures": ["optimizer_instability"], "signs": "s", "remedy": "r"}
    return Card.model_validate(base | fields)


def cards(*made):
    filler = [card(f"other_{index}") for index in range(20)]
    return MappingProxyType({one.id: one for one in [*made, *filler]})


DECK = cards(
    card("flood", **{"for": {"decisive": ["water"], "strong": ["wet_floor"]}}),
    card("leak", against={"strong": ["dry_pipe"]}, **{"for": {"strong": ["wet_floor"]}}),
    card("fire", **{"for": {"decisive": ["smoke"]}, "where": {"is_winter": "more"}}),
)


def posterior(opinions=None, numbers=NUMBERS, known=DECK, **grades):
    return infer(Evidence(grades, opinions or {}), known, numbers)


def test_with_no_evidence_nothing_is_wrong():
    assert posterior().none > 0.5


def test_probabilities_are_shares_of_one():
    found = posterior(water=0.9, smoke=0.4)
    assert found.none + sum(found.causes.values()) >= 1 - 1e-6
    assert all(0 <= share <= 1 for share in found.causes.values())


def test_a_specialist_raises_its_cause_with_its_confidence():
    sure = [posterior({"fire": Opinion(g)}).causes["fire"] for g in (0.2, 0.5, 0.9)]
    assert sure == sorted(sure)
    assert sure[-1] > 0.8


def test_a_direct_finding_raises_a_cause_that_no_specialist_knows():
    alone, with_it = posterior(smoke=0.0), posterior(smoke=1.0)
    assert with_it.causes["fire"] > 10 * alone.causes["fire"]
    assert with_it.none < alone.none


def test_a_missing_finding_is_no_evidence_of_absence():
    opinion = {"fire": Opinion(0.5)}
    unavailable, unheard = posterior(opinion, smoke=None), posterior(opinion)
    absent = posterior(opinion, smoke=0.0)
    assert unavailable.causes["fire"] == unheard.causes["fire"] > absent.causes["fire"]


def test_a_cause_that_is_certain_explains_a_shared_finding_away():
    wet = posterior(wet_floor=1.0).causes["leak"]
    flooded = posterior({"flood": Opinion(0.9)}, wet_floor=1.0, water=1.0).causes["leak"]
    assert flooded < wet / 2


def test_counter_evidence_lowers_a_cause():
    opinion = {"leak": Opinion(0.6)}
    assert (
        posterior(opinion, wet_floor=1.0, dry_pipe=1.0).causes["leak"]
        < posterior(opinion, wet_floor=1.0, dry_pipe=0.0).causes["leak"]
    )


def test_context_moves_the_prior():
    opinion = {"fire": Opinion(0.2), "flood": Opinion(0.2)}
    winter, summer = posterior(opinion, is_winter=1.0), posterior(opinion, is_winter=0.0)
    assert winter.causes["fire"] > summer.causes["fire"]


def test_two_causes_with_evidence_of_their_own_are_both_at_work():
    opinions = {"fire": Opinion(0.95, is_direct=True), "flood": Opinion(0.95, is_direct=True)}
    found = posterior(opinions, smoke=1.0, water=1.0)
    assert found.explanations[0][0] == ("fire", "flood") or found.explanations[0][0] == (
        "flood",
        "fire",
    )
    assert min(found.causes["fire"], found.causes["flood"]) > 0.9


def test_what_a_specialist_explains_counts_less_for_the_other_cause():
    apart = {"fire": Opinion(0.9), "leak": Opinion(0.6)}
    explained = apart | {"fire": Opinion(0.9, explains=frozenset({"leak"}))}
    assert posterior(explained).causes["leak"] < posterior(apart).causes["leak"]


def test_a_cause_that_began_clearly_earlier_is_not_explained_by_a_later_one():
    late = Opinion(0.9, explains=frozenset({"leak"}), onset=50, first=50)
    early, same = Opinion(0.6, onset=10, first=10), Opinion(0.6, onset=50, first=50)
    assert (
        posterior({"fire": late, "leak": early}).causes["leak"]
        > posterior({"fire": late, "leak": same}).causes["leak"]
    )


def test_a_failure_that_no_card_explains_is_unknown():
    found = posterior({UNKNOWN: Opinion(0.5)})
    assert next(iter(found.causes)) == UNKNOWN


def test_the_order_of_cards_does_not_matter():
    turned = MappingProxyType(dict(reversed(DECK.items())))
    evidence = {"water": 0.7, "wet_floor": 0.6, "smoke": 0.2}
    one, other = posterior(**evidence), posterior(known=turned, **evidence)
    assert list(one.causes) == list(other.causes)
    assert one.causes == pytest.approx(other.causes)


def test_an_opposite_speaks_where_its_finding_does_not_hold():
    known = cards(card("drought", against={"strong": ["!sunny"]}))
    opinion = {"drought": Opinion(0.5)}
    assert (
        posterior(opinion, known=known, sunny=0.0).causes["drought"]
        < posterior(opinion, known=known, sunny=1.0).causes["drought"]
    )


@pytest.mark.parametrize("known", deck().values(), ids=lambda one: one.id)
def test_the_specialist_of_every_real_cause_can_carry_it(known):
    evidence = Evidence({}, {known.id: Opinion(0.95, is_direct=True)})
    found = infer(evidence, deck(), shipped())
    assert next(iter(found.causes)) == known.id


@pytest.mark.parametrize(
    "known", [one for one in deck().values() if one.speaks_against], ids=lambda one: one.id
)
def test_everything_that_speaks_against_a_real_cause_lowers_it(known):
    opinion = {known.id: Opinion(0.6)}
    against = {
        name.removeprefix("!"): 0.0 if name.startswith("!") else 1.0
        for names in known.speaks_against.values()
        for name in names
    }
    spared = {name: 1.0 - grade for name, grade in against.items()}
    alone = cards(known)
    assert (
        infer(Evidence(against, opinion), alone, shipped()).causes[known.id]
        < infer(Evidence(spared, opinion), alone, shipped()).causes[known.id]
    )


def test_confidence_is_a_monotone_map_of_probability():
    numbers = replace(NUMBERS, trust=(-0.3, 0.6))
    mapped = [numbers.confidence(p) for p in (0.0, 0.01, 0.2, 0.5, 0.9, 1.0)]
    assert mapped == sorted(mapped)
    assert 0 <= mapped[0] < mapped[-1] <= 1


def test_the_calibration_survives_its_file_and_another_layout_is_refused():
    data = shipped().as_dict()
    assert from_dict(data) == shipped()
    with pytest.raises(ValueError, match="layout 99"):
        from_dict(data | {"version": 99})
