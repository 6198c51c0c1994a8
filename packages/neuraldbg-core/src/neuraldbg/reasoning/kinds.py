# SPDX-License-Identifier: MIT
"""How each kind of observation is read: the cause it shows, its words, and when it counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from neuraldbg.reasoning.frozen import cannot_follow, is_undeclared
from neuraldbg.reasoning.symptoms import is_always_zero
from neuraldbg.reasoning.view import CaseView
from neuraldbg.schema.facts import ParameterStat
from neuraldbg.schema.vocabulary import FailureType

WIRING, OBJECTIVE = FailureType.TRAINING_WIRING, FailureType.OBJECTIVE_MISMATCH


def always(_view: CaseView) -> bool:
    """For what is never meant."""
    return True


def _unlearned(view: CaseView) -> bool:
    """For what is often done on purpose: it counts only where the run does not learn."""
    return not view.curve.learned


def _never_held(view: CaseView) -> bool:
    """For parameters that no optimizer held: none was given them later on either.

    Of those that it was never given some were moved by hand, or wait for their stage.
    """
    layers = {note.layer for note in view.observations.get("parameter_not_in_optimizer", ())}
    return any(p.name not in view.held for p in view.run.parameters if p.layer in layers)


def _unstable(view: CaseView) -> bool:
    """For what only scales the gradient: it counts where the run is unstable or does not learn."""
    return view.is_failing


AFTER_RESUME = 6
"""Steps after moments began anew within which the loss must answer. Heuristic: Adam's first steps
are its largest, since both moments start at zero."""
RESUME_LEAP = 3.0
"""Loss over its level of the 20 steps before. Heuristic: far outside a batch's noise."""
PEAK = 2.0
"""And over the highest of them and of the step itself, whose loss no update of the new moments has
touched: other data or another task lift that one too. Heuristic: six batches do not beat the worst
of twenty twice over."""


def _leapt(view: CaseView) -> bool:
    """For moments that start at zero: the loss leaps where they do, or the run ends poor."""
    curve = view.curve
    for note in view.observations.get("fresh_moments", ()):
        at = int(np.searchsorted(curve.steps, note.step))
        before, untouched = curve.level(at - 20, at), curve.values[max(at - 20, 0) : at + 1]
        after = curve.values[at + 1 : at + 1 + AFTER_RESUME]
        after = after[np.isfinite(after)]
        if at < 20 or not len(after) or not before > 0:
            continue
        if float(after.max()) > max(RESUME_LEAP * before, PEAK * float(np.nanmax(untouched))):
            return True
    return view.is_failing


MISLED = 0.9
"""Progress from which even a reversed gradient has done no harm."""
OPPOSED = 0.05
"""Share of single values at which no approximation of a slope has the wrong sign. Heuristic: a
smooth surrogate of a function that turns back may have it near the turning points."""


def _misled(view: CaseView) -> bool:
    """For a backward that is not its forward's: the run does not learn, or goes backwards.

    Approximate gradients are often meant and work; one that points the other way is none, be it as
    a whole or at many single values.
    """
    notes = view.observations.get("custom_gradient", ())
    is_reversed = any(
        note.figures.get("ratio", 1.0) < 0 or note.figures.get("opposed", 0.0) > OPPOSED
        for note in notes
    )
    return not view.curve.learned or (is_reversed and view.curve.progress < MISLED)


def _stays_open(view: CaseView) -> bool:
    """For a class that is missing: some come late, as the last ones of a sorted file do."""
    return "label_gap_closed" not in view.observations


def _is_recurrent(view: CaseView) -> bool:
    """For calls whose results the loss does not reach: recurrent cells are there to remember.

    Other layers may be iterated to a point from which one step is learned, and learn.
    """
    cells = {layer.path for layer in view.flow.recurrent}
    notes = view.observations.get("history_cut", ())
    return not view.curve.learned or any(note.layer in cells for note in notes)


def _teaches_nothing(view: CaseView) -> bool:
    """For terms that are always 0: one behind an empty mask may wait for its samples.

    It counts where parameters that it alone would train get gradients of exactly 0 to the end.
    """
    state = view.parameter(ParameterStat.GRAD_STATE)
    for note in view.observations.get("constant_term", ()):
        if not note.words.get("reason", "").endswith("mask"):
            return True
        rows = [i for i, p in enumerate(view.run.parameters) if p.layer == note.layer]
        if note.figures.get("alone", 0) and rows and is_always_zero(state, rows):
            return True
    return False


@dataclass(frozen=True)
class Known:
    """How one kind of observation is read."""

    cause: str
    failure: FailureType
    sentence: str
    is_due: Callable[[CaseView], bool] = always
    prior: float = 0.85
    """Confidence where capture gave none, or where what it saw did harm."""
    explains: frozenset[str] = frozenset()
    """Further causes that are the same fault seen from another side."""


