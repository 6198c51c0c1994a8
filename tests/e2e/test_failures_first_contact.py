# SPDX-License-Identifier: MIT
"""What a new user tries first: runs that cannot train at all, agents, and calls with no number."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg


def train(model, losses, optimizer=None, metric=None):
    """Train on the losses that `losses(step)` makes; `metric` names what it returns beside them."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model) as dbg:
        for step in range(losses.steps):
            loss = losses(step)
            if metric:
                loss, value = loss
                dbg.record_metric(metric, value)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    return dbg


def batches(steps):
    """Return a decorator that says how many batches there are."""

    def mark(function):
        function.steps = steps
        return function

    return mark


def perceptron(*sizes, activation=nn.Tanh):
    layers = [
        part for a, b in itertools.pairwise(sizes) for part in (nn.Linear(a, b), activation())
    ]
    return nn.Sequential(*layers[:-1])


# -- half precision --------------------------------------------------------------------------


def halved(scale, steps=16):
    """Train in pure float16 with losses so small that their gradients round to 0, or not."""
    model = perceptron(8, 32, 3).half()

    @batches(steps)
    def losses(step):
        x = torch.randn(64, 8).half()
        # Weighted less and less, as by a schedule: the loss falls though no weight moves.
        return F.cross_entropy(model(x), (x[:, 0] > 0).long()) * scale * (1.0 - 0.03 * step)

    return train(model, losses)


def test_gradients_that_all_round_to_zero_are_named_whatever_the_loss_does(seed):
    dbg = halved(1e-6)
    assert dbg.loss_history[-1] < 0.8 * dbg.loss_history[0]
    first = dbg.explain_failure()[0]
    assert (first.cause, first.onset) == ("half_precision_underflow", 0)


def test_half_precision_with_sound_gradients_is_quiet(seed):
    assert halved(1.0).explain_failure() == []


def test_a_hinge_in_half_precision_that_is_done_is_quiet():
    model = nn.Linear(4, 1).half()

    @batches(60)
    def losses(_step):
        x = torch.randn(16, 4).half()
        y = torch.sign(x[:, :1])
        return torch.relu(0.05 - y * (model(x) + 2 * x[:, :1])).mean()

    assert train(model, losses).explain_failure() == []


# -- weights that are broken before the first step ---------------------------------------------


@pytest.mark.parametrize("when", [0, 6])
def test_a_parameter_that_is_broken_before_a_step_is_told_by_name(when):
    model = perceptron(8, 16, 16, 3)

    @batches(12)
    def losses(step):
        if step == when:
            with torch.no_grad():
                model[2].weight[3, 5] = float("nan")
        x = torch.randn(16, 8)
        return F.cross_entropy(model(x), (x[:, 0] > 0).long())

    first = train(model, losses).explain_failure()[0]
    assert (str(first.failure_type), first.layer, first.onset) == ("numerical_error", "2", when)
    assert "'2.weight' was already not finite (1 nan of 256 values)" in first.description
    assert ("before the first step" in first.description) == (when == 0)


# -- nothing is trained ------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 6])
def test_a_loop_without_a_backward_pass_is_told_so(count):
    model = perceptron(4, 8, 2)
    with NeuralDbg(model) as dbg:
        for _ in range(count):
            dbg.record_loss(F.cross_entropy(model(torch.randn(8, 4)), torch.ones(8).long()))
    assert dbg.explain_failure() == []
    assert "but no backward pass and no optimizer step was seen" in repr(dbg)
    assert "but no backward pass and no optimizer step was seen" in dbg.summary()


def test_one_sound_step_is_not_told_so():
    model = perceptron(4, 8, 2)
    step = batches(1)(lambda _step: F.cross_entropy(model(torch.randn(8, 4)), torch.ones(8).long()))
    assert repr(train(model, step)) == "<NeuralDbg: 1 step, no failure found>"


@pytest.mark.parametrize("value", [None, "high", [1.0, 2.0], {"loss": 1.0}, 1j, torch.tensor(1j)])
def test_what_is_no_number_is_refused_with_what_would_do(value):
    with NeuralDbg(perceptron(4, 2)) as dbg:
        with pytest.raises(TypeError, match="a loss or metric is a number or a real tensor, not"):
            dbg.record_loss(value)
        with pytest.raises(TypeError, match="a loss or metric is a number or a real tensor, not"):
            dbg.record_metric("accuracy", value)
        if value is None:
            with pytest.raises(TypeError, match="does the function that computes it return it"):
                dbg.record_loss(value)


# -- agents ------------------------------------------------------------------------------------


def bandit(sign, metric, steps=240):
    """Train a policy on a contextual bandit by REINFORCE; `sign` -1 punishes what is rewarded."""
    model = perceptron(4, 32, 3)
    best = torch.randn(4, 3)

    @batches(steps)
    def losses(_step):
        x = torch.randn(64, 4)
        policy = torch.distributions.Categorical(logits=model(x))
        action = policy.sample()
        reward = (action == (x @ best).argmax(1)).float()
        loss = -sign * (policy.log_prob(action) * (reward - reward.mean())).mean()
        return loss, reward.mean() if metric != "cost" else -reward.mean()

    return train(model, losses, torch.optim.Adam(model.parameters(), lr=0.01), metric)


