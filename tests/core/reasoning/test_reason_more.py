# SPDX-License-Identifier: MIT
"""Causes with evidence of their own: adapters, routers, policies, schedules, second moments."""

from __future__ import annotations

import math

import pytest
from traces import STEPS, causes, falling, flat, linear, record

from neuraldbg.reasoning import reason
from neuraldbg.schema.facts import (
    ActivationStat,
    GradState,
    InputStat,
    LedgerFacts,
    Observation,
    OptimizerStat,
    ParameterStat,
)
from neuraldbg.schema.run import INPUT, InputInfo, LayerInfo, LayerRole, OptimizerInfo
from neuraldbg.testing import make_run


def once(note):
    return lambda step: [note] if step == 0 else []


def adapted(zero_rms):
    run = make_run("base", "down", "up", "head")
    frozen = {"base.weight", "head.weight"}
    parameters = tuple(
        p.model_copy(
            update={
                "is_trainable": p.name not in frozen,
                "initial_rms": zero_rms if p.name == "up.weight" else p.initial_rms,
            }
        )
        for p in run.parameters
    )
    return run.model_copy(update={"parameters": parameters})


def test_adapter_that_drowns_its_base_is_told_from_a_frozen_layer():
    leap = lambda s: 1.0 if s == 0 else 3.0  # noqa: E731
    note = Observation("frozen_parameters", 0, "base", {}, {"cause": "frozen_parameters"})
    found = reason(record(adapted(0.0), loss=leap, observations=once(note)))[0]
    assert (found.cause, found.layer, found.onset) == ("adapter_scale_too_high", "up", 0)
    plain = causes(record(adapted(0.1), loss=flat, observations=once(note)))
    assert plain[0] == "frozen_parameters"


def test_adapter_whose_first_updates_end_in_nan_is_told_from_the_few_losses_before():
    losses = {0: 1.0, 1: 1e9}
    trace = record(adapted(0.0), loss=lambda s: losses.get(s, float("nan")), noise=0.0)
    assert causes(trace)[0] == "adapter_scale_too_high"


def experts(count=6):
    members = [linear(f"moe.experts.{i}", i + 1, "moe.router") for i in range(count)]
    head = linear("head", count + 1, *(m.path for m in members), is_output=True)
    return make_run(linear("moe.router", 0, INPUT), *members, head)


def calls(idle, until):
    """Calls of experts: all within the first steps, then only those not in `idle`."""

    def cells(step):
        off = idle if step >= until else ()
        return {(f"moe.experts.{i}", ActivationStat.CALLS): 0.0 for i in off}

    return cells


def test_router_that_feeds_two_of_six_experts_has_collapsed():
    trace = record(experts(), loss=falling, activation=calls(range(2, 6), 5))
    found = reason(trace)[0]
    assert (found.cause, found.layer) == ("router_collapse", "moe.router")
    assert reason(record(experts(), loss=falling, activation=calls((5,), 5))) == []


@pytest.mark.parametrize(("late", "is_told"), [(3, True), (1, False)])
def test_router_that_had_collapsed_for_most_of_the_run_counts_unless_it_has_recovered(
    late, is_told
):
    """Four of six idle until three quarters of the run are over, then `late` of them."""

    def cells(step):
        idle = range(2, 6) if 5 <= step < 0.7 * STEPS else range(6 - late, 6)
        return {
            (f"moe.experts.{i}", ActivationStat.CALLS): 0.0 for i in (idle if step >= 5 else ())
        }

    trace = record(experts(), loss=falling, activation=cells)
    assert causes(trace) == (["router_collapse"] if is_told else [])


@pytest.mark.parametrize("units", [6, 1])
def test_branches_that_a_layer_beside_them_scores_are_experts_whatever_their_name(units):
    paths = [f"bank.units.{i}" for i in range(6)]
    head = linear("head", 8, *paths, is_output=True)
    run = make_run(
        linear("stem", 0, INPUT),
        linear("bank.pick", 1, "stem", units=units),
        *(linear(path, i + 2, "stem") for i, path in enumerate(paths)),
        head,
    )

    def cells(step):
        return {(path, ActivationStat.CALLS): 0.0 for path in (paths[2:] if step >= 5 else ())}

    found = reason(record(run, loss=falling, activation=cells))
    told = [(h.cause, h.layer) for h in found]
    assert told == ([("router_collapse", "bank.pick")] if units == 6 else [])


def test_a_layer_that_did_not_run_is_not_cut_off():
    note = Observation("gradient_absent", 0, "moe.experts.5")
    none = {("moe.experts.5.weight", ParameterStat.GRAD_STATE): float(GradState.NONE)}
    idle = record(
        experts(), loss=falling, observations=once(note), parameter=none, activation=calls((5,), 0)
    )
    cut = record(experts(), loss=falling, observations=once(note), parameter=none)
    assert causes(idle) == []
    assert causes(cut) == ["detached_graph"]


