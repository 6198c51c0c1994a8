# SPDX-License-Identifier: MIT
"""The vocabulary: complete, immutable, extended but never redefined."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from neuraldbg.causes import UNKNOWN, Cause, cause, unknown_name, vocabulary
from neuraldbg.errors import UnknownNameError, UsageError
from neuraldbg.schema.vocabulary import FailureType


def own(**changes) -> Cause:
    fields = {"id": "my_cause", "failures": ("data_anomaly",), "signs": "s", "remedy": "r"}
    return Cause(**(fields | changes))


def test_failure_types_are_those_of_the_enum():
    assert list(vocabulary().failure_types) == [str(each) for each in FailureType]


@pytest.mark.parametrize("each", vocabulary().causes.values(), ids=lambda each: each.id)
def test_every_cause_is_complete(each):
    assert set(each.failures) <= set(vocabulary().failure_types)
    assert len(set(each.failures)) == len(each.failures)
    assert each.signs.strip()
    assert each.remedy.strip()


def test_every_failure_type_has_causes():
    for failure in FailureType:
        assert all(failure in each.failures for each in vocabulary().causes_of(failure))
        assert vocabulary().causes_of(failure)


def test_unknown_is_not_a_cause():
    assert UNKNOWN not in vocabulary().causes


def test_cause_is_found_by_its_id():
    assert cause("lr_too_high").failures[0] == "optimizer_instability"


@pytest.mark.parametrize(
    ("look_up", "name", "nearest"),
    [
        (cause, "dying_relo", "dying_relu"),
        (lambda name: vocabulary().failure(name), "dead_neuron", "dead_neurons"),
        (lambda name: vocabulary().causes_of(name), "data_anomalies", "data_anomaly"),
    ],
)
def test_wrong_name_raises_with_the_nearest(look_up, name, nearest):
    with pytest.raises(UnknownNameError, match=nearest) as caught:
        look_up(name)
    assert repr(name) in str(caught.value)


def test_name_far_from_all_gets_a_list():
    assert "known are" in str(unknown_name("cause", "zzzz", vocabulary().causes))
    assert "none is known" in str(unknown_name("layer", "x", []))


def test_causes_are_immutable():
    with pytest.raises(ValidationError):
        cause("lr_too_high").remedy = "pray"
    with pytest.raises(TypeError):
        vocabulary().causes["mine"] = own()


def test_plugin_extends_a_copy():
    extended = vocabulary().extended([own()])
    assert extended.cause("my_cause").remedy == "r"
    assert "my_cause" not in vocabulary().causes


@pytest.mark.parametrize("taken", ["lr_too_high", UNKNOWN])
def test_taken_id_is_refused(taken):
    with pytest.raises(UsageError, match=taken):
        vocabulary().extended([own(id=taken)])


def test_id_twice_in_one_plugin_is_refused():
    with pytest.raises(UsageError, match="my_cause"):
        vocabulary().extended([own(), own()])


def test_cause_of_a_failure_type_that_does_not_exist_is_refused():
    with pytest.raises(UnknownNameError, match="exploding_gradients"):
        vocabulary().extended([own(failures=("exploding_gradient",))])


@pytest.mark.parametrize(
    "wrong", [{"id": "No Words"}, {"failures": ()}, {"remedy": ""}, {"extra": 1}]
)
def test_malformed_cause_is_refused(wrong):
    with pytest.raises(ValidationError):
        own(**wrong)
