# SPDX-License-Identifier: MIT
"""Causes told apart from their neighbours by where the symptom came from."""

from __future__ import annotations

import pytest
from traces import causes, falling, flat, linear, record

from neuraldbg.reasoning import reason
from neuraldbg.reasoning.causes.residual_scale_growth import branch_ratios
from neuraldbg.reasoning.view import CaseView
from neuraldbg.schema.facts import (
    ActivationStat,
    GradState,
    InputStat,
    LedgerFacts,
    Observation,
    ParameterStat,
)
from neuraldbg.schema.run import (
    INPUT,
    InputInfo,
    LayerInfo,
    LayerRole,
    OptimizerInfo,
    ParameterInfo,
)
from neuraldbg.testing import make_run


def matrix(name, shape):
    return ParameterInfo(
        name=name,
        layer=name.rpartition(".")[0],
        shape=shape,
        dtype="float32",
        is_trainable=True,
        initial_rms=0.3,
    )


def once(note):
    return lambda step: [note] if step == 0 else []


PAIR = make_run(
    layers=(
        linear("G.out", 0, INPUT, model="G", units=2, is_output=True),
        linear("D.out", 1, INPUT, model="D", units=1, is_output=True),
    ),
    parameters=(matrix("G.out.weight", (2, 4)), matrix("D.out.weight", (1, 2))),
    inputs=(InputInfo(name="D:0", model="D", shape=(64, 2), dtype="float32"),),
    models=("G", "D"),
)


@pytest.mark.parametrize(("made", "real", "is_told"), [(0.25, 0.95, True), (0.8, 0.95, False)])
def test_generator_with_a_fraction_of_the_spread_of_real_samples_has_collapsed(made, real, is_told):
    """Real samples are shown on every third step; on the others only generated ones."""
    trace = record(
        PAIR,
        loss=flat,
        activation={("G.out", ActivationStat.SPREAD): made, ("G.out", ActivationStat.COSINE): 0.5},
        inputs=lambda step: {("D:0", InputStat.SAMPLE_SPREAD): real if step % 3 == 0 else made},
    )
    assert (causes(trace)[:1] == ["mode_collapse"]) is is_told


def test_generator_as_diverse_as_all_that_the_discriminator_sees_is_healthy():
    trace = record(
        PAIR,
        loss=flat,
        activation={("G.out", ActivationStat.SPREAD): 0.3, ("G.out", ActivationStat.COSINE): 0.5},
        inputs={("D:0", InputStat.SAMPLE_SPREAD): 0.31},
    )
    assert causes(trace) == []


MAXIMISED = OptimizerInfo(
    kind="SGD", groups=1, parameters=("a.weight",), options={"maximize": True, "lr": 0.1}
)


@pytest.mark.parametrize(
    ("loss", "is_told"), [(lambda step: 0.5 + step / 300, True), (lambda step: 0.5, False)]
)
def test_unrecognised_loss_that_is_maximised_and_grows_has_the_wrong_sign(loss, is_told):
    run = make_run(
        layers=(linear("a", 0, INPUT, is_output=True),),
        parameters=(matrix("a.weight", (4, 4)),),
        optimizers=(MAXIMISED,),
    )
    assert ("wrong_loss_sign" in causes(record(run, loss=loss))) is is_told


@pytest.mark.parametrize(
    ("name", "end", "is_told"),
    [("bce", -1e9, True), ("bce", -200.0, False), ("mean", -1e9, False)],
)
def test_bounded_loss_that_fell_by_orders_of_magnitude_and_stopped_there_has_a_wrong_sign(
    name, end, is_told
):
    """By the middle of the run the overflow has stopped the weights: nothing falls any more."""
    run = make_run(
        layers=(linear("a", 0, INPUT, is_output=True),),
        parameters=(matrix("a.weight", (4, 4)),),
    )
    note = Observation("loss_function", 0, "a", {"terms": 2.0}, {"name": name})
    trace = record(run, loss=lambda s: 40.0 if s < 10 else end, observations=once(note))
    assert ("wrong_loss_sign" in causes(trace)) is is_told


