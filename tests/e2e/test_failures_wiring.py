# SPDX-License-Identifier: MIT
"""Loops that are wired wrongly, and look-alikes that are meant."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg


def update(optimizer, loss):
    """Take one step down the gradient of a loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def regression(count):
    x = torch.randn(count, 6)
    return x, torch.sin(x[:, :1]) + 0.5 * x[:, 1:2]


def two_phases(*, resume):
    """Train, then go on with a new optimizer, with or without the state of the old one."""
    model = nn.Sequential(nn.Linear(6, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    losses = []
    with NeuralDbg(model) as dbg:
        for step in range(240):
            if step == 180:
                state = optimizer.state_dict()
                optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
                if resume:
                    optimizer.load_state_dict(state)
            x, y = regression(64)
            loss = F.mse_loss(model(x), y)
            update(optimizer, loss)
            dbg.record_loss(loss)
            losses.append(loss.item())
    return dbg, losses


def continued(*, resume):
    """Watch the second part of a job only: weights of the first, a new optimizer, much noise."""
    torch.manual_seed(0)
    w = torch.randn(20)

    def train(model, optimizer, steps, dbg=None):
        losses = []
        for _ in range(steps):
            x = torch.randn(128, 20)
            loss = F.mse_loss(model(x)[:, 0], (x @ w).sign() * 0.5 + 1.5 * torch.randn(128))
            update(optimizer, loss)
            losses.append(loss.item())
            if dbg is not None:
                dbg.record_loss(loss)
        return losses

    model = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 1))
    before = torch.optim.Adagrad(model.parameters(), lr=0.3)
    train(model, before, 600)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.3)
    if resume:
        optimizer.load_state_dict(before.state_dict())
    with NeuralDbg(model) as dbg:
        losses = train(model, optimizer, 200, dbg)
    return dbg, losses


def test_a_job_that_goes_on_without_its_moments_is_named_however_little_it_can_learn():
    dbg, losses = continued(resume=False)
    assert max(losses[:20]) > 3 * losses[0]
    first = dbg.explain_failure()[0]
    assert (first.cause, first.onset) == ("resume_without_optimizer_state", 0)


def test_a_job_that_goes_on_with_its_moments_is_quiet():
    dbg, losses = continued(resume=True)
    assert max(losses) < 2 * losses[0]
    assert dbg.explain_failure() == []


def test_moments_that_begin_anew_are_named_where_the_loss_leaps():
    dbg, losses = two_phases(resume=False)
    assert max(losses[180:190]) > 3 * sum(losses[160:180]) / 20
    first = dbg.explain_failure()[0]
    assert first.cause == "resume_without_optimizer_state"
    assert abs(first.onset - 180) <= 1


def test_a_resumed_state_is_no_failure():
    dbg, _ = two_phases(resume=True)
    assert dbg.explain_failure() == []


def classify(model, optimizer, steps=120):
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            x = torch.randn(48, 6)
            loss = F.cross_entropy(model(x), (x[:, 0] > 0).long() + (x[:, 1] > 0).long())
            update(optimizer, loss)
            dbg.record_loss(loss)
    return dbg


def test_a_head_replaced_after_the_optimizer_was_made_is_named():
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model[2] = nn.Linear(32, 3)
    first = classify(model, optimizer).explain_failure("training_wiring")[0]
    assert first.cause in {"stale_optimizer_parameters", "parameters_not_in_optimizer"}
    assert (first.layer, first.onset) == ("2", 0)


@pytest.mark.parametrize("maximize", [True, False])
def test_a_loss_that_is_maximised_has_the_wrong_sign(maximize):
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, maximize=maximize)
    causes = [h.cause for h in classify(model, optimizer).explain_failure()]
    assert causes[:1] == (["wrong_loss_sign"] if maximize else [])


@pytest.mark.parametrize("is_told", [True, False])
def test_a_head_that_grows_in_mid_run_needs_the_optimizer_to_know(is_told):
    """Without being told it steps the old head; told of it by a new optimizer, all is meant."""
    model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    with NeuralDbg(model) as dbg:
        for step in range(200):
            if step == 20:
                model[2] = nn.Linear(32, 3)
                if is_told:
                    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
            x = torch.randn(48, 6)
            label = (x[:, 0] > 0).long() + (x[:, 1] > 0).long() * (step >= 20)
            loss = F.cross_entropy(model(x), label)
            optimizer.zero_grad()
            model.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    found = [(h.cause, h.layer, h.onset) for h in dbg.explain_failure()[:1]]
    assert found == ([] if is_told else [("stale_optimizer_parameters", "2", 20)])


@pytest.mark.parametrize("is_right", [True, False])
def test_evaluations_in_train_mode_count_though_the_last_one_is_written_rightly(is_right):
    model = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with NeuralDbg(model) as dbg:
        for step in range(200):
            x = torch.randn(48, 6)
            loss = F.cross_entropy(model(x), (x[:, 0] > 0).long() + (x[:, 1] > 0).long())
            update(optimizer, loss)
            dbg.record_loss(loss)
            if step % 20 == 19:
                model.train(not is_right)
                with torch.no_grad():
                    model(torch.randn(256, 6))
                model.train()
        model.eval()
        with torch.no_grad():
            model(torch.randn(256, 6))
    found = [(h.cause, h.onset) for h in dbg.explain_failure()[:1]]
    assert found == ([] if is_right else [("train_mode_in_eval", 19)])


