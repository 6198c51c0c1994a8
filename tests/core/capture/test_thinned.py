# SPDX-License-Identifier: MIT
"""Thinned steps: held back and handed on in bulk, with the same answers as one by one."""

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim import optimizer as optimizers

from neuraldbg import NeuralDbg
from neuraldbg.capture import held, lean
from neuraldbg.capture.budget import HEARD_EVERY, Budget
from neuraldbg.capture.quick import Quick
from neuraldbg.capture.sentry import Sentry
from neuraldbg.capture.usual import NORM_FAR, RARE, RECENT, Usual
from neuraldbg.schema.facts import GradState, InputStat, OptimizerStat, ParameterStat
from neuraldbg.trace.layout import LEDGER_FIELDS

FULL, EVERY, STEPS = 70, 25, 260
SPIKE, BROKEN = 183, 236
"""Steps on which something happens; neither is a full one."""


@pytest.fixture
def schedule(monkeypatch):
    """Full steps on a fixed schedule, whatever the machine does; returns a switch for bare ones."""

    def choose(budget):
        budget._due = math.inf
        return budget._begin(is_paid=budget._ordinal < FULL or budget._ordinal % EVERY == 0)

    def next_step(budget, _total, *, alarm):
        budget._ordinal += 1
        return choose(budget)

    def next_thinned(budget):
        budget._ordinal += 1
        return choose(budget)

    monkeypatch.setattr(Budget, "next_step", next_step)
    monkeypatch.setattr(Budget, "next_thinned", next_thinned)

    def skip(budget, steps):
        budget._ordinal += steps
        budget._since += steps

    monkeypatch.setattr(Budget, "skip", skip)
    monkeypatch.setattr(Budget, "stretch", property(lambda b: EVERY - b._ordinal % EVERY))
    monkeypatch.setattr(Budget, "thinned", lambda *_: None)
    monkeypatch.setattr(Budget, "alarm", lambda *_: None)
    bare = {"is": False}
    monkeypatch.setattr(
        Budget, "is_bare", property(lambda _: bare["is"], lambda *_: None), raising=False
    )
    return lambda *, is_bare: bare.update({"is": is_bare})