@pytest.mark.parametrize(
    ("late", "name", "is_told"), [(1e3, "mse", True), (3e3, "mse", False), (1e3, "l1", False)]
)
def test_fall_of_a_squared_error_that_is_all_outputs_is_no_learning_on_raw_inputs(
    late, name, is_told
):
    """The loss falls from 1e10 to 1e6: learning, unless it is the square of the outputs still."""
    run = make_run(
        layers=(linear("a", 0, INPUT, is_output=True),),
        parameters=(matrix("a.weight", (1, 4)),),
        inputs=(InputInfo(name=":0", model="", shape=(64, 4), dtype="float32"),),
    )
    size = lambda s: 1e5 if s < 10 else late  # noqa: E731
    note = Observation("loss_function", 0, "a", {"terms": 1.0}, {"name": name})
    trace = record(
        run,
        loss=lambda s: 1e10 if s < 10 else 1e6,
        noise=0.0,
        observations=once(note),
        activation=lambda s: {
            ("a", ActivationStat.INPUT_RMS): 1e7,
            ("a", ActivationStat.RMS): size(s),
        },
    )
    assert ("unnormalized_input" in causes(trace)) is is_told


def test_schedule_that_capture_found_out_of_range_comes_before_the_nan_it_makes():
    run = make_run(
        layers=(linear("a", 0, INPUT, is_output=True),),
        parameters=(matrix("a.weight", (4, 4)),),
        inputs=(InputInfo(name=":0", model="", shape=(64, 4), dtype="float32"),),
    )
    note = Observation(
        "nonfinite_input",
        0,
        None,
        {"count": 8.0, "size": 256.0},
        {
            "name": ":0",
            "value": "nan",
            "argument": "8 nan of 256 values; `kept` has 2 of 20 values outside (0, 1]",
            "cause": "noise_schedule_invalid",
        },
    )
    trace = record(
        run,
        loss=lambda _step: float("nan"),
        observations=once(note),
        inputs={(":0", InputStat.NAN): 1.0},
    )
    assert causes(trace)[0] == "noise_schedule_invalid"
    assert "`kept` has 2 of 20 values" in str(reason(trace)[0])


def test_float16_layers_with_gradients_of_exact_zero_underflow():
    run = make_run(
        layers=(linear("a", 0, INPUT, is_output=True),),
        parameters=(matrix("a.weight", (4, 4)),),
        optimizers=(OptimizerInfo(kind="SGD", groups=1, parameters=("a.weight",)),),
    )
    note = Observation("float16_outputs", 0, "a", {"modules": 1.0})
    zero = {("a.weight", ParameterStat.GRAD_STATE): float(GradState.ZERO)}
    assert causes(record(run, loss=flat, observations=once(note), parameter=zero))[0] == (
        "half_precision_underflow"
    )
    assert "half_precision_underflow" not in causes(record(run, loss=flat, parameter=zero))


def small_steps(total):
    ledger = LedgerFacts(
        forwards=1, backwards=1, steps=1, clips=1, clip_max_norm=1.0, clip_total_norm=total
    )
    run = make_run(
        layers=(linear("a", 0, INPUT, is_output=True),),
        parameters=(matrix("a.weight", (4, 4)),),
        optimizers=(OptimizerInfo(kind="SGD", groups=1, parameters=("a.weight",)),),
    )
    return record(
        run,
        loss=flat,
        ledger=ledger,
        parameter={
            ("a.weight", ParameterStat.UPDATE_RMS): 1e-6,
            ("a.weight", ParameterStat.WEIGHT_RMS): 0.3,
            ("a.weight", ParameterStat.GRAD_NORM): total,
        },
    )


def test_steps_that_clipping_makes_small_speak_less_of_the_lr():
    by_lr = {h.cause: h.confidence for h in reason(small_steps(2.0))}
    by_clip = {h.cause: h.confidence for h in reason(small_steps(1e6))}
    assert by_clip["lr_too_low"] < by_lr["lr_too_low"]