class Tagger(nn.Module):
    """Takes a batch as a dict, the length of its sequences first where `is_time_first`."""

    def __init__(self, *, is_time_first):
        super().__init__()
        self.words, self.tags = nn.Embedding(20, 16), nn.Linear(32, 4)
        self.context = nn.GRU(16, 16, bidirectional=True, batch_first=not is_time_first)

    def forward(self, batch):
        return self.tags(self.context(self.words(batch["tokens"]))[0])


@pytest.mark.parametrize("is_time_first", [True, False])
@pytest.mark.parametrize("ignored", [-100, 0])
def test_padding_is_seen_in_a_batch_that_is_a_dict(ignored, is_time_first):
    model = Tagger(is_time_first=is_time_first)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with NeuralDbg(model) as dbg:
        for _ in range(60):
            tokens = torch.randint(1, 20, (32, 12)) * (
                torch.arange(12) < torch.randint(2, 6, (32, 1))
            )
            batch = {"tokens": tokens, "tags": (tokens % 3 + 1) * (tokens > 0)}
            if is_time_first:
                batch = {key: value.T.contiguous() for key, value in batch.items()}
            scores = model(batch).flatten(0, 1)
            loss = F.cross_entropy(scores, batch["tags"].flatten(), ignore_index=ignored)
            update(optimizer, loss)
            dbg.record_loss(loss)
    causes = [h.cause for h in dbg.explain_failure()]
    assert causes == ([] if ignored == 0 else ["padding_in_loss"])


# -- parameters that no optimizer can reach ----------------------------------------------------


class Holder:
    """A plain object."""

    def __init__(self, module):
        self.module = module


class Unregistered(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.top = how, nn.Linear(16, 3)
        self.kept = {
            "tensor": lambda: torch.randn(8, 16, requires_grad=True),
            "tensors": lambda: [torch.randn(8, 16, requires_grad=True)],
            "object": lambda: Holder(nn.Linear(8, 16)),
            "dict in an object": lambda: Holder({"one": nn.Linear(8, 16)}),
            "data": lambda: torch.randn(8, 16),
            "moved by hand": lambda: torch.randn(8, 16, requires_grad=True),
        }[how]()

    def forward(self, x):
        if isinstance(self.kept, Holder):
            held = self.kept.module
            return self.top(torch.tanh((held["one"] if isinstance(held, dict) else held)(x)))
        return self.top(torch.tanh(x @ (self.kept[0] if self.how == "tensors" else self.kept)))


def learned(model, optimizer, steps=60, after=None):
    rule = torch.randn(8, 3)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            x = torch.randn(48, 8)
            loss = F.cross_entropy(model(x), (x @ rule).argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if after is not None:
                after()
            dbg.record_loss(loss)
    return dbg


@pytest.mark.parametrize("how", ["tensor", "tensors", "object", "dict in an object"])
def test_what_a_module_trains_and_does_not_register_is_named(how):
    torch.manual_seed(0)
    model = Unregistered(how)
    first = learned(model, torch.optim.Adam(model.parameters(), 3e-3)).explain_failure()[0]
    assert (first.cause, first.layer.partition(".")[0]) == ("unregistered_modules", "kept")


@pytest.mark.parametrize("how", ["data", "moved by hand"])
def test_a_bare_tensor_that_is_data_or_has_an_update_of_its_own_is_quiet(how):
    torch.manual_seed(0)
    model = Unregistered(how)

    def after():
        if how == "moved by hand":
            with torch.no_grad():
                model.kept -= 0.1 * model.kept.grad
                model.kept.grad = None

    dbg = learned(model, torch.optim.Adam(model.parameters(), 0.02), 120, after)
    assert dbg.explain_failure() == [], dbg.summary()


# -- a part that runs without gradients --------------------------------------------------------


class Part(nn.Module):
    """A body that runs without gradients below a head, or one that is never called."""

    def __init__(self, how):
        super().__init__()
        self.how = how
        self.body = nn.Sequential(nn.Linear(8, 24), nn.ReLU(), nn.Linear(24, 16))
        self.head = nn.Linear(8 if how == "unused" else 16, 3)

    def forward(self, x):
        if self.how == "unused":
            return self.head(x)
        with torch.no_grad():
            features = self.body(x)
        return self.head(torch.relu(features))


def test_layers_that_run_without_gradients_though_the_optimizer_has_them_are_cut_off():
    torch.manual_seed(0)
    model = Part("body")
    first = learned(model, torch.optim.Adam(model.parameters(), 3e-3)).explain_failure()[0]
    assert (first.cause, first.layer) == ("detached_graph", "body.0")


@pytest.mark.parametrize("how", ["unused", "features"])
def test_a_part_that_is_not_used_or_only_gives_features_is_quiet(how):
    torch.manual_seed(0)
    model = Part(how)
    trained = model if how == "unused" else model.head
    dbg = learned(model, torch.optim.Adam(trained.parameters(), 0.03), 150)
    assert dbg.explain_failure() == [], dbg.summary()


def two_tasks(model, learn, steps=120):
    """Train on two targets of one input; `learn(first, second)` makes the loss of the terms."""
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            x = torch.randn(48, 6)
            one, two = model(x)
            terms = F.mse_loss(one, x[:, :1].sin()), F.mse_loss(two, x[:, 1:2] * x[:, 2:3])
            loss = learn(*terms)
            update(optimizer, loss)
            dbg.record_loss(loss.item())
    return dbg


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 48), nn.Tanh())
        self.near, self.far = nn.Linear(48, 1), nn.Linear(48, 1)

    def forward(self, x):
        x = self.body(x)
        return self.near(x), self.far(x)


