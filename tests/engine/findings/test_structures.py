# SPDX-License-Identifier: MIT
"""Findings that need another structure, objective or number format than a chain under Adam."""

from __future__ import annotations

import math

import findings_kit as kit
import pytest

from neuraldbg.schema.facts import (
    ActivationStat,
    GradState,
    LedgerFacts,
    Observation,
    OptimizerStat,
    ParameterStat,
)
from neuraldbg.schema.run import INPUT, LayerInfo, LayerRole, OptimizerInfo
from neuraldbg.testing import make_run

A, P, Z = ActivationStat, ParameterStat, OptimizerStat


def grade(name, one):
    return kit.grade(name, one)[0]


def told(name, **figures):
    """Give the audit's note of what the main loss is."""
    words = {"name": name, "reduction": "mean"}
    note = Observation("loss_function", 0, "head", {"terms": 1.0, "factor": 1.0, **figures}, words)
    return lambda step: [note] if step == 0 else []


def graded_of(note):
    """Return what `is.graph` says of a run whose audit made this observation."""
    return grade("is.graph", kit.case(observations=lambda step: [note] if step == 0 else []))


def test_relations_that_the_audit_saw_make_a_graph_whatever_layers_are_called():
    assert graded_of(Observation("message_passing", 0, None, {"hops": 4.0, "nodes": 50.0})) == 1.0
    assert graded_of(Observation("attention", 0, None, {"keys": 4.0})) == 0.0


def layer(path, order, parents, **fields):
    usual = {"kind": "Linear", "role": LayerRole.LINEAR, "units": 16, "fan_in": 16}
    return LayerInfo(path=path, order=order, parents=parents, **{**usual, **fields})


BOUNDED = kit.chain(
    ("a", "linear", "tanh"), ("b", "linear", "tanh"), ("c", "linear", "tanh"), ("d", "linear", None)
)
DEEP = make_run(*(f"l{i:02}" for i in range(20)))


@pytest.mark.parametrize(
    ("name", "run", "other"),
    [
        ("is.recurrent", kit.chain(("rnn", "recurrent", None), ("head", "linear", None)), kit.RUN),
        (
            "is.convolutional",
            kit.chain(("c1", "convolution", "relu"), ("c2", "convolution", "relu")),
            kit.RUN,
        ),
        ("is.embedding", kit.chain(("e", "embedding", None), ("head", "linear", None)), kit.RUN),
        (
            "is.transformer",
            kit.chain(("block.attn.qkv", "linear", None), ("head", "linear", None)),
            kit.RUN,
        ),
        ("is.mixture", make_run(*(f"experts.{i}" for i in range(4)), "head"), kit.RUN),
        (
            "is.graph",
            kit.chain(("gcn.0", "linear", "relu"), ("gcn.1", "linear", None)),
            kit.RUN,
        ),
        (
            "has.normalization",
            kit.chain(("a", "linear", None), ("n", "normalization", None), ("h", "linear", None)),
            kit.RUN,
        ),
        ("has.rectifiers", kit.RUN, BOUNDED),
        ("has.residual", make_run(layer("a", 0, (INPUT,), has_residual=True)), kit.RUN),
        ("structure.deep", DEEP, kit.RUN),
        ("structure.deep_and_plain", DEEP, kit.RUN),
        (
            "activations.bounded_in_series",
            kit.chain(*((f"t{i}", "linear", "tanh") for i in range(8))),
            kit.RUN,
        ),
        ("is.several_models", make_run("g", "d", models=("G", "D")), kit.RUN),
        (
            "optimizer.is_adaptive",
            kit.RUN,
            kit.RUN.model_copy(
                update={"optimizers": (OptimizerInfo(kind="SGD", groups=1, parameters=()),)}
            ),
        ),
    ],
)
def test_kind_of_a_run_is_told_from_its_structure(name, run, other):
    yes, no = grade(name, kit.case(run, 8)), grade(name, kit.case(other, 8))
    assert yes >= 0.4
    assert no < 0.2


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("is.policy_gradient", {"observations": told("log_probability")}),
        ("is.classification", {"observations": told("cross_entropy", classes=10.0)}),
        ("is.regression", {"observations": told("mse")}),
    ],
)
def test_kind_of_a_loss_is_told_by_the_audit_and_unavailable_without_it(name, changes):
    assert grade(name, kit.case(count=8, **changes)) == 1.0
    assert grade(name, kit.case(count=8)) is None