def policy(step_size):
    note = Observation(
        "loss_function", 0, "head", {"terms": 1.0, "factor": -1.0}, {"name": "log_probability"}
    )
    run = make_run("fc1", "head")
    return record(
        run,
        loss=falling,
        observations=once(note),
        parameter={(None, ParameterStat.UPDATE_RMS): 0.1 * step_size},
        activation=lambda s: {("head", ActivationStat.RMS): min(1.0 + 2 * s, 50.0)},
    )


def test_policy_that_is_certain_at_once_has_collapsed():
    assert causes(policy(0.2)) == ["policy_collapse"]
    assert causes(policy(0.002)) == []


@pytest.mark.parametrize(
    ("is_one_sided", "growth", "is_told"),
    [(True, 0.0, True), (False, 0.0, False), (True, 0.1, False)],
)
def test_policy_that_nothing_draws_back_is_certain_sooner(is_one_sided, growth, is_told):
    """Logits of 5 by step 10; they stay, or go on to grow as those of a policy that learns."""
    loss = Observation(
        "loss_function", 0, "head", {"terms": 1.0, "factor": -1.0}, {"name": "log_probability"}
    )
    praise = [Observation("one_sided_praise", 5, "head")]
    trace = record(
        make_run("fc1", "head"),
        loss=falling,
        observations=lambda s: [loss] if s == 0 else praise * (is_one_sided and s == 5),
        parameter={(None, ParameterStat.UPDATE_RMS): 0.02},
        activation=lambda s: {("head", ActivationStat.RMS): min(0.5 * s, 5.0) + growth * s},
    )
    assert causes(trace) == (["policy_collapse"] if is_told else [])


def cycle(max_lr):
    run = make_run("fc1", "head")
    optimizer = OptimizerInfo(
        kind="SGD",
        groups=1,
        parameters=tuple(p.name for p in run.parameters),
        options={"lr": 1e-4, "max_lr": max_lr},
    )
    return run.model_copy(update={"optimizers": (optimizer,)})


def test_one_cycle_that_never_came_near_its_peak_was_stepped_too_rarely():
    lr = {("SGD", OptimizerStat.LR): 1e-4}
    slow = lambda s: 1.4 * 0.996**s  # noqa: E731
    assert causes(record(cycle(0.05), loss=slow, optimizer=lr))[0] == "scheduler_misstepped"
    assert "scheduler_misstepped" not in causes(record(cycle(1e-4), loss=slow, optimizer=lr))


def surprise(size):
    return lambda s: {(None, ParameterStat.GRAD_NORM): size if s in {80, 81} else 0.01}


def test_gradient_that_the_second_moment_had_forgotten():
    lost = lambda s: falling(s) if s < 81 else 1.5  # noqa: E731
    run = make_run("fc1", "head")
    found = reason(record(run, loss=lost, parameter=surprise(1.0)))[0]
    assert found.cause == "stale_second_moment"
    assert found.onset == 80
    assert "stale_second_moment" not in causes(record(run, loss=lost, parameter=surprise(0.03)))


@pytest.mark.parametrize("is_made_good", [True, False])
def test_jump_of_a_density_that_is_made_good_cost_nothing(is_made_good):
    """A negative log-likelihood has no floor: its level at the start measures no jump."""

    def density(s):
        if 81 <= s < 95:
            return 4.0
        return (-1.0 if s < 81 else -2.0 if is_made_good else -0.5) + 2 * 0.9**s

    trace = record(make_run("fc1", "head"), loss=density, parameter=surprise(1.0))
    assert ("stale_second_moment" in causes(trace)) is not is_made_good


def test_twin_heads_at_the_prior_are_a_collapsed_posterior():
    run = make_run(
        linear("enc", 0, INPUT),
        linear("mean", 1, "enc", units=4, is_output=True),
        linear("log_var", 2, "enc", units=4, is_output=True),
        linear("dec", 3, "mean", "log_var", is_output=True),
    )
    quiet = {("mean", ActivationStat.RMS): 0.01, ("log_var", ActivationStat.RMS): 0.02}
    found = reason(record(run, loss=flat, activation=quiet))[0]
    assert (found.cause, found.layer) == ("posterior_collapse", "mean")
    assert "posterior_collapse" not in causes(record(run, loss=flat))
    even = {("log_var", ActivationStat.RMS): 0.02}  # one width of the noise for all samples
    assert "posterior_collapse" not in causes(record(run, loss=flat, activation=even))


