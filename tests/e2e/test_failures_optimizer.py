# SPDX-License-Identifier: MIT
"""Plateau, spike, divergence and oscillation of the loss: real programs, told with step."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg

pytestmark = pytest.mark.usefixtures("seed")


def mlp(width=8, out=1):
    return nn.Sequential(
        nn.Linear(width, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, out)
    )


def regression(rows=64, width=8):
    x = torch.randn(rows, width)
    return x, x.sum(1, keepdim=True) + 3.0


def classes(rows=32, width=12, count=3):
    y = torch.randint(0, count, (rows,))
    return F.one_hot(y, width).float() * 3 + torch.randn(rows, width), y


def update(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def mean(values):
    return sum(values) / len(values)


def of_loss(dbg, explained, state, step, *, is_leading=True):
    """Check what is said of the curve, asked by failure type and by its state."""
    explained(dbg, "optimizer_instability").check(
        "optimizer_instability", None, step, is_leading=is_leading
    )
    if state is not None:
        assert explained(dbg, state).asked
        assert state in {event.to_state for event in dbg.events}


# -- plateau ---------------------------------------------------------------------------------


def test_learning_rate_far_too_low(explained):
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-8)
    losses = []
    with NeuralDbg(model) as dbg:
        for _ in range(150):
            x, y = regression()
            loss = F.mse_loss(model(x), y)
            update(loss, optimizer)
            dbg.record_loss(loss)
            losses.append(loss.item())
    assert mean(losses[-30:]) > 0.9 * mean(losses[:30])
    of_loss(dbg, explained, "loss_plateau", 0)


def test_schedule_stepped_per_batch_decays_the_rate_to_nothing(explained):
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.003)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.1)
    losses = []
    with NeuralDbg(model) as dbg:
        for step in range(150):
            y = torch.randint(0, 4, (32,))
            x = torch.randn(32, 1, 6, 6) + F.one_hot(y, 36).float().view(-1, 1, 6, 6) * 3
            loss = F.cross_entropy(model(x), y)
            update(loss, optimizer)
            schedule.step()
            losses.append(loss.item())
            if step % 50 == 49:
                with torch.no_grad():
                    model.eval()(x)
                model.train()
    assert mean(losses[-50:]) > 0.85 * mean(losses[:5])
    of_loss(dbg, explained, "loss_plateau", (4, 30))


def test_warmup_that_divides_integers_never_starts(explained):
    model = mlp(12, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, step // 1000))
    losses = []
    with NeuralDbg(model) as dbg:
        for _ in range(120):
            x, y = classes()
            loss = F.cross_entropy(model(x), y)
            dbg.record_loss(loss.item())
            update(loss, optimizer)
            schedule.step()
            losses.append(loss.item())
    assert mean(losses[-30:]) > 0.95 * mean(losses[:30])
    of_loss(dbg, explained, "loss_plateau", 0)


# -- spike -----------------------------------------------------------------------------------


def test_one_step_with_a_rate_a_hundred_times_too_high(explained):
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    with NeuralDbg(model) as dbg:
        for step in range(140):
            optimizer.param_groups[0]["lr"] = 0.6 if step == 90 else 3e-3
            x, y = regression()
            loss = F.mse_loss(model(x), y)
            update(loss, optimizer)
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    assert losses[91] > 10 * max(losses[80:91])
    of_loss(dbg, explained, "loss_spike", (89, 92), is_leading=False)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.rnn = nn.Embedding(10, 16), nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, ids):
        return self.head(self.rnn(self.embed(ids))[0])


def test_labels_of_one_batch_are_shuffled(explained):
    model = Tagger()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)
    losses = []
    with NeuralDbg(model) as dbg:
        for step in range(120):
            ids = torch.randint(0, 10, (16, 8))
            y = (ids + 1) % 10
            y = (y + 5) % 10 if step == 80 else y
            loss = F.cross_entropy(model(ids).flatten(0, 1), y.flatten())
            update(loss, optimizer)
            dbg.record_loss(loss)
            losses.append(loss.item())
    assert losses[80] > 20 * max(losses[70:80])
    explained(dbg, "loss_spike").check(
        ("optimizer_instability", "data_anomaly"), (None, "head"), 80, is_leading=False
    )


def test_noise_added_to_the_weights_once(explained):
    model = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    with NeuralDbg(model) as dbg:
        for step in range(120):
            if step == 75:
                with torch.no_grad():
                    for p in model.parameters():
                        p.add_(torch.randn_like(p) * 3)
            x, y = classes()
            loss = F.cross_entropy(model(x), y)
            dbg.record_loss(loss.item())
            update(loss, optimizer)
            losses.append(loss.item())
    assert losses[75] > 10 * max(losses[65:75])
    explained(dbg, "optimizer_instability").check(
        "optimizer_instability", (None, "0", "1", "3"), 75, is_leading=False
    )
    assert "loss_spike" in {event.to_state for event in dbg.events}


# -- divergence ------------------------------------------------------------------------------


def test_rate_above_the_stability_limit_from_the_start(explained):
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.4)
    losses = []
    with NeuralDbg(model) as dbg:
        for _ in range(60):
            x, y = regression()
            loss = F.mse_loss(model(x), y)
            update(loss, optimizer)
            dbg.record_loss(loss)
            losses.append(loss.item())
    assert losses[40] > 1e6 * losses[0]
    of_loss(dbg, explained, "diverging", (0, 4))


def test_restart_that_multiplies_the_rate(explained):
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8 * 9, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    losses = []
    with NeuralDbg(model) as dbg:
        for step in range(110):
            if step == 70:
                optimizer.param_groups[0]["lr"] = 3.0
            x = torch.randn(16, 1, 6, 6)
            loss = F.mse_loss(model(x), x.mean((1, 2, 3)).unsqueeze(1) * 5)
            update(loss, optimizer)
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    assert not mean(losses[90:100]) < 1e3 * max(losses[60:70])
    of_loss(dbg, explained, "diverging", (69, 72), is_leading=False)


def test_rate_that_grows_a_little_on_every_step(explained):
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=1.05)
    losses = []
    with NeuralDbg(model) as dbg:
        for _ in range(160):
            x, y = regression()
            y = y + 0.3 * torch.randn_like(y)
            loss = F.mse_loss(model(x), y)
            update(loss, optimizer)
            schedule.step()
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    floor = min(filter(math.isfinite, losses))
    first = losses.index(floor)
    harmed = next(i for i in range(first, 160) if not losses[i] < 20 * floor)
    assert not losses[-1] < 1e3 * floor
    of_loss(dbg, explained, "diverging", (first, harmed + 1))


# -- oscillation -----------------------------------------------------------------------------


def test_steps_too_long_for_the_valley(explained):
    model = nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=8.0, betas=(0.5, 0.9))
    losses = []
    with NeuralDbg(model) as dbg:
        for _ in range(120):
            x, y = regression()
            loss = F.mse_loss(model(x), y + 0.5 * torch.randn_like(y))
            update(loss, optimizer)
            dbg.record_loss(loss)
            losses.append(loss.item())
    assert mean(losses[20:]) > losses[0]
    of_loss(dbg, explained, None, (0, 6))


def test_classifier_thrown_about_by_its_rate(explained):
    model = mlp(12, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0)
    losses = []
    with NeuralDbg(model) as dbg:
        for step in range(100):
            x, y = classes()
            loss = F.cross_entropy(model(x), y)
            dbg.record_loss(loss.item())
            update(loss, optimizer)
            losses.append(loss.item())
            if step % 25 == 24:
                with torch.no_grad():
                    model.eval()(x)
                model.train()
    assert mean(losses[2:20]) > 10 * losses[0]
    of_loss(dbg, explained, None, (0, 6), is_leading=False)


def test_momentum_that_overshoots_again_and_again(explained):
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.95)
    losses = []
    with NeuralDbg(model) as dbg:
        for _ in range(120):
            x, y = regression()
            loss = F.mse_loss(model(x), y)
            update(loss, optimizer)
            losses.append(loss.item())
    assert not mean(losses[60:]) < 2 * losses[0]
    of_loss(dbg, explained, None, (0, 8), is_leading=False)


@pytest.mark.parametrize("robot", [True, False])
def test_attention_that_breaks_on_one_batch_after_sound_steps_is_no_matter_of_warmup(robot):
    """One session of one batch is empty: every key of its row is masked."""
    torch.manual_seed(0)
    embed, attend = (
        nn.Embedding(31, 32, padding_idx=0),
        nn.MultiheadAttention(32, 4, batch_first=True),
    )
    head = nn.Linear(32, 30)

    class Session(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.attend, self.head = embed, attend, head

        def forward(self, clicks):
            pad = clicks == 0
            x = self.embed(clicks)
            x = x + self.attend(x, x, x, key_padding_mask=pad, need_weights=True)[0]
            return self.head(x.masked_fill(pad[..., None], 0.0).sum(1))

    model = Session()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    with NeuralDbg(model) as dbg:
        for step in range(160):
            clicks = torch.randint(1, 31, (24, 8)) * (
                torch.arange(8) < torch.randint(2, 9, (24, 1))
            )
            if robot and step == 130:
                clicks[5] = 0
            loss = F.cross_entropy(model(clicks), clicks[:, 0].sub(1).clamp(min=0))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    found = [(h.cause, h.onset) for h in dbg.explain_failure()[:1]]
    assert found == ([("fully_masked_attention", 130)] if robot else [])


@pytest.mark.parametrize("is_rounded", [True, False])
def test_second_moments_that_are_kept_in_half_precision(is_rounded):
    """Squares of everyday gradients, times 1 - beta2, are below the smallest number of fp16."""
    model = mlp(12, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    with NeuralDbg(model) as dbg:
        for _ in range(150):
            x, y = classes()
            loss = F.cross_entropy(model(x), y)
            update(loss, optimizer)
            for state in optimizer.state.values() if is_rounded else ():
                state["exp_avg_sq"].copy_(state["exp_avg_sq"].half())
            dbg.record_loss(loss.item())
    found = [(h.cause, h.onset) for h in dbg.explain_failure()[:1]]
    assert found == ([("optimizer_eps_underflow", 1)] if is_rounded else [])


@pytest.mark.parametrize(("decay", "is_too_high"), [(15.0, True), (0.1, False)])
def test_decoupled_decay_that_holds_the_weights_below_their_start(decay, is_too_high):
    x, y = classes(256)
    model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=decay)
    with NeuralDbg(model) as dbg:
        for _ in range(300):
            batch = torch.randint(0, 256, (32,))
            loss = F.cross_entropy(model(x[batch]) / 4, y[batch])
            update(loss, optimizer)
            dbg.record_loss(loss)
    causes = [h.cause for h in dbg.explain_failure()]
    assert causes[:1] == ["weight_decay_too_high"] * is_too_high
    assert all(p.square().mean().sqrt() < 1 / 15 for p in model.parameters()) is is_too_high


@pytest.mark.parametrize("unit", [1.0, 1e-5], ids=["usual", "tiny"])
@pytest.mark.parametrize(
    ("lr", "decay", "cause"),
    [(1e-10, 0.0, "lr_too_low"), (3e-3, 20.0, "weight_decay_too_high"), (3e-3, 0.0, None)],
)
def test_what_is_wrong_is_told_whatever_the_units_of_the_loss(unit, lr, decay, cause):
    x, y = regression(256)
    model = mlp()
    with torch.no_grad():
        model[-1].weight *= unit
        model[-1].bias *= unit
    optimizer = torch.optim.Adam(model.parameters(), lr=lr, weight_decay=decay, eps=1e-16)
    with NeuralDbg(model) as dbg:
        for _ in range(400):
            batch = torch.randint(0, 256, (32,))
            loss = F.mse_loss(model(x[batch]), (y[batch] - 3.0) * unit)
            update(loss, optimizer)
            dbg.record_loss(loss)
    assert [h.cause for h in dbg.explain_failure()][:1] == ([cause] if cause else [])
