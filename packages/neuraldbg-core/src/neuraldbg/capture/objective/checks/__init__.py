# SPDX-License-Identifier: MIT
"""The checks of the objective audit: one file each, one kind of observation each.

A check is a class with `observe(view) -> Iterable[Observation]`; it lives as long as the run and
may keep counts, never tensors. The audit guards each call: a check that fails is off for the run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from neuraldbg.capture.objective.view import View
    from neuraldbg.schema.facts import Observation


class Check(Protocol):
    """What the audit runs."""

    def observe(self, view: View) -> Iterable[Observation]:
        """Look at one loss before its backward pass, and return what is wrong with it."""


def all_checks() -> list[Check]:
    """Return one fresh instance of every check."""
    from neuraldbg.capture.objective.checks.attention import AttentionFigures
    from neuraldbg.capture.objective.checks.broadcast import BroadcastLoss
    from neuraldbg.capture.objective.checks.constants import ConstantTerm
    from neuraldbg.capture.objective.checks.cut_history import CutHistory
    from neuraldbg.capture.objective.checks.degenerate import DegenerateTargets
    from neuraldbg.capture.objective.checks.detached import DetachedTerm
    from neuraldbg.capture.objective.checks.idle import IdleTerm
    from neuraldbg.capture.objective.checks.inplace import InplaceSkip
    from neuraldbg.capture.objective.checks.labels import LabelGap
    from neuraldbg.capture.objective.checks.log_scale import UnopposedLogScale
    from neuraldbg.capture.objective.checks.loss_function import LossFunction
    from neuraldbg.capture.objective.checks.message_passing import MessagePassing
    from neuraldbg.capture.objective.checks.normalization import NormalizationFigures
    from neuraldbg.capture.objective.checks.padding import PaddingDominates
    from neuraldbg.capture.objective.checks.praise import OneSidedPraise
    from neuraldbg.capture.objective.checks.probabilities import (
        ProbabilitiesIntoCrossEntropy,
        ProbabilitiesIntoLogitsLoss,
    )
    from neuraldbg.capture.objective.checks.scores import ScoresIntoProbabilityLoss
    from neuraldbg.capture.objective.checks.sign import NegativeTerm
    from neuraldbg.capture.objective.checks.softmax_dim import SoftmaxDim
    from neuraldbg.capture.objective.checks.sum_reduction import SumReduction
    from neuraldbg.capture.objective.checks.target_range import TargetOutOfRange
    from neuraldbg.capture.objective.checks.temperature import Temperature

    kinds: tuple[Callable[[], Check], ...] = (
        LossFunction,
        ProbabilitiesIntoCrossEntropy,
        ProbabilitiesIntoLogitsLoss,
        ScoresIntoProbabilityLoss,
        BroadcastLoss,
        SoftmaxDim,
        TargetOutOfRange,
        LabelGap,
        PaddingDominates,
        SumReduction,
        DetachedTerm,
        CutHistory,
        ConstantTerm,
        IdleTerm,
        DegenerateTargets,
        NegativeTerm,
        UnopposedLogScale,
        OneSidedPraise,
        Temperature,
        InplaceSkip,
        AttentionFigures,
        NormalizationFigures,
        MessagePassing,
    )
    return [kind() for kind in kinds]
