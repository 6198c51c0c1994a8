# SPDX-License-Identifier: MIT
"""Each finding is high where its fault is made by hand, and low on the same run without it."""

from __future__ import annotations

import math

import findings_kit as kit
import numpy as np
import pytest

from neuraldbg.schema.facts import (
    ActivationStat,
    GradState,
    InputStat,
    LedgerFacts,
    Observation,
    OptimizerStat,
    ParameterStat,
)

A, P, X, Z = ActivationStat, ParameterStat, InputStat, OptimizerStat
LAYERS = ("fc1", "fc2", "fc3", "fc4", "head")


def late(cells, at=60):
    """Give figures from a step on."""
    return lambda step: cells if step >= at else {}


def once(cells, at=60):
    """Give figures on one step."""
    return lambda step: cells if step == at else {}


def growing(cell, rate, at=60):
    """Multiply a figure by `rate` each step from a step on."""
    key, start = cell
    return lambda step: {key: start * rate ** max(0, step - at)}


def depth(stat, factor, base=0.1):
    """Give a figure that changes by a factor from layer to layer, the head's being the base."""
    names = LAYERS if isinstance(stat, A) else [f"{x}.weight" for x in LAYERS]
    return {(name, stat): base * factor ** (4 - i) for i, name in enumerate(names)}


def calls(**fields):
    """Give a ledger."""
    return LedgerFacts(**{"forwards": 1, "backwards": 1, "steps": 1, "batch_size": 32, **fields})


def noted(kind, layer=None, step=0, **figures):
    """Give an observation on one step."""
    return lambda now: [Observation(kind, step, layer, figures)] if now == step else []


def flat(step):
    """A loss that never moves but for noise."""
    return 1.4 * math.exp(0.02 * math.sin(12.9898 * step))


def noisy(size):
    """A loss around 1 with that much noise."""
    values = np.random.default_rng(1).lognormal(0, size, kit.STEPS)
    return lambda step: float(values[step])


AT = {"step": (60, 60)}
EXACT, START = (60, 60), (0, 0)

