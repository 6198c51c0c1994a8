# SPDX-License-Identifier: MIT
"""Wiring fault: the loop does not do what it should, as the ledger and the audit saw it."""

from __future__ import annotations

from typing import ClassVar

from neuraldbg.detectors.noted import Noted
from neuraldbg.schema.vocabulary import EventType

KINDS = frozenset(
    {
        "unregistered_module",
        "parameter_not_in_optimizer",
        "replaced_layer_unowned",
        "foreign_optimizer_parameters",
        "frozen_parameters",
        "gradient_absent",
        "history_cut",
        "reentrant_checkpoint",
        "identical_rows",
        "zero_factors",
        "fresh_moments",
        "no_optimizer_step",
        "optimizer_stopped",
        "gradients_not_cleared",
        "cleared_before_step",
        "clipped_after_step",
        "clipped_scaled",
        "accumulation_unscaled",
        "eval_mode_in_training",
        "train_mode_in_eval",
        "inplace_skip",
        "custom_gradient",
        "detached_term",
        "wrapper_bypassed",
        "rank_divergence",
    }
)


class WiringFault(Noted):
    """Turns what capture observed of the training loop into events."""

    name: ClassVar[str] = "wiring_fault"
    event_types: ClassVar[frozenset[EventType]] = frozenset({EventType.WIRING_FAULT})
    kinds: ClassVar[frozenset[str]] = KINDS
    before: ClassVar[str] = "as_written"
