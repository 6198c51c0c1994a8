# SPDX-License-Identifier: MIT
"""Recorded runs made by hand, and a host whose reasoner says what a test wants."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from neuraldbg.causes import vocabulary
from neuraldbg.inquiry import Inquiry
from neuraldbg.schema.events import SemanticEvent
from neuraldbg.schema.facts import (
    ActivationStat,
    GradState,
    InputStat,
    LedgerFacts,
    OptimizerStat,
    ParameterStat,
    StepFacts,
)
from neuraldbg.schema.hypotheses import CausalHypothesis, CausalLink, Coupling
from neuraldbg.schema.run import (
    INPUT,
    InputInfo,
    LayerInfo,
    LayerRole,
    OptimizerInfo,
    ParameterInfo,
    RunInfo,
)
from neuraldbg.schema.vocabulary import EventType, FailureType, Severity
from neuraldbg.settings import Settings
from neuraldbg.trace import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOSTILE = '<script>alert("x")</script>'
"""What no document may contain as it is."""


@dataclass
class ScriptedHost:
    """Stands in for `PluginHost`: its reasoner has learned its lines."""

    hypotheses: list[CausalHypothesis] = field(default_factory=list)
    coupled: list[Coupling] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)

    def reason(self, trace):
        self.calls.append("reason")
        return list(self.hypotheses)

    def couplings(self, trace, window):
        self.calls.append(f"couplings {window}")
        return [each for each in self.coupled if each.step_difference <= window]

    def vocabulary(self):
        return vocabulary()


def description(layers: int = 3, **changes) -> RunInfo:
    """A chain of linear layers with sigmoids, named `net.0`, `net.1`, ..."""
    paths = [f"net.{index}" for index in range(layers)]
    fields = {
        "neuraldbg_version": "2.0.0",
        "torch_version": "2.13.0",
        "layers": tuple(
            LayerInfo(
                path=path,
                kind="Linear",
                role=LayerRole.LINEAR,
                activation="sigmoid",
                parents=(paths[index - 1],) if index else (INPUT,),
                order=index,
                is_output=index == layers - 1,
                units=8,
                fan_in=8,
            )
            for index, path in enumerate(paths)
        ),
        "parameters": tuple(
            ParameterInfo(
                name=f"{path}.weight",
                layer=path,
                shape=(8, 8),
                dtype="float32",
                is_trainable=True,
                initial_rms=0.3,
            )
            for path in paths
        ),
        "inputs": (InputInfo(name=":0", model="", shape=(16, 8), dtype="float32"),),
        "optimizers": (
            OptimizerInfo(
                kind="SGD",
                groups=1,
                parameters=tuple(f"{path}.weight" for path in paths),
                options={"lr": 0.1},
            ),
        ),
    }
    return RunInfo(**(fields | changes))


def facts(run: RunInfo, step: int, loss: float, bad_from: int = 10**9) -> StepFacts:
    """One step; from `bad_from` on the first layer's gradient is gone and the last one's is NaN."""
    rows = len(run.layers)
    activation = np.full((rows, len(ActivationStat)), np.nan, dtype=np.float32)
    activation[:, ActivationStat.RMS] = 1.0 + np.arange(rows)
    activation[:, ActivationStat.NONFINITE] = 0.0
    activation[:, ActivationStat.FLAT_SHARE] = 0.1
    parameter = np.full((len(run.parameters), len(ParameterStat)), np.nan, dtype=np.float32)
    parameter[:, ParameterStat.GRAD_NORM] = 0.1
    parameter[:, ParameterStat.GRAD_STATE] = GradState.PRESENT
    parameter[:, ParameterStat.WEIGHT_RMS] = 0.3
    parameter[:, ParameterStat.UPDATE_RMS] = 0.001
    if step >= bad_from:
        activation[0, ActivationStat.FLAT_SHARE] = 1.0
        parameter[0, ParameterStat.GRAD_NORM] = 1e-9
        parameter[-1, ParameterStat.GRAD_NORM] = np.nan
        parameter[-1, ParameterStat.GRAD_STATE] = GradState.NONFINITE
    optimizer = np.full((len(run.optimizers), len(OptimizerStat)), np.nan, dtype=np.float32)
    optimizer[:, [OptimizerStat.STEPPED, OptimizerStat.LR]] = 1.0, 0.1
    return StepFacts(
        run=run,
        step=step,
        losses={"loss": loss},
        metrics={"accuracy": min(1.0, step / 100)},
        activation=activation,
        parameter=parameter,
        inputs=np.zeros((len(run.inputs), len(InputStat)), dtype=np.float32),
        optimizer=optimizer,
        ledger=LedgerFacts(forwards=1, backwards=1, steps=1, batch_size=16),
        seconds=0.01,
    )


def event(**changes) -> SemanticEvent:
    """The gradient of `net.0` vanishes at step 30."""
    fields = {
        "event_type": EventType.GRADIENT_HEALTH_TRANSITION,
        "layer": "net.0",
        "step": 30,
        "step_range": (29, 30),
        "from_state": "healthy",
        "to_state": "vanishing",
        "severity": Severity.CRITICAL,
        "confidence": 0.9,
        "evidence": {"gradient_norm": 1e-9, "ratio": math.inf},
        "detector": "vanishing_gradient",
    }
    return SemanticEvent(**(fields | changes))


FLAT = event(
    event_type=EventType.ACTIVATION_REGIME_SHIFT,
    step=28,
    step_range=(27, 28),
    from_state="normal",
    to_state="saturated",
    severity=Severity.WARNING,
    evidence={"flat_share": 1.0},
    detector="saturation",
)
GONE = event()
PLATEAU = event(
    event_type=EventType.OPTIMIZER_INSTABILITY,
    layer=None,
    step=40,
    step_range=(39, 40),
    from_state="stable",
    to_state="loss_plateau",
    severity=Severity.INFO,
    evidence={},
    detector="plateau",
    count=3,
    last_step=49,
)


def hypothesis(**changes) -> CausalHypothesis:
    """Saturating activations made the gradient of `net.0` vanish."""
    fields = {
        "failure_type": FailureType.VANISHING_GRADIENTS,
        "cause": "saturating_activations",
        "layer": "net.0",
        "onset": 28,
        "onset_range": (27, 28),
        "confidence": 0.87,
        "description": "Gradient vanishing originated in layer 'net.0' at step 28: its sigmoid "
        "is saturated.",
        "evidence": (FLAT, GONE),
        "counter_evidence": (PLATEAU,),
        "causal_chain": (
            CausalLink(layer="net.0", step=28, mechanism="the sigmoid saturates", event=FLAT.id),
            CausalLink(layer="net.0", step=30, mechanism="its gradient vanishes", event=GONE.id),
            CausalLink(layer=None, step=40, mechanism="the loss stops", event=PLATEAU.id),
        ),
        "remedies": ("use ReLU/GELU",),
    }
    return CausalHypothesis(**(fields | changes))


COUPLING = Coupling(
    trigger=FLAT,
    consequence=GONE,
    step_difference=2,
    confidence=0.8,
    mechanism="a flat sigmoid passes no gradient",
)


@pytest.fixture
def kit() -> SimpleNamespace:
    """The pieces from which a test makes its own run."""
    return SimpleNamespace(
        ScriptedHost=ScriptedHost,
        description=description,
        facts=facts,
        event=event,
        hypothesis=hypothesis,
        FLAT=FLAT,
        GONE=GONE,
        PLATEAU=PLATEAU,
        COUPLING=COUPLING,
        HOSTILE=HOSTILE,
    )


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Inquiry]:
    """A function that records a run of `steps` steps and returns its inquiry."""

    def make(  # noqa: PLR0913
        *,
        steps: int = 50,
        bad_from: int = 10**9,
        events=(),
        hypotheses=(),
        couplings=(),
        run: RunInfo | None = None,
        losses: Callable[[int], float] = lambda step: 1.0 / (1 + step),
        path: str | None = None,
        exception: BaseException | None = None,
        is_finished: bool = True,
    ) -> Inquiry:
        run = run or description()
        writer = TraceWriter.open(None if path is None else tmp_path / path, run, Settings())
        for step in range(steps):
            writer.write_step(facts(run, step, losses(step), bad_from))
        for each in events:
            writer.write_event(each)
        if is_finished:
            writer.finish(exception)
        writer.flush()
        host = ScriptedHost(list(hypotheses), list(couplings))
        inquiry = Inquiry(writer.as_trace(), host)
        inquiry.writer = writer
        return inquiry

    return make


@pytest.fixture
def healthy(record) -> Inquiry:
    """Fifty steps that learn."""
    return record()


@pytest.fixture
def failed(record) -> Inquiry:
    """Fifty steps of which the gradient vanishes from step 28 on; two hypotheses."""
    second = hypothesis(
        cause="init_too_large",
        failure_type=FailureType.SATURATED_ACTIVATIONS,
        confidence=0.1,
        description="Or the initial weights of 'net.0' are too large.",
        evidence=(FLAT,),
        counter_evidence=(),
        causal_chain=(),
    )
    return record(
        bad_from=28,
        events=(FLAT, GONE, PLATEAU),
        hypotheses=(hypothesis(), second),
        couplings=(COUPLING,),
        losses=lambda step: math.nan if step > 45 else 1.0,
    )


@pytest.fixture
def hostile(record) -> Inquiry:
    """A run in which every text that users or plugins choose is hostile."""
    run = description(1)
    layer = run.layers[0].model_copy(update={"path": HOSTILE, "kind": HOSTILE})
    parameter = run.parameters[0].model_copy(update={"layer": HOSTILE, "name": HOSTILE})
    run = run.model_copy(
        update={
            "layers": (layer,),
            "parameters": (parameter,),
            "warnings": (HOSTILE,),
            "models": (HOSTILE,),
        }
    )
    bad = event(layer=HOSTILE, from_state=HOSTILE, to_state=HOSTILE, evidence={HOSTILE: HOSTILE})
    link = CausalLink(layer=HOSTILE, step=30, mechanism=HOSTILE, event=bad.id)
    loose = CausalLink(layer=HOSTILE, step=None, mechanism=HOSTILE)
    accused = hypothesis(
        layer=HOSTILE,
        cause=HOSTILE,
        description=HOSTILE,
        evidence=(bad,),
        counter_evidence=(bad,),
        causal_chain=(link, loose),
        remedies=(HOSTILE,),
    )
    coupling = COUPLING.model_copy(update={"trigger": bad, "mechanism": HOSTILE})
    return record(
        run=run,
        events=(bad,),
        hypotheses=(accused,),
        couplings=(coupling,),
        exception=ValueError(HOSTILE),
    )
