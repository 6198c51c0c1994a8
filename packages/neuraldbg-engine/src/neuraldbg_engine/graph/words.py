# SPDX-License-Identifier: LicenseRef-Proprietary
"""What a link of a chain says: what is wrong with a node, and how it reaches the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from neuraldbg.causes import words
from neuraldbg_engine.graph.nodes import Node, Signal

if TYPE_CHECKING:
    from neuraldbg_engine.graph.anomalies import Anomaly

SUBJECTS = {
    Signal.INPUT: "what enters the model",
    Signal.ACTIVATION: "its output",
    Signal.LOSS: "the loss",
    Signal.GRADIENT: "its gradient",
    Signal.OPTIMIZER: "the optimizer's step",
    Signal.PARAMETER: "its weights",
}
STATES = {
    "nonfinite": "is not finite",
    "nan_detected": "holds NaN",
    "inf_detected": "holds Inf",
    "distribution_shift": "left the range of all batches before",
    "outlier": "is far outside the range of all other batches",
    "dead": "is zero for (nearly) all units",
    "saturated": "lies where the activation's derivative is near zero",
    "anomalous": "left its own range",
    "grown": "grew by orders of magnitude",
    "shrunk": "shrank by orders of magnitude",
    "vanishing": "is (nearly) nothing beside that of later layers",
    "exploding": "grows without bound",
    "absent": "is missing",
    "gradient_absent": "is never given a gradient",
    "nonfinite_weight": "became NaN or Inf",
    "nonfinite_output": "is NaN or Inf",
    "nonfinite_birth": "holds the first NaN or Inf",
    "nonfinite_input": "holds NaN or Inf",
    "nonfinite_parameter": "became NaN or Inf",
    "nonfinite_unlocated": "is NaN or Inf",
    "diverging": "leaves its level for good",
    "loss_spike": "jumps",
    "loss_plateau": "stands still",
    "stuck": "never leaves its start",
    "lr raised": "is longer than ever before: the lr was raised",
    "cleared too early": "finds no gradient: it was cleared before",
    "not cleared": "uses the sum of this gradient and older ones",
    "moved far": "move by a large share of their size in each step",
}
PLURAL = {
    "is": "are",
    "holds": "hold",
    "grew": "grew",
    "shrank": "shrank",
    "lies": "lie",
    "shows": "show",
}
REACHES = {
    (Signal.INPUT, Signal.ACTIVATION): "and {next} reads it",
    (Signal.INPUT, Signal.LOSS): "and the loss follows",
    (Signal.ACTIVATION, Signal.ACTIVATION): "and feeds {next}",
    (Signal.ACTIVATION, Signal.LOSS): "and the loss reads it",
    (Signal.ACTIVATION, Signal.GRADIENT): "and multiplies the gradient that passes it to {next}",
    (Signal.LOSS, Signal.GRADIENT): "and every gradient begins there",
    (Signal.LOSS, Signal.PARAMETER): "and every update follows it",
    (Signal.GRADIENT, Signal.GRADIENT): "and {next} gets what it passes on",
    (Signal.GRADIENT, Signal.PARAMETER): "and the step moves the weights by it",
    (Signal.OPTIMIZER, Signal.PARAMETER): "and moves the weights of {next}",
    (Signal.PARAMETER, Signal.ACTIVATION): "and the next forward runs with them",
    (Signal.PARAMETER, Signal.LOSS): "and the next forward runs with them",
}


def sentence(one: Anomaly, after: Node | None, skipped: int = 0) -> str:
    """Return what a link says, one clause.

    Args:
        one: What is wrong here.
        after: The node that it leads to; None at the end of a chain.
        skipped: How many nodes between the two are not told one by one.
    """
    what = STATES.get(one.state, f"shows {words(one.state)}")
    if one.node.signal is Signal.PARAMETER:
        verb, _, rest = what.partition(" ")
        what = f"{PLURAL.get(verb, verb)} {rest}"
    subject = SUBJECTS[one.node.signal]
    if one.node.signal is Signal.OPTIMIZER and one.state not in STATES:
        subject = "the training loop"
    clause = f"{subject} {what}"
    if after is None:
        return clause
    if skipped:
        return f"{clause}, and so on through {skipped} more"
    how = REACHES.get((one.node.signal, after.signal), "and what follows from it reaches {next}")
    named = f"{after.layer or '(root)'!r}" if after.layer is not None else SUBJECTS[after.signal]
    return f"{clause}, {how.format(next=named)}"
