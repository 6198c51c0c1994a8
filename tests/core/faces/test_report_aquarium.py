# SPDX-License-Identifier: MIT
"""Aquarium JSON and JSON lines: strict, versioned, with the keys of 1.x."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neuraldbg.report.aquarium import Aquarium, AquariumPackage, json_schema, plain
from neuraldbg.report.jsonl import Jsonl

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "aquarium.md"


def strict(text: str):
    def refuse(constant):
        raise AssertionError(f"bare {constant}")

    return json.loads(text, parse_constant=refuse)


@pytest.fixture
def package(failed):
    return strict(Aquarium().render(failed.diagnosis()))


def test_package_has_the_public_keys_and_two_more(package):
    assert list(package) == [
        "schema_version",
        "run",
        "events",
        "hypotheses",
        "couplings",
        "first_failure_layer",
        "first_failure_step",
        "loss_history",
    ]


def test_events_begin_with_the_public_keys(package):
    first = package["events"][0]
    assert list(first)[:7] == ["type", "layer", "step", "from", "to", "confidence", "metadata"]
    assert first["type"] == "activation_regime_shift"
    assert (first["from"], first["to"]) == ("normal", "saturated")


def test_hypotheses_begin_with_the_public_keys(package, kit):
    first = package["hypotheses"][0]
    assert list(first)[:3] == ["description", "confidence", "causal_chain"]
    assert first["causal_chain"][0] == "at step 28 in 'net.0': the sigmoid saturates"
    assert first["evidence"] == [kit.FLAT.id, kit.GONE.id]
    assert first["links"][1]["event"] == kit.GONE.id


def test_couplings_begin_with_the_public_keys(package):
    (coupling,) = package["couplings"]
    assert list(coupling)[:5] == [
        "trigger",
        "consequence",
        "step_difference",
        "confidence",
        "is_causal_candidate",
    ]
    assert coupling["trigger"] == "activation_saturated"


def test_failures_are_keyed_by_family_and_state(package):
    assert package["first_failure_layer"]["gradient_vanishing"] == "net.0"
    assert package["first_failure_step"]["gradient_vanishing"] == 30
    assert package["first_failure_layer"]["optimizer_loss_plateau"] is None


def test_every_cited_event_is_in_the_package(package):
    ids = {event["id"] for event in package["events"]}
    for hypothesis in package["hypotheses"]:
        assert ids.issuperset(hypothesis["evidence"] + hypothesis["counter_evidence"])


def test_numbers_that_are_not_finite_stay_strict(package):
    assert package["loss_history"][-1] is None
    assert package["events"][1]["metadata"]["ratio"] == "Infinity"


def test_healthy_package_is_complete(healthy):
    package = strict(Aquarium().render(healthy.diagnosis()))
    assert package["hypotheses"] == package["couplings"] == package["events"] == []
    assert package["first_failure_step"] == {}
    assert len(package["loss_history"]) == package["run"]["step_count"] == 50


def test_package_is_read_back_as_it_was(failed):
    text = Aquarium().render(failed.diagnosis())
    assert strict(text) == plain(AquariumPackage.model_validate_json(text))


def test_same_trace_gives_the_same_bytes(failed):
    assert Aquarium().render(failed.diagnosis()) == Aquarium().render(failed.diagnosis())


def test_hostile_names_survive(hostile, kit):
    package = strict(Aquarium().render(hostile.diagnosis()))
    assert package["events"][0]["layer"] == kit.HOSTILE


def test_schema_on_the_page_is_that_of_the_code():
    text = PAGE.read_text(encoding="utf-8")
    block = text.split("```json\n")[-1].split("```")[0]
    assert json.loads(block) == json_schema()


def test_lines_are_strict_records(failed):
    lines = [strict(line) for line in Jsonl().render(failed.diagnosis()).splitlines()]
    kinds = [line["record"] for line in lines]
    assert kinds == ["run", *["event"] * 3, *["hypothesis"] * 2, "coupling"]
    assert all(line["schema_version"] == 1 for line in lines)
    assert lines[1]["from"] == "normal"
