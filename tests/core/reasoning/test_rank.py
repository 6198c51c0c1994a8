# SPDX-License-Identifier: MIT
"""Weighing causes against one another: explaining away, first occurrence, order, length."""

from __future__ import annotations

import itertools
import logging

import pytest

from neuraldbg.reasoning import causes, rank
from neuraldbg.reasoning.cause import Assessment
from neuraldbg.schema.vocabulary import FailureType


def claim(cause, confidence, *explains, onset=0, **more):
    return Assessment(
        cause=cause,
        failure=FailureType.OPTIMIZER_INSTABILITY,
        confidence=confidence,
        description=cause,
        onset=onset,
        explains=frozenset(explains),
        **more,
    )


def ranked(*claims):
    return [(one.cause, one.confidence) for one in rank.rank(claims)]


def test_a_sure_cause_takes_confidence_from_what_it_explains():
    dead, lr = claim("dying_relu", 0.8), claim("lr_too_high", 0.7, "dying_relu")
    assert [cause for cause, _ in ranked(dead, lr)] == ["lr_too_high", "dying_relu"]


def test_an_unsure_cause_explains_nothing_away():
    dead, lr = claim("dying_relu", 0.8), claim("lr_too_high", 0.3, "dying_relu")
    assert ranked(dead, lr)[0] == ("dying_relu", 0.8)


def test_what_began_clearly_before_cannot_be_explained():
    early = claim("dying_relu", 0.6, onset=0)
    late = claim("lr_too_high", 0.7, "dying_relu", onset=50)
    assert ("dying_relu", 0.6) in ranked(early, late)


def test_two_that_explain_each_other_leave_the_stronger_alone():
    one, two = claim("a", 0.8, "b"), claim("b", 0.7, "a")
    assert ranked(one, two)[0] == ("a", 0.8)


def test_unknown_is_said_only_when_nothing_else_is():
    assert ranked(claim("unknown", 0.3)) == [("unknown", 0.3)]
    assert ranked(claim("unknown", 0.3), claim("lr_too_high", 0.2)) == [("lr_too_high", 0.2)]


def test_direct_evidence_and_earlier_onset_break_ties():
    late, early = claim("a", 0.5, onset=9), claim("b", 0.5, onset=2)
    direct = claim("c", 0.5, onset=20, is_direct=True)
    assert [cause for cause, _ in ranked(late, early, direct)] == ["c", "b", "a"]


def test_list_is_short_and_each_cause_stands_once():
    claims = [claim(f"c{i}", 0.5 + i / 100) for i in range(9)] + [claim("c8", 0.2)]
    found = ranked(*claims)
    assert len(found) == 5
    assert len({cause for cause, _ in found}) == 5


def test_order_does_not_depend_on_the_order_of_hearing():
    claims = [claim("a", 0.9, "b"), claim("b", 0.6), claim("c", 0.7, "d"), claim("d", 0.65)]
    first = ranked(*claims)
    assert all(ranked(*order) == first for order in itertools.permutations(claims))


def test_a_cause_that_fails_is_logged_and_the_others_are_heard(monkeypatch, caplog):
    def broken(_view):
        raise RuntimeError("boom")

    monkeypatch.setattr(
        rank, "assessors", lambda: [("bad", broken), ("good", lambda _view: claim("a", 0.5))]
    )
    with caplog.at_level(logging.ERROR):
        assert [one.cause for one in rank.assess_all(None)] == ["a"]
    assert "'bad'" in caplog.text


def test_every_cause_has_a_file_and_a_function():
    names = [name for name, _ in causes.assessors()]
    assert sorted(names) == sorted(set(names))
    assert all(callable(assess) for _, assess in causes.assessors())


@pytest.mark.parametrize("name", causes.MODULES)
def test_causes_cite_only_the_vocabulary(name):
    from neuraldbg.causes import vocabulary

    general = {"observed", "nonfinite", "unknown", "wrapper_bypassed", "norm_scale_gone"}
    assert name in general or name in vocabulary().causes