@pytest.mark.parametrize("is_cut", [True, False])
def test_a_term_that_enters_as_a_number_is_named_with_the_head_that_it_leaves_idle(is_cut):
    dbg = two_tasks(TwoHeads(), lambda one, two: one + (two.item() if is_cut else two))
    found = [(h.cause, h.layer) for h in dbg.explain_failure()[:1]]
    assert found == ([("detached_loss_term", "far")] if is_cut else [])


@pytest.mark.parametrize("is_cleared", [True, False])
def test_of_two_models_the_one_that_is_not_cleared_is_named(is_cleared):
    maker = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 6))
    reader = nn.Sequential(nn.Linear(6, 24), nn.Tanh(), nn.Linear(24, 1))
    first = torch.optim.Adam(maker.parameters(), lr=3e-3)
    second = torch.optim.SGD(reader.parameters(), lr=0.05, momentum=0.5)
    with NeuralDbg({"maker": maker, "reader": reader}) as dbg:
        for _ in range(150):
            x = torch.randn(32, 6)
            made = maker(x)
            loss = F.mse_loss(made, x.sin()) + F.mse_loss(reader(made), x[:, :1].cos())
            first.zero_grad()
            if is_cleared:
                second.zero_grad()
            loss.backward()
            first.step()
            second.step()
            dbg.record_loss(loss)
    found = [(h.cause, h.layer) for h in dbg.explain_failure()[:1]]
    assert found == ([] if is_cleared else [("missing_zero_grad", "reader")])


@pytest.mark.parametrize("prefix", ["blocks.1", "none"])
def test_random_features_that_are_frozen_and_do_not_suffice_are_named(prefix):
    """`blocks.1` freezes `blocks.10` to `blocks.13` too; the optimizer gets what is left."""
    names = [f"{i}" for i in range(10, 14)]
    blocks = {
        n: nn.Sequential(nn.Conv1d(8, 8, 5, padding=2), nn.GroupNorm(2, 8), nn.SiLU())
        for n in names
    }

    class Signals(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleDict({"1": nn.Conv1d(1, 8, 7, padding=3), **blocks})
            self.head = nn.Linear(8, 4)

        def forward(self, x):
            for block in self.blocks.values():
                x = block(x)
            return self.head(x.mean(-1))

    model = Signals()
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(not name.startswith(prefix))
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=6e-3)
    place = torch.arange(48.0)
    with NeuralDbg(model) as dbg:
        for _ in range(200):
            label = torch.randint(0, 4, (32,))
            gap = 3.0 + 3.0 * label[:, None]
            start = 6 + 24 * torch.rand(32, 1)
            bumps = (-((place - start) ** 2) / 3).exp() + (-((place - start - gap) ** 2) / 3).exp()
            loss = F.cross_entropy(model((bumps + 0.3 * torch.randn(32, 48))[:, None]), label)
            update(optimizer, loss)
            dbg.record_loss(loss)
    found = [h.cause for h in dbg.explain_failure()[:1]]
    assert found == (["frozen_parameters"] if prefix != "none" else [])


@pytest.mark.parametrize("thawed_at", [40, None])
def test_random_features_that_are_thawed_after_a_while_were_frozen_for_a_while(thawed_at):
    """They are in the optimizer from the start, and the run ends before it has learned all."""
    model = nn.Sequential(
        nn.Conv1d(8, 16, 5), nn.ReLU(), nn.Conv1d(16, 16, 5), nn.ReLU(), nn.Flatten(),
        nn.Linear(16 * 16, 6),
    )  # fmt: skip
    for parameter in model[:4].parameters():
        parameter.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    patterns = torch.randn(6, 8, 6)
    with NeuralDbg(model) as dbg:
        for step in range(240):
            if step == thawed_at:
                model[:4].requires_grad_(True)
            label = torch.randint(0, 6, (32,))
            signal = torch.randn(32, 8, 24) * 2.0
            for row, start in enumerate(torch.randint(0, 18, (32,))):
                signal[row, :, start : start + 6] += patterns[label[row]]
            loss = F.cross_entropy(model(signal), label)
            update(optimizer, loss)
            dbg.record_loss(loss)
    found = [h.cause for h in dbg.explain_failure()[:1]]
    assert found == ([] if thawed_at else ["frozen_parameters"])
    assert 0.2 < dbg.loss_history[-1] < 1.9