def train(steps=STEPS, *, faults=(SPIKE, BROKEN), record="after", ask=None):
    """Train a small network; its loss jumps at `SPIKE`, and an input breaks it at `BROKEN`."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with NeuralDbg(model) as dbg:
        for step in range(steps):
            x = torch.randn(32, 6)
            target = x.sum(1, keepdim=True)
            if step == SPIKE and SPIKE in faults:
                target = target * 300
            if step == BROKEN and BROKEN in faults:
                x[3, 2] = math.nan
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), target)
            if record == "before":
                dbg.record_loss(loss)
            loss.backward()
            optimizer.step()
            if record == "after":
                dbg.record_loss(loss)
            if ask is not None:
                ask(dbg, step)
    weights = [p.detach().clone() for p in model.parameters()]
    return dbg, weights


def told(dbg):
    """Return every event as what anybody can see of it, and every observation."""
    events = [e.model_dump(exclude={"id", "evidence"}) for e in dbg.events]
    return events, [(o.kind, o.step, o.layer, dict(o.words)) for o in dbg.trace.observations]


def norms(dbg):
    facts = dbg.trace.facts
    return facts.steps, facts.parameter[:, :, ParameterStat.GRAD_NORM]


def test_steps_in_bulk_give_what_one_by_one_gives(schedule, monkeypatch):
    schedule(is_bare=False)
    bulk, weights = train()
    monkeypatch.setattr(held, "HELD_STEPS", 1)
    single, same = train()
    assert told(bulk) == told(single)
    assert {e.step for e in bulk.events} >= {SPIKE, BROKEN}
    assert bulk.loss_history[:BROKEN] == single.loss_history[:BROKEN]
    for a, b in zip(norms(bulk), norms(single), strict=True):
        np.testing.assert_array_equal(a, b)
    assert str(bulk.explain_failure()[0]) == str(single.explain_failure()[0])
    assert all(torch.equal(a, b) or a.isnan().any() for a, b in zip(weights, same, strict=True))


def test_thinned_steps_tell_the_failure_as_steps_with_hooks_do(schedule, monkeypatch):
    schedule(is_bare=False)
    thinned, _ = train()
    monkeypatch.setattr(lean.Lean, "can_begin", lambda *_: False)
    hooked, _ = train()
    assert len(thinned.trace.facts) == len(hooked.trace.facts) == STEPS
    assert thinned.loss_history[:BROKEN] == hooked.loss_history[:BROKEN]
    np.testing.assert_array_equal(norms(thinned)[1], norms(hooked)[1])
    first, second = thinned.explain_failure()[0], hooked.explain_failure()[0]
    assert (first.cause, first.layer, first.onset) == (second.cause, second.layer, second.onset)
    assert told(thinned)[1] == told(hooked)[1]


@pytest.mark.parametrize("record", ["before", "after", "never"])
def test_bare_steps_have_every_loss_at_its_step(schedule, record):
    schedule(is_bare=True)
    bare, _ = train(faults=(), record=record)
    schedule(is_bare=False)
    heard, _ = train(faults=(), record=record)
    assert bare.trace.step_count == heard.trace.step_count == STEPS
    np.testing.assert_array_equal(bare.trace.loss.steps, np.arange(STEPS))
    np.testing.assert_array_equal(bare.trace.loss.values, heard.trace.loss.values)
    state = bare.trace.facts.parameter[:, :, ParameterStat.GRAD_STATE]
    assert np.isnan(state).all(axis=1).any(), "no step was bare"
    assert np.nanmax(state) == GradState.PRESENT
    assert bare.explain_failure() == []


def test_broken_loss_of_a_bare_step_is_found_on_that_step(schedule):
    schedule(is_bare=True)
    bare, _ = train(faults=[BROKEN])
    broken = [o for o in bare.trace.observations if o.kind.startswith("nonfinite")]
    assert broken[0].step == BROKEN
    assert bare.explain_failure()[0].onset == BROKEN


class Rooted(nn.Module):
    """Takes a root that is NaN for negative numbers; `is_hidden`: and throws such rows away."""

    def __init__(self, *, is_hidden):
        super().__init__()
        self.inner, self.head, self.is_hidden = nn.Linear(4, 8), nn.Linear(8, 1), is_hidden

    def forward(self, x):
        given = x[:, :1]
        root = (given * self.inner(x)).sqrt() if self.is_hidden else given.sqrt() * self.inner(x)
        return self.head(root.where(given > 0, 0.0) if self.is_hidden else root)


@pytest.mark.parametrize("is_hidden", [False, True])
def test_what_breaks_in_the_model_on_a_bare_step_is_placed_on_that_step(schedule, is_hidden):
    """Where the broken rows are thrown away the loss stays finite, and only gradients break."""
    schedule(is_bare=True)
    torch.manual_seed(0)
    model = Rooted(is_hidden=is_hidden)
    nn.init.zeros_(model.inner.weight)
    nn.init.ones_(model.inner.bias)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with NeuralDbg(model) as dbg:
        for step in range(STEPS):
            x = torch.rand(8, 4) + 0.1
            if step == BROKEN:
                x[2] = -x[2]
            loss = (model(x) - 1).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    births = [o for o in dbg.trace.observations if o.kind == "nonfinite_birth"]
    assert [(o.step, o.words["operation"]) for o in births[:1]] == [(BROKEN, "sqrt")]
    assert math.isfinite(dbg.loss_history[BROKEN]) is is_hidden


@pytest.mark.parametrize("is_bare", [False, True])
@pytest.mark.parametrize("later", ["nothing", "zeros"])
def test_gradients_that_are_no_longer_cleared_are_told_from_that_step_on(schedule, is_bare, later):
    """Clearing them to zeros from some step on is clearing them."""
    schedule(is_bare=is_bare)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    with NeuralDbg(model) as dbg:
        for step in range(STEPS):
            if step < SPIKE:
                optimizer.zero_grad()
            elif later == "zeros":
                optimizer.zero_grad(set_to_none=False)
            loss = (model(torch.randn(8, 6)) - 1).square().mean()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    told = [(o.step, o.kind) for o in dbg.trace.observations if o.kind == "gradients_not_cleared"]
    found = [(h.cause, h.onset) for h in dbg.explain_failure()]
    assert told == ([] if later == "zeros" else [(SPIKE, "gradients_not_cleared")])
    assert found[:1] == ([] if later == "zeros" else [("missing_zero_grad", SPIKE - 1)])


class Sign(torch.optim.Optimizer):
    """An optimizer whose groups have no lr."""

    def __init__(self, parameters):
        super().__init__(parameters, {"size": 1e-3})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(group["size"] * parameter.grad.sign())


@pytest.mark.parametrize("is_bare", [False, True])
def test_the_lr_of_a_thinned_step_is_the_one_that_a_full_step_has(schedule, is_bare):
    """The largest of the groups that hold parameters; some optimizers have none at all."""
    schedule(is_bare=is_bare)
    for make in (
        lambda p: torch.optim.SGD(
            [{"params": p[:2], "lr": 0.01}, {"params": p[2:], "lr": 0.02}, {"params": [], "lr": 9}]
        ),
        Sign,
    ):
        model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
        optimizer = make([*model.parameters()])
        with NeuralDbg(model) as dbg:
            for _ in range(STEPS):
                optimizer.zero_grad()
                loss = model(torch.randn(8, 6)).square().mean()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())
        lr = dbg.trace.facts.optimizer[:, 0, OptimizerStat.LR]
        expected = math.nan if make is Sign else 0.02
        np.testing.assert_allclose(lr, np.full(STEPS, expected), rtol=1e-6)
        assert dbg.trace.run.warnings == ()


def test_questions_see_steps_that_are_held_back(schedule):
    schedule(is_bare=False)
    seen = []

    def ask(dbg, step):
        if step > FULL:
            seen.append((len(dbg.loss_history), dbg.trace.step_count, step))

    train(STEPS, faults=(), ask=ask)
    assert all(step <= count <= step + 1 and step <= losses for losses, count, step in seen)


@pytest.mark.parametrize(("seconds", "most"), [(0.0, 1), (1e9, EVERY - 1)])
def test_steps_are_held_back_no_longer_than_agreed(schedule, monkeypatch, seconds, most):
    schedule(is_bare=False)
    sizes = []
    original = lean.Lean.hand_on

    def hand_on(self):
        sizes.append(len(self._held))
        original(self)

    monkeypatch.setattr(lean.Lean, "hand_on", hand_on)
    monkeypatch.setattr(held, "HELD_S", seconds)
    train(FULL + 3 * EVERY, faults=())
    assert max(sizes) == most


def test_layers_carry_no_hook_on_thinned_steps_and_get_them_back(schedule):
    schedule(is_bare=True)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    counts = set()
    with NeuralDbg(model) as dbg:
        for _ in range(FULL + 2 * EVERY):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean()
            counts.add((len(model[0]._forward_hooks), len(model._forward_pre_hooks)))
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    assert (0, 1) in counts  # what enters the model is at hand even on a bare step
    assert any(layer and root for layer, root in counts)
    assert not model[0]._forward_hooks
    assert not model._forward_hooks
    assert not model._forward_pre_hooks


def test_odd_bare_step_closes_with_its_inputs_and_gradients(schedule):
    schedule(is_bare=True)
    dbg, _ = train(faults=(SPIKE,))
    steps, norm = norms(dbg)
    inputs = dbg.trace.facts.inputs[:, 0, InputStat.RMS]
    known = {int(s) for s, x in zip(steps, inputs, strict=True) if np.isfinite(x)}
    assert SPIKE in known
    assert not {SPIKE - 2, SPIKE - 1} & known
    assert np.isfinite(norm[list(steps).index(SPIKE)]).all()


@pytest.mark.parametrize("is_bare", [False, True])
def test_gradients_that_are_never_cleared_are_so_on_thinned_steps_too(schedule, is_bare):
    schedule(is_bare=is_bare)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    with NeuralDbg(model) as dbg:
        for _ in range(FULL + 3 * EVERY):
            x = torch.randn(8, 4)
            loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    assert dbg.explain_failure()[0].cause == "missing_zero_grad"
    cleared = dbg.trace.facts.ledger[:, LEDGER_FIELDS.index("is_cleared")]
    assert not cleared[1:].any()


def test_moments_that_begin_anew_on_a_bare_step_are_told(schedule):
    schedule(is_bare=True)
    model, anew = nn.Linear(4, 1), FULL + EVERY + 7
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with NeuralDbg(model) as dbg:
        for step in range(FULL + 3 * EVERY):
            if step == anew:
                optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    assert [o.step for o in dbg.trace.observations if o.kind == "fresh_moments"] == [anew]


def test_second_optimizer_that_appears_on_a_bare_step_is_registered(schedule):
    schedule(is_bare=True)
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model) as dbg:
        for step in range(FULL + 3 * EVERY):
            if step == FULL + EVERY + 7:
                optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    assert [o.kind for o in dbg.trace.run.optimizers] == ["SGD", "Adam"]
    assert dbg.trace.step_count == FULL + 3 * EVERY
    assert dbg.trace.run.warnings == ()


def test_backward_of_another_model_leaves_bare_steps_alone(schedule):
    schedule(is_bare=True)
    model, other = nn.Linear(4, 1), nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    values = []
    with NeuralDbg(model) as dbg:
        for _ in range(FULL + 2 * EVERY):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 4)).square().mean()
            loss.backward()
            optimizer.step()
            (other(torch.full((1, 4), math.inf)).sum() * 0).backward()  # NaN, and none of ours
            dbg.record_loss(loss)
            values.append(loss.item())
    assert dbg.loss_history == pytest.approx(values)
    assert not [o for o in dbg.trace.observations if o.kind.startswith("nonfinite")]


def test_quick_bare_steps_and_slow_ones_are_recorded_alike(schedule, monkeypatch):
    schedule(is_bare=True)
    heard = []
    hold = lean.Lean.hold
    monkeypatch.setattr(
        lean.Lean, "hold", lambda me, closed: (heard.extend(closed), hold(me, closed))
    )
    quick, weights = train()
    assert len(heard) > STEPS // 3
    monkeypatch.setattr(Quick, "start", lambda *_: None)
    slow, same = train()
    assert told(quick) == told(slow)
    assert quick.loss_history[:BROKEN] == slow.loss_history[:BROKEN]
    ours, theirs = quick.trace.facts, slow.trace.facts
    np.testing.assert_array_equal(ours.steps, theirs.steps)
    np.testing.assert_array_equal(ours.ledger, theirs.ledger)
    np.testing.assert_array_equal(ours.parameter, theirs.parameter)
    np.testing.assert_array_equal(ours.optimizer, theirs.optimizer)
    assert all(torch.equal(a, b) or a.isnan().any() for a, b in zip(weights, same, strict=True))


ODD = ("no record", "evaluation", "second forward", "metric", "ask", "spike", "early", "two losses")
"""What a step may do beside the plain loop."""


def train_oddly(seed, steps=FULL + 6 * EVERY):
    """Train with about one odd step in eight; return the session, and labels as they were read."""
    odd = np.random.default_rng(seed)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    read = []
    with NeuralDbg(model) as dbg:
        for step in range(steps):
            what = odd.choice(ODD) if step > FULL and odd.random() < 0.12 else "nothing"
            x = torch.randn(8, 4)
            if what == "second forward":
                model(x)
            loss = F.mse_loss(model(x), x.sum(1, keepdim=True) * (100 if what == "spike" else 1))
            if what == "early":
                dbg.record_loss(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            read.append(dbg.step)
            if what not in ("no record", "early"):
                dbg.record_loss(loss.item())
            if what == "metric":
                dbg.record_metric("accuracy", step)
            if what == "ask":
                read.append(len(dbg.loss_history))
            if what == "two losses":
                dbg.record_loss(0.5, "auxiliary")
            if what == "evaluation":
                with torch.no_grad():
                    model(x)
    return dbg, read


@pytest.mark.parametrize("seed", range(6))
def test_quick_bare_steps_give_the_record_of_slow_ones_in_any_loop(schedule, monkeypatch, seed):
    schedule(is_bare=True)
    heard = []
    hold = lean.Lean.hold
    monkeypatch.setattr(
        lean.Lean, "hold", lambda me, closed: (heard.extend(closed), hold(me, closed))
    )
    quick, labels = train_oddly(seed)
    assert len(heard) > EVERY
    monkeypatch.setattr(Quick, "start", lambda *_: None)
    slow, same = train_oddly(seed)
    assert labels == same
    assert told(quick) == told(slow)
    ours, theirs = quick.trace, slow.trace
    assert ours.losses.keys() == theirs.losses.keys()
    for name, series in ours.losses.items():
        assert series.steps.tolist() == theirs.losses[name].steps.tolist()
        assert series.values.tolist() == theirs.losses[name].values.tolist()
    for part in ("steps", "ledger", "parameter", "optimizer", "inputs"):
        np.testing.assert_array_equal(getattr(ours.facts, part), getattr(theirs.facts, part))


@pytest.mark.parametrize("is_quick", [True, False], ids=["quick", "slow"])
def test_gradients_of_some_bare_steps_are_weighed_as_those_of_heard_ones(
    schedule, monkeypatch, is_quick
):
    schedule(is_bare=False)
    heard, _ = train(faults=())
    schedule(is_bare=True)
    if not is_quick:
        monkeypatch.setattr(Quick, "start", lambda *_: None)
    bare, _ = train(faults=())
    theirs, ours = (norms(dbg)[1] for dbg in (heard, bare))
    is_weighed = ~np.isnan(ours).all(axis=1)
    np.testing.assert_array_equal(ours[is_weighed], theirs[is_weighed])
    late = np.flatnonzero(is_weighed[FULL + 2 * HEARD_EVERY :])
    assert np.diff(late).max() <= HEARD_EVERY
    monkeypatch.setattr(lean.Lean, "weigh", lambda *_: None)
    everywhere_odd, _ = train(faults=())  # what is beyond the usual is heard
    assert told(everywhere_odd) == told(bare)


def test_norms_that_clipping_has_changed_are_not_taken_for_those_before_it(schedule):
    schedule(is_bare=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with NeuralDbg(model) as dbg:
        for _ in range(STEPS):
            x = torch.randn(32, 6)
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), 10 + x.sum(1, keepdim=True))
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
            optimizer.step()
            dbg.record_loss(loss.item())
    found = norms(dbg)[1]
    assert np.isnan(found).all(axis=1).any(), "no step was bare"
    assert np.nansum(found, axis=1)[~np.isnan(found).all(axis=1)].min() > 1e-2


def test_quick_leaves_the_optimizers_hooks_as_they_were(schedule):
    schedule(is_bare=True)
    tables = optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks
    before = [dict(table) for table in tables]
    counts = set()
    with NeuralDbg(model := nn.Linear(4, 1)):
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        for _ in range(FULL + 2 * EVERY):
            optimizer.zero_grad()
            model(torch.randn(8, 4)).square().mean().backward()
            counts.add(tuple(map(len, tables)))
            optimizer.step()
    assert [dict(table) for table in tables] == before
    first, second = map(len, before)
    assert {(first + 1, second), (first + 1, second + 1)} >= counts


@pytest.mark.parametrize("what", ["metric", "label", "second session", "evaluation", "two losses"])
def test_quick_bare_steps_give_way_to_what_they_do_not_know(schedule, what):
    schedule(is_bare=True)
    model, other = nn.Linear(4, 1), nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    steps = FULL + 3 * EVERY
    with NeuralDbg(model) as dbg:
        for step in range(steps):
            if what == "label":
                dbg.step = 10 * step
            loss = model(torch.randn(8, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
            if what == "metric":
                dbg.record_metric("accuracy", step)
            if what == "two losses":
                dbg.record_loss(0.5, "auxiliary")
            if what == "evaluation":
                with torch.no_grad():
                    model(torch.randn(8, 4))
            if what == "second session":
                with NeuralDbg(other) as second:
                    other(torch.randn(8, 4)).sum().backward()
                    second.record_loss(1.0)
    labels = [10 * step if what == "label" else step for step in range(steps)]
    assert dbg.trace.facts.steps.tolist() == labels
    assert len(dbg.loss_history) == steps
    assert dbg.trace.run.warnings == ()
    assert dbg.explain_failure() == []
    if what == "metric":
        assert list(dbg.trace.metrics["accuracy"].values) == list(range(steps))


def test_leaps_by_habit_become_usual_and_are_odd_again_after_calm():
    usual, norms = Usual(), np.array([0.5, 0.5], dtype=np.float32)
    for _ in range(40):
        usual.note(2.0, [1.0, 2.0])
    usual.note(1.0, ())
    usual.note_norms(norms)
    first = usual.loss
    assert 2.0 < first < 5.0
    assert usual.norm == NORM_FAR
    for _ in range(10):
        usual.note_odd()
    usual.note_norms(norms)
    assert usual.loss > 30
    for _ in range(6 * RARE):
        usual.note_loss(1.5)
    usual.note_loss(1.0)
    usual.note_loss(2.0)
    usual.note_norms(norms)
    assert usual.loss == first


def test_a_loss_that_has_drifted_off_since_the_last_full_step_is_odd():
    noise = np.random.default_rng(0).normal(1.0, 0.3, 400).tolist()
    calm, drifting = Usual(), Usual()
    for usual in (calm, drifting):
        for loss in noise[:RECENT]:
            usual.note(loss, [loss])
    for loss in noise[RECENT:]:
        calm.note_loss(loss)
        assert calm.loss > 1.0
        drifting.note_loss(loss + 5.0)
    assert drifting.loss == -math.inf
    drifting.note(6.0, [6.0])  # a full step: from here on this is the level
    for loss in noise[:RECENT]:
        drifting.note_loss(loss + 5.0)
    assert drifting.loss > 6.0


def broken(*_, **__):
    raise ZeroDivisionError("broken on purpose")


FRAGILE = [
    (lean.Lean, "hold"),
    (lean.Lean, "resume"),
    (lean.Lean, "take_over"),
    (lean.Lean, "gradient_broke"),
    (Sentry, "is_broken"),
    (Quick, "_learn"),
    (Usual, "note_backward"),
]
"""What the short path calls, and in which nothing catches a failure before it does."""


@pytest.mark.parametrize(("owner", "name"), FRAGILE, ids=lambda x: getattr(x, "__name__", x))
def test_whatever_fails_on_a_bare_step_training_goes_on(schedule, monkeypatch, caplog, owner, name):
    schedule(is_bare=True)
    fault = BROKEN if name == "gradient_broke" else SPIKE
    _, weights = train(faults=(fault,))
    caplog.clear()
    tables = optimizers._global_optimizer_pre_hooks, optimizers._global_optimizer_post_hooks
    before = [dict(table) for table in tables]
    calls, original = [], getattr(owner, name)

    def fails(*args, **kwargs):
        calls.append(name)
        return broken() if len(calls) > 1 or name == "gradient_broke" else original(*args, **kwargs)

    monkeypatch.setattr(owner, name, fails)
    dbg, same = train(faults=(fault,))
    assert all(torch.equal(a, b) or a.isnan().any() for a, b in zip(weights, same, strict=True))
    assert [dict(table) for table in tables] == before
    has_failed = len(calls) > 1 or (name == "gradient_broke" and calls)
    assert sum(record.exc_info is not None for record in caplog.records) == bool(has_failed)
    assert dbg.summary()