def test_embeddings_that_become_one_vector_under_a_loss_of_their_own():
    run = make_run("fc1", "head")
    fall = lambda s: {  # noqa: E731
        ("head", ActivationStat.SPREAD): 0.8 if s < 20 else 0.02,
        ("head", ActivationStat.COSINE): 0.2 if s < 20 else 0.999,
    }
    found = reason(record(run, loss=falling, activation=fall))[0]
    assert (found.cause, found.layer, found.onset) == ("embedding_collapse", "head", 20)
    note = Observation("loss_function", 0, "head", {"classes": 4.0}, {"name": "cross_entropy"})
    assert causes(record(run, loss=falling, activation=fall, observations=once(note))) == []


def test_one_part_of_an_answer_may_be_alike_for_all_samples():
    """Means, widths and shares of a mixture density: the widths are those of the noise."""
    heads = [linear(name, i + 1, "body", is_output=True) for i, name in enumerate("mws")]
    run = make_run(linear("body", 0, INPUT), *heads)

    def cells(of):
        return lambda s: (
            {
                (path, stat): before if s < 20 else after
                for path in of
                for stat, before, after in (
                    (ActivationStat.SPREAD, 0.8, 0.02),
                    (ActivationStat.COSINE, 0.2, 0.999),
                )
            }
            | {(p, ActivationStat.COSINE): 0.3 for p in "mws" if p not in of}
        )

    assert causes(record(run, loss=falling, activation=cells("w"))) == []
    assert causes(record(run, loss=falling, activation=cells("mws")))[0] == "embedding_collapse"


@pytest.mark.parametrize("is_own", [True, False])
def test_views_that_are_only_drawn_together_were_close_from_the_start(is_own):
    run = make_run("fc1", "head")
    own = {"is_learned_target": 1.0} if is_own else {}
    note = Observation("loss_function", 0, "head", {"terms": 1.0, **own}, {"name": "mse"})
    fall = lambda s: {  # noqa: E731
        ("head", ActivationStat.SPREAD): 0.25 if s < 20 else 0.05,
        ("head", ActivationStat.COSINE): 0.95 if s < 20 else 0.9999,
    }
    found = causes(record(run, loss=falling, activation=fall, observations=once(note)))
    assert found == (["embedding_collapse"] if is_own else [])


@pytest.mark.parametrize("is_policy", [True, False])
def test_flat_units_of_a_policy_are_judged_by_gradients_alone(is_policy):
    name = "clipped_surrogate" if is_policy else "mse"
    note = Observation("loss_function", 0, "head", {"terms": 1.0}, {"name": name})
    tanh = LayerInfo(
        path="act",
        kind="Tanh",
        role=LayerRole.ACTIVATION,
        activation="tanh",
        order=1,
        parents=("fc1",),
    )
    run = make_run(linear("fc1", 0, INPUT), tanh, linear("head", 2, "act", is_output=True))
    flat_units = {("act", ActivationStat.FLAT_SHARE): 0.7}
    trace = record(run, loss=flat, activation=flat_units, observations=once(note))
    assert ("saturating_activations" in causes(trace)) is not is_policy


def test_depth_is_blamed_on_the_stack_and_not_on_what_leads_into_it():
    names = ["lift", *(f"blocks.{i}.lin" for i in range(20)), "out"]
    run = make_run(*names)
    norms = {
        (f"{name}.weight", ParameterStat.GRAD_NORM): 0.1 * 0.5 ** (len(names) - i)
        for i, name in enumerate(names)
    }
    found = reason(record(run, loss=flat, parameter=norms))
    depth = next(h for h in found if h.cause == "deep_without_residual")
    assert depth.layer == "blocks.0.lin"


def test_generator_whose_samples_are_one_has_lost_its_modes():
    generator = LayerInfo(
        path="G.out",
        kind="Linear",
        role=LayerRole.LINEAR,
        model="G",
        order=0,
        parents=(INPUT,),
        units=8,
    )
    judge = LayerInfo(
        path="D.out",
        kind="Linear",
        role=LayerRole.LINEAR,
        model="D",
        order=1,
        parents=("G.out",),
        units=1,
        is_output=True,
    )
    run = make_run(generator, judge, models=("G", "D"))
    one = lambda s: {("G.out", ActivationStat.SPREAD): 0.8 if s < 30 else 0.01}  # noqa: E731
    found = reason(record(run, loss=flat, activation=one))[0]
    assert (found.cause, found.layer, found.onset) == ("mode_collapse", "G.out", 30)
    assert causes(record(run, loss=flat)) == []


def test_weights_too_large_at_step_0_are_blamed_on_their_layer():
    run = make_run("fc1", "fc2", "head")
    large = tuple(
        p.model_copy(update={"initial_rms": 2.0 if p.layer == "fc2" else 0.15})
        for p in run.parameters
    )
    trace = record(
        run.model_copy(update={"parameters": large}),
        loss=flat,
        activation={("head", ActivationStat.RMS): 80.0},
    )
    found = reason(trace)[0]
    assert (found.cause, found.layer, found.onset) == ("init_too_large", "fc2", 0)