def test_a_policy_that_flees_its_reward_has_the_wrong_sign(seed):
    first = bandit(-1, "reward").explain_failure()[0]
    assert (first.cause, first.onset) == ("wrong_loss_sign", 0)
    assert "'reward' fell from" in first.description


@pytest.mark.parametrize(("sign", "metric"), [(1, "mean_return"), (-1, "cost")])
def test_a_policy_that_learns_or_whose_figure_is_no_reward_is_quiet(sign, metric):
    assert bandit(sign, metric).explain_failure() == []


def aiming(sign, spread, steps=200):
    """Train a Gaussian policy to hit what it is shown; `sign` -1 punishes what is rewarded."""
    model = perceptron(4, 32, 2)

    @batches(steps)
    def losses(_step):
        x = torch.randn(64, 4)
        out = model(x)
        width = 0.5 if spread == "fixed" else 0.1 + F.softplus(out[:, 1])
        policy = torch.distributions.Normal(out[:, 0], width)
        action = policy.sample()
        reward = -(action - x[:, 0]).abs()
        loss = -sign * (policy.log_prob(action) * (reward - reward.mean())).mean()
        return loss, reward.mean()

    return train(model, losses, torch.optim.Adam(model.parameters(), lr=0.01), "ep_rew_mean")


@pytest.mark.parametrize("spread", ["fixed", "learned"])
def test_a_gaussian_policy_that_flees_its_reward_has_the_wrong_sign(seed, spread):
    first = aiming(-1, spread).explain_failure()[0]
    assert (first.cause, first.onset) == ("wrong_loss_sign", 0)
    assert "'ep_rew_mean' fell from" in first.description


@pytest.mark.parametrize("spread", ["fixed", "learned"])
def test_a_gaussian_policy_that_learns_is_quiet(spread):
    assert aiming(1, spread).explain_failure() == []


def values(gamma, steps=400):
    """Fit action values to targets of a copy that follows every 20 steps, as DQN does."""
    model = perceptron(4, 64, 2, activation=nn.ReLU)
    target = copy.deepcopy(model)

    @batches(steps)
    def losses(step):
        if step % 20 == 0:
            target.load_state_dict(model.state_dict())
        state, action = torch.randn(64, 4), torch.randint(0, 2, (64,))
        with torch.no_grad():
            after = target(state + 0.1 * torch.randn(64, 4)).max(1).values
        wanted = (state[:, 0] > 0).float() + 1 + gamma * after
        return F.mse_loss(model(state).gather(1, action[:, None])[:, 0], wanted)

    return train(model, losses, torch.optim.Adam(model.parameters(), lr=1e-3))


def test_values_that_feed_on_themselves_through_a_copy_diverge(seed):
    first = values(1.5).explain_failure()[0]
    assert first.cause == "value_divergence"
    assert "computed from the model's own values" in first.description


def test_values_that_are_discounted_are_quiet():
    assert values(0.99).explain_failure() == []


# -- gradients that are gone, or beyond all bounds, at the start -------------------------------


class Recurrent(nn.Module):
    """A ReLU recurrence that starts as a multiple of the identity."""

    def __init__(self, gain):
        super().__init__()
        self.cell = nn.RNN(4, 32, nonlinearity="relu", batch_first=True)
        self.head = nn.Linear(32, 1)
        with torch.no_grad():
            self.cell.weight_hh_l0.copy_(gain * torch.eye(32))

    def forward(self, x):
        states, _ = self.cell(x)
        return self.head(states[:, -1])


@pytest.mark.parametrize("gain", [1.5, 0.9])
def test_a_recurrence_that_expands_is_told_from_a_high_lr(seed, gain):
    model = Recurrent(gain)

    @batches(60)
    def losses(_step):
        x = torch.rand(32, 30, 4)
        return F.mse_loss(model(x), x.mean((1, 2))[:, None])

    dbg = train(model, losses, torch.optim.SGD(model.parameters(), lr=0.01))
    causes = [h.cause for h in dbg.explain_failure()]
    assert causes[:1] == (["init_too_large"] if gain > 1 else [])


def test_the_gradient_of_two_hundred_layers_is_gone_and_no_lr_is_to_blame():
    model = perceptron(8, *[24] * 200, 3, activation=nn.ReLU)

    @batches(40)
    def losses(_step):
        x = torch.randn(32, 8)
        return F.cross_entropy(model(x), (x[:, 0] > 0).long())

    first = train(model, losses).explain_failure()[0]
    assert (first.cause, first.layer) == ("deep_without_residual", "0")
    assert str(first.failure_type) == "vanishing_gradients"
