# SPDX-License-Identifier: MIT
"""Descriptions of runs and facts of steps, made by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from neuraldbg.schema.facts import (
    ActivationStat,
    GradState,
    InputStat,
    LedgerFacts,
    Observation,
    OptimizerStat,
    ParameterStat,
    StepFacts,
)
from neuraldbg.schema.run import (
    INPUT,
    InputInfo,
    LayerInfo,
    LayerRole,
    OptimizerInfo,
    ParameterInfo,
    RunInfo,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

Cells = Mapping[tuple[Any, Any], float]
"""Figures by (name of the row, member of the enum of columns); None means all rows."""

ACTIVATION = {
    ActivationStat.CALLS: 1.0,
    ActivationStat.MEAN: 0.1,
    ActivationStat.RMS: 1.0,
    ActivationStat.MIN: -2.5,
    ActivationStat.MAX: 2.5,
    ActivationStat.NONFINITE: 0.0,
    ActivationStat.ZERO_SHARE: 0.0,
    ActivationStat.FLAT_SHARE: 0.05,
    ActivationStat.SILENT_SHARE: 0.0,
    ActivationStat.SPREAD: 0.8,
    ActivationStat.COSINE: 0.2,
    ActivationStat.RANK: 8.0,
    ActivationStat.INPUT_RMS: 1.0,
    ActivationStat.ROW_MAX: 1.5,
}
PARAMETER = {
    ParameterStat.GRAD_NORM: 0.1,
    ParameterStat.GRAD_STATE: float(GradState.PRESENT),
    ParameterStat.WEIGHT_RMS: 0.1,
    ParameterStat.UPDATE_RMS: 1e-4,
    ParameterStat.SECOND_MOMENT_RATIO: 1.0,
    ParameterStat.GRAD_COSINE: 0.1,
    ParameterStat.EPS_SHARE: 0.0,
    ParameterStat.GRAD_ZERO_SHARE: 0.0,
    ParameterStat.WEIGHT_MAX: 0.3,
}
INPUTS = {
    InputStat.MEAN: 0.0,
    InputStat.RMS: 1.0,
    InputStat.MIN: -3.0,
    InputStat.MAX: 3.0,
    InputStat.NAN: 0.0,
    InputStat.INF: 0.0,
    InputStat.FEATURE_SPREAD: 1.5,
    InputStat.CONSTANT_SHARE: 0.0,
    InputStat.SAMPLE_SPREAD: 1.0,
}
OPTIMIZER = {
    OptimizerStat.STEPPED: 1.0,
    OptimizerStat.LR: 1e-3,
    OptimizerStat.LR_MIN: 1e-3,
    OptimizerStat.MOMENTUM: 0.9,
    OptimizerStat.WEIGHT_DECAY: 0.0,
    OptimizerStat.BETA2: 0.999,
    OptimizerStat.EPS: 1e-8,
}
LEDGER = LedgerFacts(forwards=1, backwards=1, steps=1, batch_size=32)


def make_run(*layers: str | LayerInfo, **changes: Any) -> RunInfo:
    """Return the description of a chain of layers under Adam, of which each feeds the next.

    Args:
        layers: Paths of linear layers with a ReLU behind them (none behind the last), or layers
            as they are to be. None given: `fc1`, `fc2`, `head`.
        changes: Fields of `RunInfo` that are to be otherwise.

    Example:
        >>> run = make_run("fc1", "head")
        >>> [layer.parents for layer in run.layers], [p.name for p in run.parameters]
        ([('<input>',), ('fc1',)], ['fc1.weight', 'head.weight'])
    """
    chain = layers or ("fc1", "fc2", "head")
    infos: list[LayerInfo] = []
    for order, layer in enumerate(chain):
        if isinstance(layer, str):
            is_last = order == len(chain) - 1
            layer = LayerInfo(  # noqa: PLW2901 - a path is short for this
                path=layer,
                kind="Linear",
                role=LayerRole.LINEAR,
                activation=None if is_last else "relu",
                parents=(infos[-1].path if infos else INPUT,),
                order=order,
                is_output=is_last,
                units=16,
                fan_in=16,
            )
        infos.append(layer)
    parameters = tuple(
        ParameterInfo(
            name=f"{layer.path}.weight" if layer.path else "weight",
            layer=layer.path,
            shape=(16, 16),
            dtype="float32",
            is_trainable=True,
            initial_rms=0.1,
        )
        for layer in infos
    )
    names = tuple(parameter.name for parameter in parameters)
    run = RunInfo(
        neuraldbg_version="2.0.0",
        torch_version="2.13.0",
        layers=tuple(infos),
        parameters=parameters,
        inputs=(InputInfo(name=":0", model="", shape=(32, 16), dtype="float32"),),
        optimizers=(OptimizerInfo(kind="Adam", groups=1, parameters=names),),
    )
    return run.model_copy(update=changes)


def make_facts(  # noqa: PLR0913 - one for each field of the facts
    run: RunInfo,
    step: int,
    *,
    loss: float | None = 1.0,
    losses: Mapping[str, float] | None = None,
    metrics: Mapping[str, float] | None = None,
    activation: Cells | None = None,
    parameter: Cells | None = None,
    inputs: Cells | None = None,
    optimizer: Cells | None = None,
    ledger: LedgerFacts = LEDGER,
    observations: Iterable[Observation] = (),
    **changes: Any,
) -> StepFacts:
    """Return the facts of a healthy step, but for what is given.

    Args:
        run: As `make_run` returns it.
        step: Label.
        loss: Main loss; None where none was recorded.
        losses: Further losses.
        metrics: By name.
        activation: Figures by (layer path, `ActivationStat`).
        parameter: Figures by (parameter name, `ParameterStat`).
        inputs: Figures by (input name, `InputStat`).
        optimizer: Figures by (kind of optimizer, `OptimizerStat`).
        ledger: What the loop did.
        observations: Of this step.
        changes: Other fields of `StepFacts`, such as `is_interrupted`.

    Raises:
        KeyError: A row does not exist; the message has those that do.

    Example:
        >>> run = make_run("fc1", "head")
        >>> facts = make_facts(run, 0, activation={("fc1", ActivationStat.RMS): 2.0})
        >>> facts.activation[:, ActivationStat.RMS].tolist()
        [2.0, 1.0]
    """
    first = {} if loss is None else {"loss": loss}
    return StepFacts(
        run=run,
        step=step,
        losses={**first, **(losses or {})},
        metrics=dict(metrics or {}),
        activation=_rows([one.path for one in run.layers], ACTIVATION, activation),
        parameter=_rows([one.name for one in run.parameters], PARAMETER, parameter),
        inputs=_rows([one.name for one in run.inputs], INPUTS, inputs),
        optimizer=_rows([one.kind for one in run.optimizers], OPTIMIZER, optimizer),
        ledger=ledger,
        observations=tuple(observations),
        **{"seconds": 0.01, **changes},
    )


def _rows(
    names: list[str], healthy: Mapping[Any, float], cells: Cells | None
) -> NDArray[np.float32]:
    """Return `[len(names), len(healthy)]`: healthy figures with `cells` put in."""
    result = np.tile(np.array(list(healthy.values()), dtype=np.float32), (len(names), 1))
    for (name, column), value in (cells or {}).items():
        if name is None:
            result[:, column] = value
        elif name in names:
            result[names.index(name), column] = value
        else:
            raise KeyError(f"no row {name!r}; rows are {', '.join(map(repr, names)) or 'none'}")
    return result
