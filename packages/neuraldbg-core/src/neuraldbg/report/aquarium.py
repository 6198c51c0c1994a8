# SPDX-License-Identifier: MIT
"""Aquarium JSON: the six keys of the public 1.x export, plus `schema_version` and `run`.

Strict JSON: a loss that is not finite is `null`, a figure that is not finite is one of the strings
`"NaN"`, `"Infinity"`, `"-Infinity"`. A new optional field keeps `SCHEMA_VERSION`; anything else
raises it.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ConfigDict, Field

from neuraldbg.report.diagnosis import Diagnosis, place
from neuraldbg.schema.hypotheses import CausalHypothesis, CausalLink, Coupling, Verification
from neuraldbg.schema.keys import failure_key
from neuraldbg.schema.run import Frozen
from neuraldbg.schema.vocabulary import EventType, FailureType, Severity

if TYPE_CHECKING:
    from neuraldbg.schema.events import SemanticEvent

SCHEMA_VERSION = 1


class AquariumEvent(Frozen):
    """A change of state. The first seven keys are those of 1.x."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    type: EventType
    layer: str | None
    """Path as in `named_modules()`; null where no layer is concerned."""
    step: int
    from_: str = Field(alias="from")
    to: str
    confidence: float
    metadata: dict[str, float | str]
    """Figures by name."""
    id: str
    severity: Severity
    step_range: tuple[int, int]
    """Last step known good, first step known bad."""
    count: int
    last_step: int | None
    detector: str


class AquariumHypothesis(Frozen):
    """A possible cause. The first three keys are those of 1.x."""

    description: str
    confidence: float
    causal_chain: list[str]
    """From root to symptom, one sentence per link."""
    failure_type: FailureType
    cause: str
    layer: str | None
    onset: int | None
    onset_range: tuple[int, int] | None
    links: list[CausalLink]
    """`causal_chain` in parts."""
    evidence: list[str]
    """Ids of events."""
    counter_evidence: list[str]
    """Ids of events."""
    remedies: list[str]
    verification: Verification | None
    details: list[str] = Field(default_factory=list)
    """Sentences that say more, where the reasoner has any."""


class AquariumCoupling(Frozen):
    """A failure and one that followed it. The first five keys are those of 1.x."""

    trigger: str
    """Failure key."""
    consequence: str
    """Failure key."""
    step_difference: int
    confidence: float
    is_causal_candidate: bool
    mechanism: str
    trigger_event: str
    consequence_event: str


class AquariumLayer(Frozen):
    """A watched layer."""

    path: str
    kind: str
    role: str
    parents: list[str]
    order: int


class AquariumRun(Frozen):
    """What was watched, and how the run ended."""

    neuraldbg_version: str
    torch_version: str
    created: str
    rank: int
    world_size: int
    models: list[str]
    step_count: int
    last_step: int | None
    is_finished: bool
    exception: str | None
    warnings: list[str]
    problems: list[str]
    """What of a damaged trace could not be read."""
    layers: list[AquariumLayer]


class AquariumPackage(Frozen):
    """One diagnosed run."""

    schema_version: int = SCHEMA_VERSION
    run: AquariumRun
    events: list[AquariumEvent]
    hypotheses: list[AquariumHypothesis]
    """Most probable first."""
    couplings: list[AquariumCoupling]
    first_failure_layer: dict[str, str | None]
    """By failure key, such as `gradient_vanishing`."""
    first_failure_step: dict[str, int]
    """By failure key, such as `gradient_vanishing`."""
    loss_history: list[float | None]
    """Values of the main loss in order of step; null: not finite."""


class Aquarium:
    """The package that Aquarium and other programs read."""

    name: ClassVar[str] = "aquarium"
    suffix: ClassVar[str] = ".json"

    def render(self, diagnosis: Diagnosis) -> str:
        """Return the package as indented JSON with a newline at its end."""
        return strict_json(package(diagnosis))