FAULTS = [
    # loss
    ("loss.not_finite", {"loss": lambda s: math.nan if s >= 60 else kit.learns(s)}, None, EXACT),
    ("loss.diverged", {"loss": lambda s: kit.learns(s) * 1.2 ** max(0, s - 60)}, None, None),
    ("loss.stuck", {"loss": flat}, None, None),
    ("loss.large", {"loss": lambda s: 1e5 * kit.learns(s)}, None, START),
    ("loss.falls_without_floor", {"loss": lambda s: 1 - 0.1 * s}, None, None),
    ("loss.constant", {"loss": 0.7}, None, None),
    (
        "loss.part_rises",
        {"losses": lambda s: {"judge": math.exp(-s / 20), "maker": math.exp(s / 40)}},
        None,
        None,
    ),
    (
        "loss.part_vanishes",
        {"loss": flat, "losses": lambda s: {"kl": math.exp(-s / 10), "rest": flat(s)}},
        None,
        None,
    ),
    # curves
    ("curve.plateau", {"loss": lambda s: flat(s) + max(0, 1 - s / 30)}, None, None),
    ("curve.spike", {"loss": lambda s: 9.0 if s == 60 else kit.learns(s) + 0.5}, None, EXACT),
    ("curve.spikes_repeat", {"loss": lambda s: 9.0 if s % 18 == 17 else flat(s)}, None, (17, 17)),
    ("curve.setback", {"loss": lambda s: kit.learns(s) + (3 if s >= 60 else 0)}, None, EXACT),
    ("curve.jump_lasts", {"loss": lambda s: kit.learns(s) + (3 if s >= 60 else 0)}, None, EXACT),
    ("curve.oscillates", {"loss": noisy(1.5)}, None, None),
    ("curve.falls_linearly", {"loss": lambda s: flat(s) - 0.001 * s}, None, None),
    ("curve.rises_at_start", {"loss": lambda s: flat(s) * (8 if 1 <= s < 8 else 1)}, None, START),
    ("curve.rises", {"loss": lambda s: flat(s) * 1.05 ** max(0, s - 60)}, None, None),
    ("curve.rebounds", {"loss": lambda s: kit.learns(min(s, 120 - s))}, None, None),
    ("curve.noise_grows", {"loss": lambda s: 1 + 0.004 * s * math.sin(99.7 * s)}, None, None),
    # schedule
    ("lr.high", {"optimizer": {(None, Z.LR): 0.5}}, None, START),
    ("lr.low", {"optimizer": {(None, Z.LR): 1e-8}}, None, START),
    ("lr.zero", {"optimizer": {(None, Z.LR): 0.0}}, None, START),
    (
        "lr.gone_early",
        {"optimizer": lambda s: {(None, Z.LR): 1e-3 * 0.8**s}, "loss": flat},
        None,
        None,
    ),
    ("lr.decays_per_batch", {"optimizer": lambda s: {(None, Z.LR): 1e-3 * 0.8**s}}, None, None),
    (
        "lr.leaps",
        {
            "optimizer": lambda s: {(None, Z.LR): 1e-3 if s < 60 else 1e-1},
            "loss": lambda s: kit.learns(s) * (30 if s > 60 else 1),
        },
        None,
        EXACT,
    ),
    (
        "lr.swings",
        {"optimizer": lambda s: {(None, Z.LR): 1e-3 * (1 + math.cos(s / 5)) / 2}},
        None,
        None,
    ),
    # updates: weights have RMS 0.1
    ("updates.high", {"parameter": {(None, P.UPDATE_RMS): 0.05}}, None, START),
    ("updates.high_at_start", {"parameter": {(None, P.UPDATE_RMS): 0.05}}, None, START),
    ("updates.low", {"parameter": {(None, P.UPDATE_RMS): 1e-8}}, None, START),
    ("updates.path_short", {"parameter": {(None, P.UPDATE_RMS): 1e-7}}, None, START),
    ("updates.none", {"parameter": {(None, P.UPDATE_RMS): 0.0}}, None, START),
    ("updates.some_never_move", {"parameter": {("fc2.weight", P.UPDATE_RMS): 0.0}}, "fc2", START),
    ("updates.uneven", {"parameter": {("fc3.weight", P.UPDATE_RMS): 0.1}}, "fc3", None),
    ("updates.grow", {"parameter": late({(None, P.UPDATE_RMS): 1e-2})}, None, EXACT),
    (
        "updates.early_larger",
        {"parameter": lambda s: {(None, P.UPDATE_RMS): 1e-2 if s < 6 else 1e-4}},
        None,
        START,
    ),
    ("updates.opposed", {"loss": flat, "parameter": {(None, P.GRAD_COSINE): -0.8}}, None, None),
    ("updates.agree", {"loss": flat, "parameter": {(None, P.GRAD_COSINE): 0.9}}, None, None),
    ("updates.weights_grow", {"parameter": late({(None, P.WEIGHT_RMS): 2.0})}, None, None),
    ("updates.weights_shrink", {"parameter": late({(None, P.WEIGHT_RMS): 0.01})}, None, START),
    (
        "updates.one_layer_grows",
        {"parameter": late({("fc2.weight", P.WEIGHT_RMS): 10.0})},
        "fc2",
        None,
    ),
    (
        "updates.moved_without_step",
        {"parameter": late({("fc2.weight", P.WEIGHT_RMS): 1.0})},
        None,
        EXACT,
    ),
    # gradients
    ("gradients.vanish_with_depth", {"parameter": depth(P.GRAD_NORM, 0.05)}, "fc1", START),
    ("gradients.vanish_with_depth_late", {"parameter": depth(P.GRAD_NORM, 0.05)}, "fc1", None),
    ("gradients.explode_with_depth", {"parameter": depth(P.GRAD_NORM, 200.0)}, "fc1", START),
    ("gradients.fade", {"parameter": late({("fc2.weight", P.GRAD_NORM): 1e-9})}, "fc2", EXACT),
    ("gradients.tiny", {"parameter": {(None, P.GRAD_NORM): 1e-9}}, None, START),
    ("gradients.huge", {"parameter": {(None, P.GRAD_NORM): 1e5}}, None, START),
    ("gradients.explode", {"parameter": late({("fc3.weight", P.GRAD_NORM): 1e4})}, "fc3", EXACT),
    ("gradients.heavy_tailed", {"parameter": once({(None, P.GRAD_NORM): 50.0})}, None, EXACT),
    ("gradients.spike", {"parameter": once({(None, P.GRAD_NORM): 50.0})}, None, EXACT),
    (
        "gradients.nonfinite",
        {"parameter": late({("fc2.weight", P.GRAD_STATE): float(GradState.NONFINITE)})},
        "fc2",
        EXACT,
    ),
    (
        "gradients.absent",
        {"parameter": {("fc2.weight", P.GRAD_STATE): float(GradState.NONE)}},
        "fc2",
        START,
    ),
    (
        "gradients.zero",
        {"parameter": {("fc2.weight", P.GRAD_STATE): float(GradState.ZERO)}},
        "fc2",
        START,
    ),
    ("gradients.sparse", {"parameter": {(None, P.GRAD_ZERO_SHARE): 0.95}}, None, None),
    (
        "gradients.ramp_up",
        {"parameter": lambda s: {(None, P.GRAD_NORM): 0.1 * (s + 1)}},
        None,
        START,
    ),
    (
        "gradients.clipped_away",
        {"ledger": calls(clips=1, clip_max_norm=1e-6, clip_total_norm=1.0)},
        None,
        START,
    ),
    # outputs
    (
        "activations.dead",
        {"activation": late({("fc2", A.SILENT_SHARE): 1.0, ("fc2", A.MAX): -1.0})},
        "fc2",
        EXACT,
    ),
    (
        "activations.died_later",
        {"activation": late({("fc2", A.SILENT_SHARE): 1.0, ("fc2", A.MAX): -1.0})},
        "fc2",
        EXACT,
    ),
    (
        "activations.dead_at_start",
        {"activation": {("fc2", A.SILENT_SHARE): 1.0, ("fc2", A.MAX): -1.0}},
        "fc2",
        START,
    ),
    ("activations.sparse", {"activation": {(None, A.SILENT_SHARE): 0.9}}, None, None),
    ("activations.grow_with_depth", {"activation": depth(A.RMS, 0.1)}, "fc1", START),
    ("activations.shrink_with_depth", {"activation": depth(A.RMS, 10.0)}, "fc1", START),
    ("activations.grow", {"activation": late({("fc3", A.RMS): 1e3})}, "fc3", EXACT),
    ("activations.shrink", {"activation": late({("fc3", A.RMS): 1e-5})}, "fc3", EXACT),
    ("activations.leap", {"activation": late({("fc3", A.RMS): 50.0})}, "fc3", EXACT),
    ("activations.huge", {"activation": {("fc2", A.RMS): 1e4}}, "fc2", START),
    ("activations.nonfinite", {"activation": late({("fc2", A.NONFINITE): 1.0})}, "fc2", EXACT),
    # data
    ("data.large", {"activation": {("fc1", A.INPUT_RMS): 100.0}}, "fc1", START),
    ("data.small", {"activation": {("fc1", A.INPUT_RMS): 1e-3}}, "fc1", START),
    ("data.offset", {"inputs": {(None, X.MEAN): 10.0, (None, X.RMS): 10.05}}, None, START),
    ("data.uneven_features", {"inputs": {(None, X.FEATURE_SPREAD): 1e5}}, None, START),
    ("data.constant_features", {"inputs": {(None, X.CONSTANT_SHARE): 0.5}}, None, START),
    ("data.samples_alike", {"inputs": {(None, X.SAMPLE_SPREAD): 1e-5}}, None, START),
    ("data.shift", {"inputs": late({(None, X.RMS): 5.0})}, None, EXACT),
    (
        "data.shift_hurts",
        {
            "inputs": late({(None, X.RMS): 5.0}),
            "loss": lambda s: kit.learns(s) * (4 if s >= 60 else 1),
        },
        None,
        EXACT,
    ),
    ("data.outlier", {"inputs": once({(None, X.RMS): 90.0})}, None, EXACT),
    (
        "data.outlier_hurts",
        {"inputs": once({(None, X.RMS): 90.0}), "loss": lambda s: 9 if s == 60 else kit.learns(s)},
        None,
        EXACT,
    ),
    (
        "data.nan",
        {"inputs": once({(None, X.NAN): 1.0}), "activation": once({(None, A.NONFINITE): 1.0})},
        None,
        EXACT,
    ),
    (
        "data.inf",
        {"inputs": once({(None, X.INF): 1.0}), "activation": once({(None, A.NONFINITE): 1.0})},
        None,
        EXACT,
    ),
    (
        "data.batch_of_one",
        {"ledger": lambda s: calls(batch_size=1 if s == 60 else 32)},
        None,
        EXACT,
    ),
    # the loop
    ("ledger.not_cleared", {"ledger": calls(is_cleared=False)}, None, (1, 1)),
    ("ledger.cleared_before_step", {"ledger": calls(is_cleared_before_step=True)}, None, START),
    ("ledger.no_step", {"ledger": calls(steps=0)}, None, START),
    ("ledger.skipped", {"ledger": calls(steps=0, skipped=1)}, None, START),
    (
        "ledger.scale_falls",
        {"ledger": lambda s: calls(loss_scale=65536 / 2 ** (s / 6))},
        None,
        None,
    ),
    ("ledger.clipped_after_step", {"ledger": calls(is_clipped_after_step=True)}, None, START),
    ("ledger.clipped_scaled", {"ledger": calls(is_clipped_scaled=True)}, None, START),
    ("ledger.eval_mode", {"ledger": calls(eval_mode_forwards=1)}, None, START),
    (
        "ledger.eval_mode_begins",
        {"ledger": lambda s: calls(eval_mode_forwards=int(s >= 60))},
        None,
        EXACT,
    ),
    (
        "ledger.train_mode_in_eval",
        {"ledger": calls(eval_forwards=1, train_mode_eval_forwards=1)},
        None,
        START,
    ),
    (
        "ledger.norm_grows_with_passes",
        {"observations": noted("accumulation_unscaled", backwards=4.0)},
        None,
        START,
    ),
    # numerics
    (
        "numerics.weights_nonfinite",
        {"parameter": late({("fc2.weight", P.WEIGHT_MAX): math.inf})},
        "fc2",
        EXACT,
    ),
    (
        "numerics.finite_gradient_bad_weight",
        {"parameter": late({("fc2.weight", P.WEIGHT_MAX): math.inf})},
        "fc2",
        EXACT,
    ),
    (
        "numerics.after_runaway",
        {"loss": lambda s: 2.0 * 1.5**s if s < 60 else math.nan},
        None,
        None,
    ),
    (
        "numerics.out_of_the_blue",
        {"loss": lambda s: math.nan if s >= 60 else kit.learns(s)},
        None,
        EXACT,
    ),
    ("numerics.recovers", {"loss": lambda s: math.nan if s == 60 else kit.learns(s)}, None, None),
    # the optimizer
    (
        "optimizer.second_moment_lags",
        {
            "parameter": once({("fc2.weight", P.GRAD_NORM): 9.0}, 58),
            "loss": lambda s: 9.0 if 60 <= s < 63 else kit.learns(s) + 0.5,
        },
        "fc2",
        (58, 58),
    ),
    (
        "optimizer.ratio_high",
        {"parameter": once({("fc2.weight", P.SECOND_MOMENT_RATIO): 20.0})},
        "fc2",
        EXACT,
    ),
    ("optimizer.eps_dominates", {"parameter": {(None, P.EPS_SHARE): 0.95}}, "fc1", None),
    ("optimizer.decay_high", {"optimizer": {(None, Z.WEIGHT_DECAY): 5.0}}, None, START),
    (
        "optimizer.decay_share",
        {"optimizer": {(None, Z.WEIGHT_DECAY): 1.0, (None, Z.LR): 1e-3}},
        None,
        START,
    ),
    (
        "optimizer.weights_decay_away",
        {
            "optimizer": {(None, Z.WEIGHT_DECAY): 20.0, (None, Z.LR): 1e-3},
            "parameter": lambda s: {(None, P.WEIGHT_RMS): 0.1 * math.exp(-0.02 * s)},
        },
        None,
        START,
    ),
    ("optimizer.momentum_high", {"optimizer": {(None, Z.MOMENTUM): 0.999}}, None, None),
    ("optimizer.no_momentum_early", {"observations": noted("fresh_moments", step=60)}, None, EXACT),
    # collapse
    ("collapse.outputs_alike", {"activation": late({("head", A.COSINE): 0.999})}, "head", EXACT),
    ("collapse.outputs_shrink", {"activation": late({("head", A.RMS): 1e-3})}, "head", None),
    ("collapse.outputs_on_a_line", {"activation": late({("head", A.RANK): 1.05})}, "head", None),
    ("collapse.inner_rank", {"activation": late({("fc3", A.RANK): 0.5})}, "fc3", None),
    (
        "collapse.spread_falls_with_depth",
        {"activation": {(x, A.SPREAD): 0.9 * 0.4**i for i, x in enumerate(LAYERS)}},
        None,
        START,
    ),
    # what capture saw
    (
        "observed.broadcast_loss",
        {"observations": noted("broadcast_loss", confidence=0.95)},
        None,
        START,
    ),
    ("observed.identical_rows", {"observations": noted("identical_rows", "fc2")}, "fc2", START),
]


@pytest.fixture(scope="module")
def sound():
    return kit.case()


@pytest.mark.parametrize(
    ("name", "changes", "layer", "onset"), FAULTS, ids=[fault[0] for fault in FAULTS]
)
def test_finding_holds_where_its_fault_is_and_not_where_it_is_not(
    name, changes, layer, onset, sound
):
    found, where, when = kit.grade(name, kit.case(**changes))
    assert found is not None
    assert found >= 0.5
    if layer is not None:
        assert where == layer
    if onset is not None:
        assert when is not None
        assert when[0] - 1 <= onset[0] <= when[1] + 1
        assert when[1] - when[0] <= 6
    usual, _, _ = kit.grade(name, sound)
    assert usual is None or usual < 0.5
    assert usual is None or found - usual >= 0.3


def test_every_direct_fault_finding_is_tried():
    """Those that need another structure or another loss stand in test_structures.py."""
    tried = {fault[0] for fault in FAULTS}
    names = [n for n, e in kit.registered().items() if not e.is_context]
    direct = [n for n in names if not n.startswith(("specialist.", "observed."))]
    assert len([n for n in direct if n in tried]) >= 80