def test_levels_against_a_constant_answer_need_the_labels_entropy():
    known = told("cross_entropy", classes=10.0, label_entropy=2.3, targets=256.0)
    chance = kit.case(loss=lambda s: 2.3 + 0.01 * math.sin(s), observations=known)
    worse = kit.case(loss=lambda s: 6.0 + 0.01 * math.sin(s), observations=known)
    high = kit.case(loss=lambda s: 40 * math.exp(-s / 20), observations=known)
    assert grade("loss.at_chance", chance) == 1.0
    assert grade("loss.worse_than_chance", worse) == 1.0
    assert grade("loss.worse_than_chance", chance) == 0.0
    assert grade("loss.starts_high", high) > 0.9
    assert grade("loss.at_chance", kit.case()) is None


def test_loss_below_zero_counts_only_where_it_cannot_be():
    falls = {"loss": lambda s: 1 - 0.1 * s}
    assert grade("loss.below_zero", kit.case(**falls, observations=told("cross_entropy"))) == 1.0
    assert grade("loss.below_zero", kit.case(**falls)) is None


def test_saturation_of_bounded_activations_is_graded_with_layer_and_onset():
    always = kit.case(BOUNDED, activation={("b", A.FLAT_SHARE): 0.95})
    late = kit.case(BOUNDED, activation=lambda s: {("b", A.FLAT_SHARE): 0.95 if s >= 60 else 0.05})
    assert kit.grade("activations.saturated_at_start", always)[:2] == (1.0, "b")
    assert grade("activations.saturated_at_start", late) == 0.0
    assert kit.grade("activations.saturated", late) == (1.0, "b", (60, 60))
    assert kit.grade("activations.saturation_grows", late)[1] == "b"
    assert grade("activations.saturated", kit.case()) is None


def test_initial_scales_are_compared_with_the_usual_ones():
    def scaled(**scales):
        parameters = tuple(
            p.model_copy(update={"initial_rms": scales.get(p.layer, scales.get("every", 0.2))})
            for p in kit.RUN.parameters
        )
        return kit.case(kit.RUN.model_copy(update={"parameters": parameters}), 8)

    assert kit.grade("init.large", scaled(fc2=20.0))[:2] == (1.0, "fc2")
    assert grade("init.small", scaled(every=1e-4)) == 1.0
    assert kit.grade("init.one_small", scaled(fc3=1e-5))[:2] == (1.0, "fc3")
    for name in ("init.large", "init.small", "init.one_small"):
        assert grade(name, scaled()) == 0.0


def test_memory_of_recurrent_layers_is_what_capture_measured():
    def measured(share):
        note = Observation("recurrent_gradient", 0, "rnn", {"early_late_ratio": share})
        return kit.case(count=8, observations=lambda s: [note] if s == 0 else [])

    assert kit.grade("recurrent.forgets", measured(1e-8)) == (1.0, "rnn", (0, 0))
    assert grade("recurrent.forgets", measured(0.5)) == 0.0
    assert grade("recurrent.explodes", measured(1e8)) == 1.0
    assert grade("recurrent.forgets", kit.case(count=8)) is None


@pytest.mark.parametrize("phase", ["forward", "loss", "backward", "optimizer"])
def test_birth_of_nan_counts_for_the_phase_that_bore_it(phase):
    note = Observation(
        "nonfinite_birth", 60, "fc2", {"confidence": 0.9}, {"phase": phase, "operation": "log"}
    )
    one = kit.case(
        loss=lambda s: math.nan if s >= 60 else kit.learns(s),
        observations=lambda s: [note] if s == 60 else [],
    )
    for other in ("forward", "loss", "backward", "optimizer"):
        assert grade(f"numerics.born_in_{other}", one) == (0.9 if other == phase else 0.0)


def test_nan_that_enters_is_born_at_the_input():
    note = Observation("nonfinite_input", 60, None, {"count": 1.0}, {"value": "nan"})
    broken = {"loss": lambda s: math.nan if s >= 60 else kit.learns(s)}
    entered = kit.case(observations=lambda s: [note] if s == 60 else [], **broken)
    assert grade("numerics.born_at_input", entered) == 1.0
    assert grade("numerics.born_at_input", kit.case(**broken)) == 0.0


def test_half_precision_findings_are_unavailable_in_full_precision():
    half = kit.RUN.model_copy(
        update={
            "parameters": tuple(
                p.model_copy(update={"dtype": "float16"}) for p in kit.RUN.parameters
            )
        }
    )
    zeros = {"parameter": {(None, P.GRAD_ZERO_SHARE): 0.9}}
    assert grade("numerics.half_precision", kit.case(half, 30)) == 1.0
    assert grade("numerics.half_zeros", kit.case(half, 30, **zeros)) == 1.0
    assert grade("numerics.half_zeros", kit.case(count=30, **zeros)) is None
    near = {"activation": {("fc2", A.MAX): 6e4}}
    assert kit.grade("numerics.near_half_limit", kit.case(half, 30, **near))[:2] == (1.0, "fc2")
    assert grade("numerics.near_half_limit", kit.case(count=30, **near)) is None
    assert grade("optimizer.eps_tiny", kit.case(half, 30)) == 1.0
    assert grade("optimizer.eps_tiny", kit.case(count=30)) == 0.0


