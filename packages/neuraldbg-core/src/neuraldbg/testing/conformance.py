# SPDX-License-Identifier: MIT
"""What every detector owes its host, checked in one call."""

from __future__ import annotations

import gc
import sys
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.plugins.host import check_detector_class
from neuraldbg.schema.facts import (
    ActivationStat,
    InputStat,
    LedgerFacts,
    ParameterStat,
    StepFacts,
)
from neuraldbg.schema.run import RunInfo
from neuraldbg.settings import Settings
from neuraldbg.testing.build import make_facts, make_run
from neuraldbg.testing.feeding import feed
from neuraldbg.testing.runs import RUNS, steps_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from neuraldbg.detector import Detector
    from neuraldbg.schema.events import SemanticEvent


def check_detector(detector: type[Detector]) -> None:
    """Check a detector against its contract, on the named runs and on what real runs hold.

    It has the right shape, bears torch nowhere, is silent on a healthy run, gives the same events
    every time, changes and keeps no facts, and survives NaN everywhere, runs without layers or
    losses, rows that appear later, labels that jump, and steps that never ended.

    Args:
        detector: The class.

    Raises:
        AssertionError: The contract is broken; the message says where.
        PluginError: The detector raised, or returned what it may not.

    Example:
        >>> from neuraldbg.detectors.numerical_error import NumericalError
        >>> check_detector(NumericalError)
    """
    check_detector_class(detector)
    _check_imports(detector)
    events = feed(detector, steps_of("healthy"))
    assert not events, f"{detector.name} speaks on a healthy run: {events[0]}"  # noqa: S101
    for name in RUNS:
        _check_determinism(detector, name)
    _check_keeps_nothing(detector)
    for check, steps in HARD_RUNS.items():
        _survives(detector, check, steps())


def _check_imports(detector: type[Detector]) -> None:
    module = sys.modules.get(detector.__module__)
    names = [
        name
        for name, value in vars(module or object).items()
        if getattr(value, "__name__", "").partition(".")[0] == "torch"
        or str(getattr(value, "__module__", "")).partition(".")[0] == "torch"
    ]
    assert not names, f"{detector.name} imports torch: {', '.join(names)}"  # noqa: S101


def _check_determinism(detector: type[Detector], name: str) -> None:
    """Run twice: the same events, and the facts unchanged."""
    first, again = steps_of(name), steps_of(name)
    events = feed(detector, first)
    for before, after in zip(again, first, strict=True):
        for field in ("activation", "parameter", "inputs", "optimizer"):
            same = np.array_equal(getattr(before, field), getattr(after, field), equal_nan=True)
            assert same, f"{detector.name} changes facts.{field} of step {before.step}"  # noqa: S101
    repeated = feed(detector, again)
    assert _text(repeated) == _text(events), f"{detector.name} differs on {name!r}"  # noqa: S101


def _text(events: Iterable[SemanticEvent]) -> str:
    return "\n".join(event.model_dump_json() for event in events)


def _check_keeps_nothing(detector: type[Detector]) -> None:
    """Feed a run and see that its arrays die, but for those of the last few steps."""
    alive: list[weakref.ref[np.ndarray]] = []
    instance = detector(make_run("fc1", "fc2", "fc3", "head"), Settings())
    for facts in steps_of("nan_loss"):
        alive += [weakref.ref(facts.activation), weakref.ref(facts.parameter)]
        list(instance.on_step(facts))
    del facts
    gc.collect()
    kept = sum(one() is not None for one in alive)
    assert kept <= 4, f"{detector.name} keeps arrays of {kept // 2} steps"  # noqa: S101
    list(instance.on_finish())


def _survives(detector: type[Detector], what: str, steps: list[StepFacts]) -> None:
    try:
        feed(detector, steps, run=steps[0].run if steps else None)
    except Exception as error:
        error.add_note(f"on {what}")
        raise


def _of_nan() -> list[StepFacts]:
    return [
        replace(
            facts,
            losses={"loss": float("nan")},
            activation=np.full_like(facts.activation, np.nan),
            parameter=np.full_like(facts.parameter, np.nan),
            inputs=np.full_like(facts.inputs, np.nan),
            optimizer=np.full_like(facts.optimizer, np.nan),
        )
        for facts in steps_of("healthy")
    ]


def _of_inf() -> list[StepFacts]:
    """Return steps whose sizes are infinite; shares, counts and states cannot be."""
    sizes = [ActivationStat.RMS, ActivationStat.MAX, ActivationStat.INPUT_RMS]
    norms = [ParameterStat.GRAD_NORM, ParameterStat.WEIGHT_RMS, ParameterStat.WEIGHT_MAX]
    cells = {(None, column): float("inf") for column in sizes}
    parameter = {(None, column): float("inf") for column in norms}
    inputs = {(None, InputStat.RMS): float("inf"), (None, InputStat.INF): 1.0}
    run = make_run()
    return [
        make_facts(
            run, step, loss=float("inf"), activation=cells, parameter=parameter, inputs=inputs
        )
        for step in range(80)
    ]


def _without_layers() -> list[StepFacts]:
    run = RunInfo(neuraldbg_version="", torch_version="")
    return [make_facts(run, step, loss=None, ledger=LedgerFacts()) for step in range(80)]


def _growing() -> list[StepFacts]:
    """Return steps of which the first know neither inputs nor optimizers."""
    whole = make_run()
    bare = make_run(inputs=(), optimizers=())
    return [make_facts(bare if step < 5 else whole, step) for step in range(80)]


def _jumping() -> list[StepFacts]:
    labels = [*range(0, 4000, 100), *range(40), 10**9, *range(40)]
    return [make_facts(make_run(), label) for label in labels]


def _interrupted() -> list[StepFacts]:
    ledger = LedgerFacts(forwards=1)
    steps = [make_facts(make_run(), step) for step in range(40)]
    return [*steps, make_facts(make_run(), 40, loss=None, ledger=ledger, is_interrupted=True)]


def _unsampled() -> list[StepFacts]:
    return [
        replace(facts, is_sampled=False, activation=np.full_like(facts.activation, np.nan))
        for facts in steps_of("healthy")
    ]


HARD_RUNS: dict[str, Callable[[], list[StepFacts]]] = {
    "a run of no steps": list,
    "a run of NaN": _of_nan,
    "a run of infinities": _of_inf,
    "a run without layers, losses or optimizers": _without_layers,
    "a run whose inputs and optimizers appear later": _growing,
    "a run whose labels jump": _jumping,
    "a run that ends within a step": _interrupted,
    "a run whose taps never ran": _unsampled,
}
