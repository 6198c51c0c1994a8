# SPDX-License-Identifier: LicenseRef-Proprietary
"""What kind of run this is: architecture, objective, loop. Context, not faults."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from neuraldbg.reasoning.adversary import roles
from neuraldbg.reasoning.causes.adapter_scale_too_high import adapters
from neuraldbg.reasoning.causes.recurrent_vanishing import LOST
from neuraldbg.reasoning.experts import mixtures
from neuraldbg.reasoning.objective import WEIGHED
from neuraldbg.reasoning.symptoms import initial_scales
from neuraldbg.schema.run import LayerRole
from neuraldbg_engine.findings.case import middle
from neuraldbg_engine.findings.finding import Graded, finding, graded, log_ramp, ramp

if TYPE_CHECKING:
    from neuraldbg_engine.findings.case import Case

NAMES = "roles and names of layers"


def _share(case: Case, role: LayerRole) -> tuple[float, int]:
    """Return (share of the weight layers with a role, how many)."""
    weighted = case.view.flow.weighted
    count = sum(1 for layer in weighted if layer.role is role)
    return (count / len(weighted) if weighted else 0.0), count


def _is(truth: object, says: str, figure: float) -> Graded | None:
    return graded(1.0 if truth else 0.0, says, figure=figure)


@finding("is.transformer", NAMES, is_context=True)
def transformer(case: Case) -> Graded | None:
    """The model attends, and normalises layer by layer."""
    flow = case.view.flow
    norms = sum(
        1 for x in flow.executed if "layernorm" in x.kind.lower() or "rms" in x.kind.lower()
    )
    if not flow.executed:
        return None
    grade = (0.7 + 0.3 * (norms > 0)) if flow.has_attention else 0.0
    return graded(grade, f"it attends, with {norms} layer norms", norms=norms)


@finding("is.recurrent", NAMES, is_context=True)
def recurrent(case: Case) -> Graded | None:
    """The model has recurrent layers."""
    count = len(case.view.flow.recurrent)
    return _is(count, f"{count} recurrent layers", count) if case.view.flow.executed else None


@finding("is.convolutional", NAMES, is_context=True)
def convolutional(case: Case) -> Graded | None:
    """Most weight layers are convolutions."""
    if not case.view.flow.weighted:
        return None
    share, count = _share(case, LayerRole.CONVOLUTION)
    return graded(ramp(share, 0.1, 0.6), f"{count} convolutions", layers=count, share=share)


@finding("is.embedding", NAMES, is_context=True)
def embedding(case: Case) -> Graded | None:
    """The model looks up embeddings: its inputs are ids."""
    _, count = _share(case, LayerRole.EMBEDDING)
    return _is(count, f"{count} embeddings", count) if case.view.flow.executed else None


@finding("is.gan", "two models, of which one ends in one unit or runs more often", is_context=True)
def gan(case: Case) -> Graded | None:
    """Two models are trained against each other."""
    if not case.view.flow.executed:
        return None
    pair = roles(case.view) if case.rows else None
    return graded(
        1.0 if pair else 0.0,
        f"{pair[0]!r} generates and {pair[1]!r} judges" if pair else "",
        models=len(case.view.run.models),
    )


@finding("is.several_models", "definition", is_context=True)
def several_models(case: Case) -> Graded | None:
    """Several models are watched in one run."""
    count = len(case.view.run.models)
    return _is(count > 1, f"{count} models", count)


@finding("is.policy_gradient", "the audit of the loss: weighted log-probabilities", is_context=True)
def policy_gradient(case: Case) -> Graded | None:
    """The loss weighs log-probabilities of actions: reinforcement learning."""
    names = case.view.objective.names
    if not names:
        return None
    return _is(
        WEIGHED & set(names),
        "its loss weighs log-probabilities",
        len(names),
    )


@finding(
    "is.own_target",
    "the audit of the loss; forwards without gradients on most steps",
    is_context=True,
)
def own_target(case: Case) -> Graded | None:
    """The model runs without gradients beside nearly every training step: targets of its own."""
    evals = case.view.ledger("eval_forwards")
    if len(evals) < 10:
        return None
    share = float(np.nanmean(evals > 0))
    return graded(
        ramp(share, 0.3, 0.9), f"evaluations beside {share:.0%} of the steps", share=share
    )


@finding("is.classification", "the audit of the loss", is_context=True)
def classification(case: Case) -> Graded | None:
    """Scores of classes are compared with labels."""
    objective = case.view.objective
    if not objective.names:
        return None
    return _is(objective.is_classification, f"{objective.classes} classes", objective.classes)


@finding("is.regression", "the audit of the loss", is_context=True)
def regression(case: Case) -> Graded | None:
    """Outputs are compared with numbers."""
    objective = case.view.objective
    if not objective.names:
        return None
    truth = objective.is_squared or objective.is_absolute
    return _is(truth, "a squared or absolute error", len(objective.names))


@finding(
    "is.autoencoding", "Kingma and Welling 2014: a code that loss and decoder read", is_context=True
)
def autoencoding(case: Case) -> Graded | None:
    """A layer is read by the loss and by later layers too, as the code of a VAE is."""
    flow = case.view.flow
    codes = [
        x.path
        for x in flow.weighted
        if x.is_output and any(c in flow.matrices for c in flow.children(x.path))
    ]
    if not flow.executed:
        return None
    return _is(codes, f"loss and decoder read {codes[0] if codes else ''!r}", len(codes))


@finding("is.mixture", "names of layers", is_context=True)
def mixture(case: Case) -> Graded | None:
    """Experts stand in parallel behind a router."""
    groups = [mixture.name for mixture in mixtures(case.view, 3)]
    return _is(groups, f"groups of experts: {', '.join(groups)}"[:80], len(groups))


@finding(
    "is.graph", "the audit: sums over relations; names of layers; square inputs", is_context=True
)
def graph(case: Case) -> Graded | None:
    """The model works on a graph of nodes."""
    notes = case.view.observations.get("message_passing", [])
    if notes:
        return graded(1.0, f"rows are mixed along relations {notes[0].figures['hops']:.0f} times")
    words = ("gcn", "graph", "gnn", "sage", "gat", "gin")
    named = any(
        any(re.search(rf"(?<![a-z]){w}", (x.kind + " " + x.path).lower()) for w in words)
        for x in case.view.flow.executed
    )
    shapes = [x.shape for x in case.view.run.inputs]
    square = any(len(s) == 2 and s[0] == s[1] and s[0] > 8 for s in shapes)
    if not case.view.flow.executed:
        return None
    return graded(0.6 * square + 0.4 * named, "nodes and edges enter", square=int(square))


@finding(
    "is.adapted", "matrices that start at 0 beside frozen ones (Hu et al. 2022)", is_context=True
)
def adapted(case: Case) -> Graded | None:
    """Adapters are trained on a frozen base."""
    layers = adapters(case.view)
    return _is(layers, f"adapters in {len(layers)} layers", len(layers))


@finding("is.pretrained", "capture: initial weights that no initialisation makes", is_context=True)
def pretrained(case: Case) -> Graded | None:
    """Training starts from trained weights."""
    notes = case.view.observations.get("pretrained", [])
    return _is(notes, "it starts from trained weights", len(notes)) if case.rows else None


@finding("is.partly_frozen", "definition; Heuristic: 5 to 50 % of the numbers", is_context=True)
def partly_frozen(case: Case) -> Graded | None:
    """A part of the parameters needs no gradient."""
    parameters = case.view.run.parameters
    total = sum(int(np.prod(p.shape)) for p in parameters)
    if not total:
        return None
    share = sum(int(np.prod(p.shape)) for p in parameters if not p.is_trainable) / total
    return graded(ramp(share, 0.02, 0.5), f"{share:.0%} of the numbers are frozen", share=share)


@finding("has.normalization", "roles of layers", is_context=True)
def normalization(case: Case) -> Graded | None:
    """Normalisation layers run."""
    flow = case.view.flow
    count = sum(1 for x in flow.executed if x.role is LayerRole.NORMALIZATION)
    return _is(count, f"{count} normalisations", count) if flow.executed else None


@finding("has.batch_statistics", "kinds of layers", is_context=True)
def batch_statistics(case: Case) -> Graded | None:
    """Batch normalisations run: samples of a batch depend on one another by design."""
    count = sum(1 for x in case.view.flow.executed if "batchnorm" in x.kind.lower())
    return _is(count, f"{count} batch norms", count) if case.view.flow.executed else None


@finding("has.residual", "the recorded data flow", is_context=True)
def residual(case: Case) -> Graded | None:
    """Paths around layers are added to their outputs."""
    count = sum(1 for x in case.view.flow.executed if x.has_residual)
    return _is(count, f"{count} layers read a sum with a skip", count) if case.rows else None


@finding("has.clipping", "ledger of calls; Heuristic: 30 to 90 % of the steps", is_context=True)
def clipping(case: Case) -> Graded | None:
    """The loop clips gradients."""
    if not case.rows:
        return None
    share = float(np.nanmean(case.view.ledger("clips") > 0))
    return graded(ramp(share, 0.2, 0.9), f"clips on {share:.0%} of the steps", share=share)


@finding("has.evaluation", "ledger of calls", is_context=True)
def evaluation(case: Case) -> Graded | None:
    """The loop evaluates now and then."""
    if not case.rows:
        return None
    count = float(np.nansum(case.view.ledger("eval_forwards")))
    return _is(count, f"{count:.0f} forwards without gradients", count)


@finding("has.rectifiers", "kinds of activations", is_context=True)
def rectifiers(case: Case) -> Graded | None:
    """Units can die: activations are exactly flat on one side."""
    flow = case.view.flow
    count = sum(1 for x in flow.executed if x.activation in {"relu", "relu6", "hardtanh"})
    return _is(count, f"{count} rectifying layers", count) if flow.executed else None


@finding(
    "structure.deep",
    "He et al. 2016: plain nets degrade; Heuristic: 8 to 20 layers",
    is_context=True,
)
def deep(case: Case) -> Graded | None:
    """Many weight layers stand in series."""
    count = len(case.chain)
    return graded(ramp(count, 7, 20), f"{count} weight layers", layers=count) if count else None


@finding(
    "structure.deep_and_plain",
    "He et al. 2016, section 4.1; Heuristic: 8 to 14 layers",
    is_context=True,
)
def deep_and_plain(case: Case) -> Graded | None:
    """Many weight layers stand in series without skip or normalisation."""
    flow, count = case.view.flow, len(case.chain)
    if not count:
        return None
    plain = not flow.has_residual and not flow.has_normalization
    return graded(
        ramp(count, 7, 14) if plain else 0.0,
        f"{count} weight layers in series, no skip, no norm",
        case.chain[0],
        case.start if case.rows else None,
        layers=count,
    )


@finding(
    "init.large", "He et al. 2015: sqrt(2 / fan_in); Heuristic: 3 to 10 times the largest usual one"
)
def init_large(case: Case) -> Graded | None:
    """A weight matrix starts far larger than any usual initialisation of its shape."""
    scales = initial_scales(case.view)
    if not scales:
        return None
    worst = max(scales, key=lambda s: s.large)
    if not np.isfinite(worst.large):
        return None
    first = next(s for s in scales if s.large > 0.8 * worst.large)
    return graded(
        log_ramp(worst.large, 3.0, 10.0),
        f"{first.layer!r} starts at {worst.large:.3g} times He's scale",
        first.layer,
        case.start if case.rows else None,
        over_he=worst.large,
    )


@finding(
    "init.small",
    "torch's default is 1 / sqrt(3 fan_in); Heuristic: 0.3 to 0.05 of it, median layer",
)
def init_small(case: Case) -> Graded | None:
    """Weight matrices start far smaller than any usual initialisation of their shapes."""
    scales = initial_scales(case.view)
    if not scales:
        return None
    usual = middle(np.array([s.small for s in scales]))
    first = min(scales, key=lambda s: s.small)
    return graded(
        log_ramp(usual, 0.3, 0.05),
        f"the median matrix starts at {usual:.2g} of torch's scale",
        first.layer,
        case.start if case.rows else None,
        median_over_default=usual,
        smallest_over_default=first.small,
    )


@finding(
    "init.one_small",
    "torch's default is 1 / sqrt(3 fan_in); Heuristic: 0.1 to 0.003 of it, not the head",
)
def init_one_small(case: Case) -> Graded | None:
    """One inner weight matrix starts at (nearly) nothing."""
    heads = {x.path for x in case.view.flow.outputs}
    scales = [s for s in initial_scales(case.view) if s.layer not in heads]
    if not scales:
        return None
    worst = min(scales, key=lambda s: s.small)
    return graded(
        log_ramp(worst.small, 0.1, 0.003),
        f"{worst.layer!r} starts at {worst.small:.2g} of torch's scale",
        worst.layer,
        case.start if case.rows else None,
        over_default=worst.small,
    )


@finding(
    "recurrent.forgets",
    f"capture's measurement; core: {LOST}; Heuristic: 1e-2 to 1e-5",
    is_context=True,
)
def forgets(case: Case) -> Graded | None:
    """The gradient does not reach the first time steps of a recurrent layer."""
    notes = case.view.observations.get("recurrent_gradient", [])
    shares = [(n.figures["early_late_ratio"], n) for n in notes if "early_late_ratio" in n.figures]
    if not shares:
        return None
    share, note = min(shares, key=lambda pair: (pair[0], pair[1].step))
    return graded(
        log_ramp(share, 1e-2, 1e-5),
        f"the first time steps get {share:.2g} of the last ones' gradient",
        note.layer,
        case.start if case.rows else None,
        early_over_late=share,
    )


@finding("recurrent.explodes", "capture's measurement, as recurrent.forgets; Heuristic: 1e2 to 1e5")
def explodes(case: Case) -> Graded | None:
    """The gradient grows by orders of magnitude over the time steps of a recurrent layer."""
    notes = case.view.observations.get("recurrent_gradient", [])
    shares = [(n.figures["early_late_ratio"], n) for n in notes if "early_late_ratio" in n.figures]
    if not shares:
        return None
    share, note = max(shares, key=lambda pair: (pair[0], -pair[1].step))
    return graded(
        log_ramp(share, 1e2, 1e5),
        f"the first time steps get {share:.3g} times the last ones' gradient",
        note.layer,
        case.start if case.rows else None,
        early_over_late=share,
    )