def test_idle_experts_starve():
    run = make_run(*(f"moe.experts.{i}" for i in range(4)), "head")
    idle = {(f"moe.experts.{i}", A.CALLS): 0.0 for i in (1, 2, 3)}
    without = {(f"moe.experts.{i}.weight", P.GRAD_STATE): float(GradState.NONE) for i in (1, 2, 3)}
    starved = kit.case(run, activation=idle, parameter=without)
    assert kit.grade("collapse.experts_starve", starved)[:2] == (1.0, "moe")
    assert grade("collapse.experts_starve", kit.case(run)) == 0.0
    assert grade("collapse.experts_starve", kit.case()) is None


def test_experts_of_thinned_steps_are_judged_by_those_that_were_measured():
    run = make_run(*(f"moe.experts.{i}" for i in range(4)), "head")

    def thinned(step, **of_experts):
        """Measure the first 80 steps only, and there the given figures of the given experts."""
        if step >= 80:
            return {(None, A(stat)): math.nan for stat in A}
        return {(f"moe.experts.{i}", A.CALLS): 0.0 for i in of_experts["idle"](step)}

    def gradients(step):
        return {(None, P(stat)): math.nan for stat in P} if step >= 80 else {}

    def share(idle):
        return grade(
            "collapse.experts_starve",
            kit.case(run, activation=lambda step: thinned(step, idle=idle), parameter=gradients),
        )

    assert share(lambda step: ()) == 0.0
    assert share(lambda step: (step % 4,)) == 0.0
    assert share(lambda step: (1, 2, 3)) == 1.0


def test_expert_that_is_chosen_now_and_then_does_not_starve():
    run = make_run(*(f"moe.experts.{i}" for i in range(4)), "head")

    def chosen(step):
        names = [f"moe.experts.{i}.weight" for i in range(4) if i != step % 4]
        return {(name, P.GRAD_STATE): float(GradState.NONE) for name in names}

    assert grade("collapse.experts_starve", kit.case(run, parameter=chosen)) == 0.0


def test_one_hot_attention_and_queries_that_grow():
    run = kit.chain(
        ("q_proj", "linear", None), ("attn", "activation", "softmax"), ("head", "linear", None)
    )
    one_hot = kit.case(run, activation={("attn", A.ROW_MAX): 0.999})
    grown = kit.case(run, activation=lambda s: {("q_proj", A.RMS): 20.0 if s >= 60 else 1.0})
    assert kit.grade("collapse.softmax_one_hot", one_hot)[:2] == (1.0, "attn")
    assert kit.grade("collapse.queries_grow", grown)[:2] == (1.0, "q_proj")
    sound = kit.case(run, activation={("attn", A.ROW_MAX): 0.4})
    assert grade("collapse.softmax_one_hot", sound) == 0.0
    assert grade("collapse.queries_grow", sound) == 0.0


def test_code_that_equals_its_prior():
    code = layer("code", 0, (INPUT,), is_output=True)
    run = make_run(code, layer("decode", 1, ("code",), is_output=True))
    flat = {("code", A.RMS): 0.05, ("code", A.SPREAD): 0.5, ("decode", A.INPUT_RMS): 1.0}
    assert kit.grade("collapse.code_is_prior", kit.case(run, activation=flat))[:2] == (1.0, "code")
    assert grade("is.autoencoding", kit.case(run, 8)) == 1.0
    assert grade("collapse.code_is_prior", kit.case(run)) is None


def pair(**cells):
    """Return the case of a generator and a judge that ends in one unit."""
    made = [layer("G.a", 0, (INPUT,), model="G"), layer("G.b", 1, ("G.a",), model="G")]
    judged = [
        layer("D.a", 2, ("G.b",), model="D"),
        layer("D.b", 3, ("D.a",), model="D", units=1, is_output=True),
    ]
    return kit.case(make_run(*made, *judged, models=("G", "D")), **cells)


def test_generator_and_judge():
    alike = pair(activation=lambda s: {("G.b", A.SPREAD): 0.8 if s < 60 else 0.01})
    certain = pair(activation=lambda s: {("D.b", A.RMS): 0.5 if s < 60 else 20.0})
    starved = pair(
        parameter=lambda s: {
            (f"G.{x}.weight", P.GRAD_NORM): 0.1 if s < 60 else 1e-5 for x in ("a", "b")
        }
    )
    assert grade("is.gan", pair()) == 1.0
    assert kit.grade("collapse.generator_alike", alike) == (1.0, "G.b", (60, 60))
    assert kit.grade("collapse.judge_certain", certain) == (1.0, "D.b", (60, 60))
    assert grade("collapse.generator_starves", starved) == 1.0
    for name in ("generator_alike", "judge_certain", "generator_starves"):
        assert grade(f"collapse.{name}", pair()) == 0.0
        assert grade(f"collapse.{name}", kit.case()) is None


