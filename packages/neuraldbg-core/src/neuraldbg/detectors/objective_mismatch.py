# SPDX-License-Identifier: MIT
"""Objective mismatch: loss, head and targets do not fit, as the audit of the loss saw it."""

from __future__ import annotations

from typing import ClassVar

from neuraldbg.detectors.noted import Noted
from neuraldbg.schema.vocabulary import EventType

KINDS = frozenset(
    {
        "probabilities_into_cross_entropy",
        "probabilities_into_logits_loss",
        "scores_into_probability_loss",
        "broadcast_loss",
        "softmax_dim",
        "target_out_of_range",
        "label_gap",
        "padding_dominates",
        "sum_reduction",
        "constant_term",
        "temperature",
        "sample_leak",
        "future_leak",
        "labels_unrelated",
        "negative_term",
        "unopposed_log_scale",
        "degenerate_targets",
    }
)


class ObjectiveMismatch(Noted):
    """Turns what the audit of the loss observed into events."""

    name: ClassVar[str] = "objective_mismatch"
    event_types: ClassVar[frozenset[EventType]] = frozenset({EventType.OBJECTIVE_MISMATCH})
    kinds: ClassVar[frozenset[str]] = KINDS
    before: ClassVar[str] = "fitting"
