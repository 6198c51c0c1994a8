# SPDX-License-Identifier: MIT
"""A second stage begins in a run that was learning, and is wrong: told from its first step on."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg

AT = 300
OVERHEAD = pytest.mark.parametrize("overhead", [0.001, 0.05])


def run(model, optimizer, steps, loss_of, *, after=None, overhead=0.05):
    """Train `model` on `loss_of(step)`; `after(step)` is called after each step."""
    with NeuralDbg(model, overhead=overhead) as dbg:
        for step in range(steps):
            loss = loss_of(step)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            if after is not None:
                after(step)
    return dbg


def net(inside=6, outside=4):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inside, 48), nn.Tanh(), nn.Linear(48, outside))


@OVERHEAD
@pytest.mark.parametrize(
    ("is_masked", "cause"), [(False, "sqrt_at_zero"), (True, "masked_nan_gradient")]
)
def test_a_root_in_the_loss_that_comes_later_is_named_though_its_graph_is_gone(
    is_masked, cause, overhead
):
    model = net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def loss_of(step):
        x = torch.randn(24, 6)
        out = model(x)
        loss = F.mse_loss(out[:, 0], x[:, 0])
        if step >= AT:
            squares = (out[:, None] - out[None]).square().sum(-1)
            apart = squares.sqrt()
            if is_masked:
                apart = torch.where(squares > 0, apart, torch.zeros(()))
            loss = loss + 0.1 * torch.exp(-apart).mean()
        return loss

    first = run(model, optimizer, AT + 40, loss_of, overhead=overhead).explain_failure()[0]
    assert (first.cause, first.onset) == (cause, AT)


@pytest.mark.parametrize("later", range(8))
def test_a_root_in_the_loss_is_named_on_every_step_that_is_watched_in_full(later):
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def loss_of(step):
        x = torch.randn(24, 6)
        out = model(x)
        loss = F.mse_loss(out[:, 0], x[:, 0])
        if step >= 100 + later:
            apart = (out[:, None] - out[None]).square().sum(-1).sqrt()
            loss = loss + 0.01 * torch.exp(-apart).mean()
        return loss

    first = run(model, optimizer, 120, loss_of, overhead=1.0).explain_failure()[0]
    assert (first.cause, first.onset) == ("sqrt_at_zero", 100 + later)


@OVERHEAD
@pytest.mark.parametrize("is_sorted", [True, False])
def test_noised_inputs_that_break_from_one_level_on_are_a_schedule_out_of_range(
    is_sorted, overhead
):
    model = net(5, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    class Denoiser(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = model

        def forward(self, x, level):
            return self.net(torch.cat([x, level[:, None]], 1))

    denoiser = Denoiser()

    def loss_of(step):
        level, noise = torch.rand(64), torch.randn(64, 4)
        kept = 1 - level if step < AT or not is_sorted else 1 - 1.5 * level
        x = kept.sqrt()[:, None] * torch.ones(4) + (1 - kept).sqrt()[:, None] * noise
        if step >= AT and not is_sorted:
            x[torch.randperm(64)[:20]] = float("nan")
        return F.mse_loss(denoiser(x, level), noise)

    first = run(denoiser, optimizer, AT + 40, loss_of, overhead=overhead).explain_failure()[0]
    assert first.cause == ("noise_schedule_invalid" if is_sorted else "nan_in_input")
    assert first.onset == AT


@pytest.mark.parametrize("per_batch", [True, False])
def test_a_schedule_that_starves_the_second_stage_is_named(per_batch):
    model = net(6, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    def loss_of(step):
        x = torch.randn(64, 6)
        target = x[:, :1] + (x[:, 1:2].sin() * x[:, 2:3] if step >= AT else 0.0)
        return F.mse_loss(model(x), target)

    def after(step):
        if step >= AT and (per_batch or step % 50 == 0):
            optimizer.param_groups[0]["lr"] *= 0.85

    hypotheses = run(model, optimizer, 900, loss_of, after=after).explain_failure()
    if per_batch:  # which of the two hangs on how much of the lr's history is exact
        assert hypotheses[0].cause in {"lr_decayed_to_zero", "scheduler_misstepped"}
        assert AT <= hypotheses[0].onset <= AT + 20
    else:
        assert hypotheses == []


@pytest.mark.parametrize("is_held_apart", [False, True])
def test_views_that_are_only_drawn_together_from_some_step_on_collapse_from_there(is_held_apart):
    model = net(8, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)

    def loss_of(step):
        x = torch.randn(96, 8)
        a, b = (model(x + 0.3 * torch.randn_like(x)) for _ in range(2))
        apart = sum(torch.relu(1 - (z.var(0) + 1e-4).sqrt()).mean() for z in (a, b))
        return 10 * F.mse_loss(a, b) + (10 * apart if step < AT or is_held_apart else 0.0)

    hypotheses = run(model, optimizer, 900, loss_of).explain_failure()
    assert [h.cause for h in hypotheses][:1] == ([] if is_held_apart else ["embedding_collapse"])
    if hypotheses:
        first, last = hypotheses[0].onset_range
        assert first <= AT <= last


def test_a_policy_that_comes_to_choose_one_place_sees_no_constant_input():
    """What a policy sees is what it chose: at the end all walkers stand where the win is."""
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(5, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=5e-3)
    wins = []

    def loss_of(_):
        place, chosen, won = torch.full((16,), 2), [], []
        for _step in range(8):
            choice = torch.distributions.Categorical(logits=policy(torch.eye(5)[place]))
            move = choice.sample()
            place = (place + 2 * move - 1).clamp(0, 4)
            chosen.append(choice.log_prob(move))
            won.append((place == 4).float() * (torch.rand(16) < 0.25) * 4.0)
        wins.append(torch.stack(won).sum(0).mean().item())
        gain = torch.stack(won).flip(0).cumsum(0).flip(0)
        return -(torch.stack(chosen) * (gain - gain.mean()) / (gain.std() + 1e-6)).mean()

    dbg = run(policy, optimizer, 500, loss_of)
    assert sum(wins[-50:]) / 50 > 1.5 * sum(wins[:5]) / 5
    assert dbg.explain_failure() == []
    (name,) = {o.words["name"] for o in dbg.trace.observations if o.kind == "loss_function"}
    assert name == "log_probability"


@pytest.mark.parametrize("what", ["other data", "the same data", "eval mode"])
def test_reports_in_train_mode_that_carry_running_means_off_are_named(what):
    """The validation itself is right: only the reports between two epochs are not."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def loss_of(_):
        model.train()
        x = torch.randn(64, 6)
        return F.cross_entropy(model(x), (x[:, 0] > 0).long())

    @torch.no_grad()
    def after(step):
        if step % 40 != 39:
            return
        if step > AT:
            model.train(what != "eval mode")
            for _ in range(8):
                model(torch.randn(64, 6) * (1 if what == "the same data" else 5) + 0.0)
                model(torch.randn(64, 6) + (0.0 if what == "the same data" else 9.0))
        model.eval()
        model(torch.randn(64, 6))

    hypotheses = run(model, optimizer, 500, loss_of, after=after).explain_failure()
    assert [h.cause for h in hypotheses] == ["train_mode_in_eval"] * (what == "other data")
    if hypotheses:
        assert abs(hypotheses[0].onset - 319) <= 1