@pytest.mark.parametrize(
    ("ratio", "loss", "is_told"), [(-1.0, flat, True), (2.0, flat, True), (2.0, falling, False)]
)
def test_wrong_custom_gradient_counts_where_the_run_does_not_learn(ratio, loss, is_told):
    run = make_run(
        layers=(linear("a", 0, INPUT, is_output=True),), parameters=(matrix("a.weight", (4, 4)),)
    )
    figures = {"error": 1.0, "ratio": ratio, "argument": 0.0}
    words = {"cause": "custom_backward_wrong", "function": "Wave"}
    note = Observation("custom_gradient", 0, "a", figures, words)
    trace = record(run, loss=loss, observations=once(note))
    assert (causes(trace)[:1] == ["custom_backward_wrong"]) is is_told


def attention_notes(certain):
    def notes(step):
        if step & (step - 1):
            return []
        sharp = certain(step)
        figures = {"keys": 12.0, "certain": sharp, "entropy_share": 1 - sharp, "logit_range": 3.0}
        return [Observation("attention", step, "a", figures)]

    return notes


ATTENDING = make_run(
    layers=(linear("a", 0, INPUT, is_output=True),), parameters=(matrix("a.weight", (4, 4)),)
)


@pytest.mark.parametrize(
    ("certain", "loss", "onset"),
    [
        (lambda step: 0.1 if step < 8 else 0.999, flat, 8),
        (lambda _step: 0.999, flat, 0),
        (lambda _step: 0.999, falling, None),
        (lambda _step: 0.4, flat, None),
    ],
)
def test_attention_that_is_one_hot_in_a_run_that_does_not_learn_has_collapsed(certain, loss, onset):
    found = reason(record(ATTENDING, loss=loss, observations=attention_notes(certain)))
    told = [h.onset for h in found if h.cause == "attention_collapse"]
    assert told == ([] if onset is None else [onset])


@pytest.mark.parametrize(
    ("is_trained", "size", "is_told"), [(1, 0.2, 1), (0, 0.2, 0), (1, 0.01, 0)]
)
def test_trained_weights_that_the_first_steps_run_over_are_forgotten(is_trained, size, is_told):
    run = make_run(
        layers=(linear("a", 0, INPUT, is_output=True),),
        parameters=(matrix("a.weight", (4, 4)),),
        optimizers=(OptimizerInfo(kind="SGD", groups=1, parameters=("a.weight",)),),
    )
    note = Observation("pretrained", 0, None, {"layers": 4.0, "trained": 4.0})
    trace = record(
        run,
        loss=falling,
        observations=once(note) if is_trained else (),
        parameter={
            ("a.weight", ParameterStat.UPDATE_RMS): 0.3 * size,
            ("a.weight", ParameterStat.WEIGHT_RMS): 0.3,
        },
    )
    assert ("catastrophic_forgetting" in causes(trace)) == bool(is_told)


def jump_at_90(after):
    """Return a loss that jumps at step 90 and goes on as `after` says, step by step."""
    return lambda step: 0.1 if step < 90 else after(step - 90)


@pytest.mark.parametrize(
    ("after", "is_told"),
    [(lambda n: 2.0 if n == 0 else 9.0, True), (lambda n: max(2.0 * 0.9**n, 0.5), False)],
)
def test_stale_moment_makes_the_next_losses_worse_and_another_batch_does_not(after, is_told):
    run = make_run(
        layers=(linear("a", 0, INPUT, is_output=True),),
        parameters=(matrix("a.weight", (4, 4)),),
        optimizers=(OptimizerInfo(kind="Adam", groups=1, parameters=("a.weight",)),),
    )
    trace = record(
        run,
        loss=jump_at_90(after),
        parameter=lambda step: {("a.weight", ParameterStat.GRAD_NORM): 40.0 if step >= 90 else 0.1},
    )
    assert ("stale_second_moment" in causes(trace)) is is_told