def test_weights_too_small_let_the_signal_fade():
    run = make_run("fc1", "fc2", "head")
    small = tuple(p.model_copy(update={"initial_rms": 1e-3}) for p in run.parameters)
    fade = {
        (layer, stat): value
        for i, layer in enumerate(("fc1", "fc2", "head"))
        for stat, value in (
            (ActivationStat.INPUT_RMS, 0.01**i),
            (ActivationStat.RMS, 0.01 ** (i + 1)),
        )
    }
    trace = record(run.model_copy(update={"parameters": small}), loss=flat, activation=fade)
    found = reason(trace)[0]
    assert (found.cause, str(found.failure_type), found.layer) == (
        "init_too_small",
        "vanishing_gradients",
        "fc1",
    )


def test_scaler_that_halves_for_good_has_collapsed():
    ledger = lambda s: LedgerFacts(  # noqa: E731
        forwards=1, backwards=1, skipped=1, batch_size=8, loss_scale=65536.0 * 0.5 ** min(s, 30)
    )
    assert causes(record(make_run("fc", "head"), loss=flat, ledger=ledger))[0] == (
        "loss_scale_collapse"
    )


def test_half_precision_state_without_room_for_eps():
    run = make_run("fc", "head")
    half = tuple(p.model_copy(update={"dtype": "float16"}) for p in run.parameters)
    trace = record(
        run.model_copy(update={"parameters": half}),
        loss=lambda s: math.nan if s else 1.0,
        parameter={(None, ParameterStat.WEIGHT_MAX): math.inf},
    )
    assert causes(trace)[0] == "optimizer_eps_underflow"


def test_input_without_variance_between_samples():
    same = {(":0", InputStat.SAMPLE_SPREAD): 0.0}
    assert causes(record(make_run("fc", "head"), loss=flat, inputs=same))[0] == "constant_input"


def test_noised_input_that_is_not_finite_hints_at_the_schedule():
    run = make_run("fc", "head")
    inputs = (
        InputInfo(name=":0", model="", shape=(32, 16), dtype="float32"),
        InputInfo(name=":1", model="", shape=(32,), dtype="int64"),
    )
    trace = record(
        run.model_copy(update={"inputs": inputs}),
        loss=lambda s: math.nan if s >= 3 else 1.0,
        inputs=lambda s: {(":0", InputStat.NAN): float(s >= 3)},
    )
    assert {"nan_in_input", "noise_schedule_invalid"} <= set(causes(trace)[:3])


@pytest.mark.parametrize("adaptive", [True, False])
def test_undivided_accumulation_matters_only_to_plain_optimizers(adaptive):
    run = make_run("fc", "head")
    kind = "Adam" if adaptive else "SGD"
    optimizer = run.optimizers[0].model_copy(update={"kind": kind})
    note = Observation("accumulation_unscaled", 0, None, {"backwards": 8.0})
    found = causes(
        record(
            run.model_copy(update={"optimizers": (optimizer,)}),
            loss=lambda s: 1.2 ** min(s, 60),
            observations=once(note),
        )
    )
    assert ("accumulation_unscaled" in found) is not adaptive


def recurrent(ratio, loss):
    rnn = LayerInfo(path="rnn", kind="RNN", role=LayerRole.RECURRENT, order=0, parents=(INPUT,))
    run = make_run(rnn, linear("head", 1, "rnn", is_output=True))
    figures = {"early_late_ratio": ratio, "time_steps": 60.0, "factor_per_step": 0.8}
    note = Observation("recurrent_gradient", 0, "rnn", figures)
    return record(run, loss=loss, observations=once(note))


def test_short_memory_counts_where_the_run_fails():
    found = reason(recurrent(1e-9, flat))[0]
    assert (found.cause, found.layer, found.onset) == ("recurrent_vanishing", "rnn", 0)
    assert causes(recurrent(1e-9, falling)) == []
    assert causes(recurrent(0.3, flat)) == []


@pytest.mark.parametrize("breaks", [False, True])
def test_attention_that_learned_and_broke_at_once_needed_no_warmup(breaks):
    """Steps of 2 % of the weights on a loss that hardly falls, and NaN on step 60."""
    run = make_run("attn", "head").model_copy(
        update={
            "layers": tuple(
                x.model_copy(update={"role": LayerRole.ATTENTION}) if x.path == "attn" else x
                for x in make_run("attn", "head").layers
            )
        }
    )
    trace = record(
        run,
        loss=lambda s: float("nan") if breaks and s >= 60 else 1.4,
        parameter={(None, ParameterStat.UPDATE_RMS): 0.002},
    )
    assert ("missing_warmup" in causes(trace)) is not breaks
