# SPDX-License-Identifier: MIT
"""Promise 3: a healthy run is quiet. Programs on which naive rules cry wolf."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg

pytestmark = pytest.mark.usefixtures("seed")


def update(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def mlp(width=8, hidden=32, out=1, act=nn.ReLU):
    return nn.Sequential(
        nn.Linear(width, hidden), act(), nn.Linear(hidden, hidden), act(), nn.Linear(hidden, out)
    )


def regression(rows=32, width=8, noise=0.0):
    x = torch.randn(rows, width)
    return x, x[:, :2].sum(1, keepdim=True) + noise * torch.randn(rows, 1)


def classes(rows=32, width=12, count=3):
    y = torch.randint(0, count, (rows,))
    return F.one_hot(y, width).float() * 2 + torch.randn(rows, width), y


def train(model, make, criterion, optimizer, steps, schedule=None):
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            x, y = make()
            loss = criterion(model(x), y)
            update(loss, optimizer)
            if schedule is not None:
                schedule.step()
            dbg.record_loss(loss.item())
    return dbg


def is_quiet(dbg):
    said = [str(hypothesis) for hypothesis in dbg.explain_failure()]
    assert said == []
    assert dbg.get_causal_hypotheses() == []
    assert "no failure found" in repr(dbg)
    return True


# -- adversaries and agents ------------------------------------------------------------------------


def test_gan_whose_losses_rise_and_fall():
    g = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
    d = nn.Sequential(nn.Linear(2, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))
    og = torch.optim.Adam(g.parameters(), lr=1e-3, betas=(0.5, 0.999))
    od = torch.optim.Adam(d.parameters(), lr=1e-3, betas=(0.5, 0.999))
    with NeuralDbg({"G": g, "D": d}) as dbg:
        for _ in range(150):
            real = torch.randn(64, 2) * 0.5 + torch.tensor([2.0, -1.0])
            fake = g(torch.randn(64, 4))
            of_d = F.softplus(-d(real)).mean() + F.softplus(d(fake.detach())).mean()
            update(of_d, od)
            of_g = F.softplus(-d(fake)).mean()
            update(of_g, og)
            dbg.record_loss(of_d.item(), name="critic")
            dbg.record_loss(of_g.item(), name="generator")
    assert is_quiet(dbg)


def test_wasserstein_critic_with_several_steps_per_generator_step():
    g, d = mlp(4, 32, 2), mlp(2, 32, 1, nn.Tanh)
    og = torch.optim.RMSprop(g.parameters(), lr=5e-4)
    od = torch.optim.RMSprop(d.parameters(), lr=5e-4)
    with NeuralDbg({"G": g, "D": d}) as dbg:
        for _ in range(40):
            for _ in range(3):
                real = torch.randn(64, 2) + 1
                update(d(g(torch.randn(64, 4)).detach()).mean() - d(real).mean(), od)
                with torch.no_grad():
                    for p in d.parameters():
                        p.clamp_(-0.3, 0.3)
            loss = -d(g(torch.randn(64, 4))).mean()
            update(loss, og)
            dbg.record_loss(loss.item())
    assert is_quiet(dbg)


def test_policy_gradient_with_a_loss_without_meaning():
    policy = mlp(4, 32, 3, nn.Tanh)
    optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)
    rewards = []
    with NeuralDbg(policy) as dbg:
        for _ in range(120):
            state = torch.randn(64, 4)
            chosen = torch.distributions.Categorical(logits=policy(state))
            action = chosen.sample()
            reward = (action == state[:, :3].argmax(1)).float()
            loss = -(chosen.log_prob(action) * (reward - reward.mean())).mean()
            update(loss, optimizer)
            rewards.append(reward.mean().item())
            dbg.record_loss(loss)
            dbg.record_metric("reward", rewards[-1])
    assert sum(rewards[-10:]) > sum(rewards[:10])
    assert is_quiet(dbg)


@pytest.mark.parametrize(("steps", "every"), [(150, 40), (420, 200)])
def test_q_learning_with_a_target_network_that_jumps(steps, every):
    """The longer one is down to the noise of its rewards, and its targets spread for good."""
    q = mlp(4, 32, 2)
    target = copy.deepcopy(q).requires_grad_(False)
    optimizer = torch.optim.Adam(q.parameters(), lr=1e-3)
    with NeuralDbg(q) as dbg:
        for step in range(steps):
            state = torch.randn(64, 4)
            action = torch.randint(0, 2, (64, 1))
            reward = (state[:, :1] > 0).float() * action + 0.3 * torch.randn(64, 1)
            with torch.no_grad():
                goal = reward + 0.9 * target(torch.randn(64, 4)).amax(1, keepdim=True)
            loss = F.smooth_l1_loss(q(state).gather(1, action), goal)
            update(loss, optimizer)
            dbg.record_loss(loss.item())
            if step % every == every - 1:
                target.load_state_dict(q.state_dict())
    assert is_quiet(dbg)


# -- schedules -------------------------------------------------------------------------------------


def test_warmup_from_zero_then_cosine_to_zero():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 1e-4, 1.0, 20)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 130)
    schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm, cosine], [20])
    dbg = train(model, regression, F.mse_loss, optimizer, 150, schedule)
    assert dbg.loss_history[-1] < 0.2 * dbg.loss_history[0]
    assert is_quiet(dbg)


def test_warm_restarts():
    model = mlp(12, 32, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 40)
    dbg = train(model, classes, F.cross_entropy, optimizer, 160, schedule)
    assert is_quiet(dbg)


def test_one_cycle():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=120)
    assert is_quiet(train(model, regression, F.mse_loss, optimizer, 120, schedule))


# -- the end of learning ---------------------------------------------------------------------------


def test_plateau_at_the_floor_of_the_noise():
    model = nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-2)
    dbg = train(model, lambda: regression(noise=0.5), F.mse_loss, optimizer, 250)
    assert 0.15 < sum(dbg.loss_history[-50:]) / 50 < 0.4
    assert is_quiet(dbg)


def test_convergence_to_an_exact_zero():
    model = nn.Linear(4, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    x = torch.randn(16, 4)
    y = x.sum(1, keepdim=True)
    dbg = train(model, lambda: (x, y), F.mse_loss, optimizer, 300)
    assert dbg.loss_history[-1] < 1e-10
    assert is_quiet(dbg)


def test_hinge_loss_that_reaches_zero_and_leaves_no_gradient():
    model = mlp(12, 32, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    y = torch.arange(60) % 3
    x = F.one_hot(y, 12).float() * 4 + torch.randn(60, 12)
    dbg = train(model, lambda: (x, y), F.multi_margin_loss, optimizer, 150)
    assert dbg.loss_history[-1] == 0.0
    assert is_quiet(dbg)


def test_overfitting_one_batch():
    model = mlp(12, 64, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    batch = classes(16)
    dbg = train(model, lambda: batch, F.cross_entropy, optimizer, 150)
    assert dbg.loss_history[-1] < 1e-2
    assert is_quiet(dbg)


def test_labels_that_are_pure_noise():
    model = mlp(12, 32, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def make():
        return torch.randn(32, 12), torch.randint(0, 3, (32,))

    assert is_quiet(train(model, make, F.cross_entropy, optimizer, 60))


# -- hardly a run at all ---------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [1, 2, 3, 10])
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_very_short_runs(steps, kind):
    model = mlp()
    assert is_quiet(train(model, regression, F.mse_loss, kind(model.parameters(), lr=1e-2), steps))


def test_block_with_evaluation_only():
    model = mlp().eval()
    with NeuralDbg(model) as dbg, torch.no_grad():
        for _ in range(20):
            x, y = regression()
            dbg.record_metric("error", F.mse_loss(model(x), y))
    assert dbg.trace.step_count <= 1
    assert is_quiet(dbg)


def test_model_without_parameters():
    model = nn.Sequential(nn.Flatten(), nn.ReLU())
    with NeuralDbg(model) as dbg:
        for _ in range(5):
            model(torch.randn(4, 2, 3))
    assert is_quiet(dbg)


def test_model_without_parameters_in_front_of_one_that_learns():
    front, model = nn.Sequential(nn.Flatten(), nn.Tanh()), mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with NeuralDbg({"front": front, "model": model}) as dbg:
        for _ in range(60):
            x, y = regression()
            loss = F.mse_loss(model(front(x)), y)
            update(loss, optimizer)
            dbg.record_loss(loss)
    assert is_quiet(dbg)


def test_empty_block():
    with NeuralDbg(mlp()) as dbg:
        pass
    assert dbg.trace.step_count == 0
    assert dbg.loss_history == []
    assert is_quiet(dbg)


def test_session_that_is_never_entered():
    assert is_quiet(NeuralDbg(mlp()))


@pytest.mark.parametrize("kind", ["classes", "numbers"])
def test_polishing_a_model_that_fits_already_with_a_small_rate(kind):
    is_classes = kind == "classes"
    model = mlp(12, out=3) if is_classes else mlp()
    make = classes if is_classes else regression
    criterion = F.cross_entropy if is_classes else F.mse_loss
    first = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(250):
        x, y = make()
        update(criterion(model(x), y), first)
    is_quiet(train(model, make, criterion, torch.optim.Adam(model.parameters(), lr=3e-5), 150))