def test_nodes_that_point_one_way_with_depth_are_oversmoothed_whatever_their_lengths():
    paths = [f"gcn.{i}" for i in range(8)]
    layers = [
        linear(path, i, paths[i - 1] if i else INPUT, is_output=i == 7)
        for i, path in enumerate(paths)
    ]
    trace = record(
        make_run(
            layers=tuple(layers), parameters=tuple(matrix(f"{p}.weight", (4, 4)) for p in paths)
        ),
        loss=flat,
        activation={
            **{(p, ActivationStat.SPREAD): 0.5 if not i else 0.2 for i, p in enumerate(paths)},
            **{(p, ActivationStat.COSINE): 0.1 if not i else 0.995 for i, p in enumerate(paths)},
            **{(p, ActivationStat.RANK): 3.0 if not i else 1.02 for i, p in enumerate(paths)},
        },
    )
    assert causes(trace)[0] == "oversmoothing"
    assert "one direction" in str(reason(trace)[0])


@pytest.mark.parametrize(("growth", "is_told"), [(2e5, True), (1.5, False)])
def test_recurrence_whose_measured_gradient_grows_over_time_is_initialised_too_large(
    growth, is_told
):
    """A gain of 1.25 per time step, which alone says nothing: sixty steps of it do."""
    weight = ParameterInfo(
        name="rnn.weight_hh_l0",
        layer="rnn",
        shape=(40, 40),
        dtype="float32",
        is_trainable=True,
        initial_rms=1.25 / 40**0.5,
    )
    rnn = LayerInfo(path="rnn", kind="RNN", role=LayerRole.RECURRENT, order=0, parents=(INPUT,))
    figures = {"time_steps": 60.0, "early_late_ratio": growth, "factor_per_step": 1.25}
    trace = record(
        make_run(layers=(rnn,), parameters=(weight,)),
        loss=lambda step: 1e6 + step,
        observations=once(Observation("recurrent_gradient", 0, "rnn", figures)),
        parameter={("rnn.weight_hh_l0", ParameterStat.GRAD_NORM): 1e7},
    )
    assert ("init_too_large" in causes(trace)) is is_told


def test_experts_that_a_router_could_choose_and_never_chose_have_collapsed():
    experts = [linear(f"mix.experts.{i}", i + 1 if i == 2 else -1, "mix.door") for i in range(4)]
    layers = (linear("mix.door", 0, INPUT, units=4), *experts, linear("out", 5, is_output=True))
    run = make_run(
        layers=layers, parameters=tuple(matrix(f"{x.path}.weight", (4, 4)) for x in layers)
    )
    idle = [x.path for x in experts if x.order < 0]
    trace = record(
        run,
        loss=falling,
        activation={(path, ActivationStat.CALLS): 0.0 for path in idle},
        parameter={
            (f"{path}.weight", ParameterStat.GRAD_STATE): float(GradState.NONE) for path in idle
        },
    )
    assert causes(trace)[0] == "router_collapse"


@pytest.mark.parametrize(
    ("values", "gap", "loss", "is_told"),
    [(2.0, 0.7, flat, True), (64.0, 0.7, flat, False), (2.0, 0.7, falling, False)],
)
def test_statistics_of_a_few_values_are_told_where_the_run_fails(values, gap, loss, is_told):
    figures = {"values": values, "training": 1.0, "mean_gap": gap, "variance_gap": 0.5}

    def notes(step):
        return [] if step & (step - 1) else [Observation("normalization", step, "a", figures)]

    trace = record(ATTENDING, loss=loss, observations=notes)
    assert ("single_sample_statistics" in causes(trace)) is is_told


def test_branches_are_measured_against_the_stream_they_are_added_to():
    """Blocks of two layers: `up` reads the stream, `down` ends the branch."""
    layers, stream = [linear("enter", 0, INPUT)], ("enter",)
    for i in range(3):
        up = linear(f"{i}.up", 2 * i + 1, *stream, has_residual=True)
        layers += [up, linear(f"{i}.down", 2 * i + 2, up.path)]
        stream = (*stream, f"{i}.down")
    run = make_run(
        layers=tuple(layers), parameters=tuple(matrix(f"{x.path}.weight", (4, 4)) for x in layers)
    )
    trace = record(
        run,
        loss=flat,
        activation={
            **{(f"{i}.up", ActivationStat.INPUT_RMS): 2.0 for i in range(3)},
            **{(f"{i}.down", ActivationStat.RMS): 3.0 for i in range(3)},
        },
    )
    assert branch_ratios(CaseView(trace)) == pytest.approx([1.5, 1.5])