def test_certain_policy_and_outputs_that_chase_their_targets():
    certain = kit.case(observations=told("log_probability"), activation={("head", A.RMS): 30.0})
    assert kit.grade("collapse.policy_certain", certain)[:2] == (1.0, "head")
    chased = kit.case(
        loss=lambda s: 1.03**s,
        activation=lambda s: {("head", A.RMS): 1.05**s},
        ledger=LedgerFacts(forwards=1, eval_forwards=1, backwards=1, steps=1, batch_size=32),
    )
    assert grade("collapse.outputs_chase_targets", chased) == 1.0
    assert grade("collapse.outputs_chase_targets", kit.case()) == 0.0


def test_overshoot_is_read_from_plain_gradient_steps_alone():
    """Each gradient is the last one reversed and grown by half: lr times sharpness is 2.5."""
    sgd = OptimizerInfo(kind="SGD", groups=1, parameters=kit.RUN.optimizers[0].parameters)
    run = kit.RUN.model_copy(update={"optimizers": (sgd,)})

    def swings(step):
        return {(None, P.GRAD_NORM): 0.1 * 1.5**step, (None, P.GRAD_COSINE): -1.0}

    assert grade("updates.overshoot", kit.case(run, 12, loss=1.0, parameter=swings)) > 0.9
    assert grade("updates.overshoot", kit.case(run, 12)) < 0.1
    assert grade("updates.overshoot", kit.case(count=12, loss=1.0, parameter=swings)) is None


def test_parameters_in_no_optimizer():
    owned = kit.RUN.optimizers[0].parameters[1:]
    run = kit.RUN.model_copy(
        update={"optimizers": (OptimizerInfo(kind="Adam", groups=1, parameters=owned),)}
    )
    found, where, _ = kit.grade("updates.not_owned", kit.case(run, 30))
    assert (found >= 0.5, where) == (True, "fc1")
    assert grade("updates.not_owned", kit.case(count=30)) == 0.0


def test_schedule_that_never_reaches_its_peak():
    adam = OptimizerInfo(
        kind="Adam",
        groups=1,
        parameters=kit.RUN.optimizers[0].parameters,
        options={"max_lr": 1.0},
    )
    run = kit.RUN.model_copy(update={"optimizers": (adam,)})
    assert grade("lr.peak_not_reached", kit.case(run, 30)) == 1.0
    assert grade("lr.peak_not_reached", kit.case(count=30)) is None


def test_residual_stream_that_grows_and_first_steps_that_are_full():
    paths = [f"block.{i}" for i in range(6)]
    run = make_run(
        *(
            layer(path, i, (paths[i - 1] if i else INPUT,), has_residual=True)
            for i, path in enumerate(paths)
        )
    )
    grows = {(path, A.INPUT_RMS): 3.0**i for i, path in enumerate(paths)}
    assert grade("activations.residual_grows", kit.case(run, 30, activation=grows)) == 1.0
    assert grade("activations.residual_grows", kit.case(run, 30)) == 0.0
    warm = kit.case(optimizer=lambda s: {(None, Z.LR): 1e-3 * min(1, (s + 1) / 40)})
    assert (grade("lr.warms_up", warm), grade("lr.full_at_start", warm)) == (1.0, 0.0)
    assert (grade("lr.warms_up", kit.case()), grade("lr.full_at_start", kit.case())) == (0.0, 1.0)


def test_attention_that_audits_saw_become_one_hot():
    def looks(sharp):
        def at(step):
            if step % 30:
                return []
            certain = 0.999 if step >= sharp else 0.3
            figures = {"certain": certain, "keys": 16.0, "entropy_share": 1 - certain}
            return [Observation("attention", step, "head", figures)]

        return kit.case(observations=at)

    assert kit.grade("collapse.attention_sharp", looks(60)) == (1.0, "head", (31, 57))
    assert grade("collapse.attention_sharp", looks(10_000)) == 0.0
    assert grade("collapse.attention_sharp", kit.case()) is None


def test_evaluation_that_was_better_once():
    def evaluated(values):
        return kit.case(metrics=lambda s: {"old_accuracy": values[s // 10]} if s % 10 == 0 else {})

    turned = evaluated([0.5, 0.8, 0.9, 0.9, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2])
    assert kit.grade("loss.evaluation_turns_bad", turned) == (1.0, None, (21, 29))
    sound = evaluated([0.5 + 0.03 * i for i in range(12)])
    assert grade("loss.evaluation_turns_bad", sound) == 0.0
    assert grade("loss.evaluation_turns_bad", kit.case()) is None