KINDS: dict[str, Known] = {
    "unregistered_module": Known(
        "unregistered_modules",
        WIRING,
        "modules in {where} are used but not registered, so no optimizer can train them",
    ),
    "parameter_not_in_optimizer": Known(
        "parameters_not_in_optimizer",
        WIRING,
        "trainable parameters of {where} get gradients but are in no optimizer, so they never move",
        _never_held,
    ),
    "foreign_optimizer_parameters": Known(
        "stale_optimizer_parameters",
        WIRING,
        "the optimizer holds tensors that are not (or no longer) the model's",
        explains=frozenset({"parameters_not_in_optimizer"}),
    ),
    "replaced_layer_unowned": Known(
        "stale_optimizer_parameters",
        WIRING,
        "{where} was put into the model in mid-run and is in no optimizer, so it never moves: the "
        "optimizer holds the parameters of what it replaced",
        explains=frozenset({"parameters_not_in_optimizer"}),
    ),
    "frozen_midway": Known(
        "frozen_parameters",
        WIRING,
        "parameters of {where} were frozen within the run and stay so, and what came later is not "
        "learned",
        cannot_follow,
        explains=frozenset({"input_distribution_shift", "unknown"}),
    ),
    "frozen_parameters": Known(
        "frozen_parameters",
        WIRING,
        "parameters of {where} have requires_grad=False, and the run does not learn",
        is_undeclared,
        0.7,
    ),
    "gradient_absent": Known(
        "detached_graph",
        WIRING,
        "no gradient reaches {where}: the graph is cut between it and the loss",
    ),
    "history_cut": Known(
        "detached_graph",
        WIRING,
        "the loss reaches only the last of many calls of {where}: its state is cut from one time "
        "step to the next, so nothing before the last one is learned",
        _is_recurrent,
    ),
    "reentrant_checkpoint": Known(
        "checkpoint_without_input_grad",
        WIRING,
        "reentrant checkpointing in {where} got an input that needs no gradient, so none flows",
    ),
    "identical_rows": Known(
        "symmetric_init",
        WIRING,
        "units of {where} start identical and stay identical: they learn one thing",
    ),
    "zero_factors": Known(
        "blocked_zero_init",
        WIRING,
        "two factors in series in {where} start at zero, so neither ever gets a gradient",
    ),
    "fresh_moments": Known(
        "resume_without_optimizer_state",
        WIRING,
        "trained weights meet an optimizer whose moments start at zero",
        _leapt,
        0.6,
    ),
    "inplace_skip": Known(
        "inplace_on_skip_path",
        WIRING,
        "a tensor that a skip connection reads is changed in place in {where}",
    ),
    "detached_term": Known(
        "detached_loss_term",
        WIRING,
        "a term of the loss has no path to any parameter it is meant for",
        explains=frozenset({"detached_graph"}),
    ),
    "constant_term": Known(
        "constant_loss_term",
        WIRING,
        "a term of the loss does not change though its inputs do",
        _teaches_nothing,
        0.8,
    ),
    "probabilities_into_cross_entropy": Known(
        "double_softmax",
        OBJECTIVE,
        "cross-entropy receives rows that already sum to 1: softmax is applied twice",
    ),
    "probabilities_into_logits_loss": Known(
        "sigmoid_before_logits_loss",
        OBJECTIVE,
        "a with-logits loss receives values that already went through a sigmoid",
    ),
    "scores_into_probability_loss": Known(
        "logits_into_probability_loss",
        OBJECTIVE,
        "a loss that wants probabilities receives raw scores",
    ),
    "broadcast_loss": Known(
        "loss_shape_broadcast",
        OBJECTIVE,
        "prediction and target have different shapes and broadcast, so every pair is compared",
    ),
    "softmax_dim": Known(
        "softmax_wrong_dim",
        OBJECTIVE,
        "the softmax in {where} normalises over the wrong dimension",
    ),
    "target_out_of_range": Known(
        "output_range_mismatch",
        OBJECTIVE,
        "the head's activation in {where} cannot reach the targets",
    ),
    "label_gap": Known(
        "label_index_mismatch",
        OBJECTIVE,
        "class ids do not fit the head: some column is never a target, or ids collide",
        _stays_open,
        0.7,
    ),
    "padding_dominates": Known(
        "padding_in_loss", OBJECTIVE, "most targets are one padding id and enter the loss"
    ),
    "sum_reduction": Known(
        "wrong_reduction",
        OBJECTIVE,
        "the loss is summed, not averaged, over the batch: its gradient grows with batch size",
        _unstable,
        0.8,
    ),
    "temperature": Known(
        "temperature_misset",
        OBJECTIVE,
        "logits are scaled so far that the softmax is one-hot or uniform",
        _unstable,
        0.7,
    ),
    "sample_leak": Known(
        "axis_order_error",
        OBJECTIVE,
        "samples of one batch influence one another's outputs through {where}",
    ),
    "future_leak": Known(
        "leaky_causal_mask",
        OBJECTIVE,
        "outputs at a position depend on later positions through {where}",
    ),
    "degenerate_targets": Known(
        "degenerate_targets",
        FailureType.DATA_ANOMALY,
        "all targets are the same or ignored, so there is nothing to learn from them",
    ),
    "negative_term": Known(
        "wrong_loss_sign",
        OBJECTIVE,
        "an error measure enters the loss with a negative factor, so the run maximises it",
    ),
    "unopposed_log_scale": Known(
        "wrong_loss_sign",
        OBJECTIVE,
        "the logarithm of the scale in {where} and its exponential push the loss the same way, so "
        "nothing holds the scale: one of the two has the wrong sign",
    ),
    "custom_gradient": Known(
        "custom_backward_wrong",
        WIRING,
        "the backward of a custom function in {where} disagrees with finite differences of its "
        "forward",
        _misled,
        0.9,
    ),
    "labels_unrelated": Known(
        "labels_unrelated_to_inputs",
        OBJECTIVE,
        "the loss settles at the entropy of the labels although single batches can be fitted",
        _unlearned,
    ),
}
