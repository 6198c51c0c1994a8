# SPDX-License-Identifier: MIT
"""Loops that are wired wrongly, and look-alikes that are meant."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg


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
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
            losses.append(loss.item())
    return dbg, losses


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
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
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
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
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
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    causes = [h.cause for h in dbg.explain_failure()]
    assert causes == ([] if ignored == 0 else ["padding_in_loss"])
