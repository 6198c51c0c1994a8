# SPDX-License-Identifier: LicenseRef-Proprietary
"""A generator and its judge: what it makes, how sure the judge is, what comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.adversary import roles
from neuraldbg.schema.facts import ActivationStat, InputStat
from neuraldbg_engine.findings.case import largest, middle
from neuraldbg_engine.findings.finding import Graded, finding, graded, log_ramp, ramp

if TYPE_CHECKING:
    from neuraldbg_engine.findings.case import Case


@finding(
    "collapse.generator_alike",
    "Salimans et al. 2016; Heuristic: 60 to 30 % of the spread of real samples, or of its own best",
)
def generator_alike(case: Case) -> Graded | None:
    """What a generator makes differs less between samples than what the judge is shown."""
    pair = roles(case.view)
    if pair is None:
        return None
    layers = [x for x in case.view.flow.executed if x.model == pair[0]]
    shown = [i for i, x in enumerate(case.view.run.inputs) if x.model == pair[1]]
    if not layers:
        return None
    series = case.activation(ActivationStat.SPREAD)[:, case.view.flow.row[layers[-1].path]]
    real = case.inputs(InputStat.SAMPLE_SPREAD)[:, shown]
    real = real[np.isfinite(real)]
    last, most = float(case.view.late(series)), largest(series)[1]
    most = max(most, float(np.quantile(real, 0.9))) if len(real) else most
    share = last / most if most > 0 else float("nan")
    return graded(
        ramp(share, 0.6, 0.3),
        f"generated samples differ by {last:.2g} of their size, where {most:.2g} was seen",
        layers[-1].path,
        case.since(np.nan_to_num(series, nan=np.inf) < 0.6 * most, ~np.isnan(series)),
        spread=last,
        most=most,
    )


@finding("collapse.judge_certain", "Arjovsky and Bottou 2017; Heuristic: logits of 3 to 10")
def judge_certain(case: Case) -> Graded | None:
    """A discriminator scores samples with certainty."""
    pair = roles(case.view)
    if pair is None:
        return None
    layers = [
        x
        for x in case.view.flow.executed
        if x.model == pair[1] and x.path in case.view.flow.matrices
    ]
    if not layers:
        return None
    series = case.activation(ActivationStat.RMS)[:, case.view.flow.row[layers[-1].path]]
    late = float(case.view.late(series))
    return graded(
        log_ramp(late, 3.0, 10.0),
        f"its scores have RMS {late:.3g}",
        layers[-1].path,
        case.since(np.nan_to_num(series) > 3.0, ~np.isnan(series)),
        rms=late,
    )


@finding(
    "collapse.generator_starves",
    "Arjovsky and Bottou 2017; Heuristic: gradient at 0.2 to 0.02 of early",
)
def generator_starves(case: Case) -> Graded | None:
    """The generator's gradient falls to a fraction of what it was."""
    pair = roles(case.view)
    if pair is None or case.is_short:
        return None
    columns = [i for i, path in enumerate(case.chain) if case.view.flow.info[path].model == pair[0]]
    if not columns:
        return None
    early, late = case.early_gradient[columns], case.late_gradient[columns]
    left = middle(late / np.where(early > 0, early, np.nan))
    return graded(
        log_ramp(left, 0.2, 0.02),
        f"the generator gets {left:.2g} of its early gradient",
        case.chain[columns[0]],
        left=left,
    )