def package(diagnosis: Diagnosis) -> AquariumPackage:
    """Return the diagnosis in the shape that is exported."""
    trace = diagnosis.trace
    rows = diagnosis.root_causes
    return AquariumPackage(
        run=_run(diagnosis),
        events=[_event(each) for each in trace.events],
        hypotheses=[hypothesis_record(each) for each in diagnosis.hypotheses],
        couplings=[_coupling(each) for each in diagnosis.couplings],
        first_failure_layer={row.failure: row.layer for row in rows},
        first_failure_step={row.failure: row.step for row in rows},
        loss_history=[
            float(value) if math.isfinite(value) else None for value in trace.loss.values
        ],
    )


def strict_json(record: Frozen | dict[str, Any]) -> str:
    """Return strict, indented JSON of a record, or of a dict of plain values and records.

    Example:
        >>> print(strict_json({"norm": float("inf")}), end="")
        {
          "norm": "Infinity"
        }
    """
    return json.dumps(plain(record), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def plain(value: Any) -> Any:
    """Return a value as JSON has it; numbers that are not finite become strings."""
    if isinstance(value, Frozen):
        return plain(value.model_dump(mode="json", by_alias=True))
    if isinstance(value, dict):
        return {str(name): plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def json_schema() -> dict[str, Any]:
    """Return the JSON schema of the package."""
    return AquariumPackage.model_json_schema(by_alias=True, mode="serialization")


def _run(diagnosis: Diagnosis) -> AquariumRun:
    trace = diagnosis.trace
    run = trace.run
    return AquariumRun(
        neuraldbg_version=run.neuraldbg_version,
        torch_version=run.torch_version,
        created=run.created,
        rank=run.rank,
        world_size=run.world_size,
        models=list(run.models),
        step_count=trace.step_count,
        last_step=trace.last_step,
        is_finished=trace.is_finished,
        exception=trace.exception,
        warnings=list(run.warnings),
        problems=list(trace.problems),
        layers=[
            AquariumLayer(
                path=each.path,
                kind=each.kind,
                role=str(each.role),
                parents=list(each.parents),
                order=each.order,
            )
            for each in run.layers
        ],
    )


def _event(event: SemanticEvent) -> AquariumEvent:
    return AquariumEvent(
        type=event.event_type,
        layer=event.layer,
        step=event.step,
        from_=event.from_state,
        to=event.to_state,
        confidence=event.confidence,
        metadata=event.evidence,
        id=event.id,
        severity=event.severity,
        step_range=event.step_range,
        count=event.count,
        last_step=event.last_step,
        detector=event.detector,
    )


def hypothesis_record(hypothesis: CausalHypothesis) -> AquariumHypothesis:
    """Return a hypothesis in the shape that is exported; events are named by their ids."""
    return AquariumHypothesis(
        description=hypothesis.description,
        confidence=hypothesis.confidence,
        causal_chain=[sentence(link) for link in hypothesis.causal_chain],
        failure_type=hypothesis.failure_type,
        cause=hypothesis.cause,
        layer=hypothesis.layer,
        onset=hypothesis.onset,
        onset_range=hypothesis.onset_range,
        links=list(hypothesis.causal_chain),
        evidence=[event.id for event in hypothesis.evidence],
        counter_evidence=[event.id for event in hypothesis.counter_evidence],
        remedies=list(hypothesis.remedies),
        verification=hypothesis.verification,
        details=list(hypothesis.details),
    )


def sentence(link: CausalLink) -> str:
    """Return a link of a chain as one sentence with layer and step."""
    where = "" if link.layer is None else f"in {place(link.layer)}"
    when = "" if link.step is None else f"at step {link.step:,}"
    head = " ".join(part for part in (when, where) if part)
    return f"{head}: {link.mechanism}" if head else link.mechanism


def _coupling(coupling: Coupling) -> AquariumCoupling:
    return AquariumCoupling(
        trigger=failure_key(coupling.trigger),
        consequence=failure_key(coupling.consequence),
        step_difference=coupling.step_difference,
        confidence=coupling.confidence,
        is_causal_candidate=coupling.is_causal_candidate,
        mechanism=coupling.mechanism,
        trigger_event=coupling.trigger.id,
        consequence_event=coupling.consequence.id,
    )
