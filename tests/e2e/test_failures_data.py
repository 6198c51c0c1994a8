# SPDX-License-Identifier: MIT
"""NaN, Inf, shifts, drifts and outliers in the data: real programs, told with step."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg

pytestmark = pytest.mark.usefixtures("seed")


def table(rows=32, width=8):
    x = torch.randn(rows, width)
    return x, (x[:, 0] - 2 * x[:, 1]).unsqueeze(1)


def mlp():
    return nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1))


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.deep = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, stride=2)
        self.head = nn.Linear(16, 4)

    def forward(self, image):
        return self.head(F.relu(self.deep(F.relu(self.conv(image)))).mean((2, 3)))


def pictures(rows=16):
    y = torch.randint(0, 4, (rows,))
    x = torch.randn(rows, 3, 8, 8)
    x[:, 0] += y.view(-1, 1, 1) - 1.5
    return x, y


class Forecaster(nn.Module):
    """Takes its inputs by keyword."""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(2, 16, batch_first=True), nn.Linear(16 + 1, 1)

    def forward(self, *, series, level):
        return self.head(torch.cat([self.rnn(series)[0][:, -1], level], 1))


def series(rows=16):
    x = torch.randn(rows, 10, 2).cumsum(1) / 3
    return x, x[:, -1, :1], x[:, -1].sum(1, keepdim=True)


def train(model, optimizer, make, steps, *, criterion, when="after", every=0, validation=None):
    """Train; return the session, and the losses with those on `validation` every so many steps.

    The loss is recorded before or after the step; with `"evaluation"` so are those on `validation`,
    and the budget is all that there is, since a thinned step tells nothing of its inputs.
    """
    losses, validated = [], []
    with NeuralDbg(model, overhead=1.0 if when == "evaluation" else 0.05) as dbg:
        for step in range(steps):
            inputs, y = make(step)
            loss = criterion(call(model, inputs), y)
            if when == "before":
                dbg.record_loss(loss.item())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if when != "before":
                dbg.record_loss(loss)
            losses.append(loss.item())
            if every and step % every == every - 1:
                model.eval()
                with torch.no_grad():
                    held_out, goal = validation or (inputs, y)
                    validated.append(criterion(call(model, held_out), goal).item())
                model.train()
                if when == "evaluation":
                    dbg.record_metric("validation loss", validated[-1])
    return dbg, losses, validated


def call(model, inputs):
    return model(**inputs) if isinstance(inputs, dict) else model(inputs)


def train_mlp(spoil, steps=70, **options):
    def make(step):
        x, y = table()
        return spoil(step, x), y

    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    return train(
        model, optimizer, make, steps, criterion=F.mse_loss, validation=table(64), **options
    )


def train_pictures(spoil, steps=70, **options):
    def make(step):
        x, y = pictures()
        return spoil(step, x), y

    model, held_out = Convolutional(), pictures(64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03, momentum=0.8)
    return train(
        model, optimizer, make, steps, criterion=F.cross_entropy, validation=held_out, **options
    )


def train_series(spoil, steps=70, **options):
    def make(step):
        x, level, y = series()
        return {"series": spoil(step, x), "level": level}, y

    model, (x, level, y) = Forecaster(), series(64)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    held_out = ({"series": x, "level": level}, y)
    return train(
        model, optimizer, make, steps, criterion=F.smooth_l1_loss, validation=held_out, **options
    )


TRAININGS = pytest.mark.parametrize(
    ("training", "first"),
    [(train_mlp, "0"), (train_pictures, "conv"), (train_series, "rnn")],
    ids=["table", "pictures", "series"],
)


def is_broken(losses, step):
    return (
        not torch.tensor(losses[step:]).isfinite().all()
        and torch.tensor(losses[:step]).isfinite().all()
    )


# -- NaN and Inf -----------------------------------------------------------------------------


@TRAININGS
@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_one_value_that_is_not_finite(explained, training, first, value):
    def spoil(step, x):
        if step == 33:
            x.view(-1)[17] = float(value)
        return x

    dbg, losses, _ = training(spoil)
    assert is_broken(losses, 33)
    found = explained(dbg, "data_anomaly")
    found.check("data_anomaly", (None, first), (33, 33))
    state = "nan_detected" if value == "nan" else "inf_detected"
    explained(dbg, state).check("data_anomaly", (None, first), (33, 33))


@TRAININGS
def test_one_nan_is_no_sign_of_a_constant_feature(training, first):
    def spoil(step, x):
        if step == 33:
            x.view(-1)[17] = float("nan")
        return x

    dbg, _, _ = training(spoil)
    found = {h.cause: h.confidence for h in dbg.explain_failure()}
    assert found.get("zero_variance_feature", 0.0) < 0.1 < found["nan_in_input"]


def test_nan_in_the_second_input_only_and_on_the_first_step(explained):
    model = Forecaster()

    def make(step):
        x, level, y = series()
        return {"series": x, "level": level * float("nan") if step == 0 else level}, y

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    dbg, losses, _ = train(model, optimizer, make, 12, criterion=F.mse_loss, when="before")
    assert is_broken(losses, 0)
    explained(dbg, "nan_detected").check("data_anomaly", (None, "head"), (0, 0))


def test_logarithm_of_an_empty_count_in_preprocessing(explained):
    def spoil(step, x):
        counts = (x.abs() * 10).round() + 1
        if step == 52:
            counts[3, 2] = 0
        return counts.log()

    dbg, losses, _ = train_mlp(spoil, every=10)
    assert is_broken(losses, 52)
    explained(dbg, "inf_detected").check("data_anomaly", (None, "0"), (52, 52))


def test_nan_that_a_relu_and_a_max_hide_from_the_loss_of_its_step(explained):
    """The rows with NaN are masked out of the loss, so that the loss itself stays finite."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with NeuralDbg(model) as dbg:
        for step in range(50):
            x, y = table()
            if step == 30:
                x[5, 5] = float("nan")
            kept = ~x.isnan().any(1)
            loss = F.mse_loss(model(x)[kept], y[kept])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
            if step == 30:
                assert loss.isfinite()
    assert any(not p.isfinite().all() for p in model.parameters())
    explained(dbg, "data_anomaly").check("data_anomaly", (None, "0"), (30, 30))


# -- shifts ----------------------------------------------------------------------------------


@TRAININGS
@pytest.mark.parametrize("kind", ["scale", "offset"])
def test_distribution_that_shifts_for_good(explained, training, first, kind):
    def spoil(step, x):
        if step < 80:
            return x
        return x * 6 if kind == "scale" else x + 5

    dbg, losses, _ = training(spoil, steps=130)
    assert sum(losses[80:84]) > 3 * sum(losses[76:80])
    explained(dbg, "distribution_shift").check("data_anomaly", (None, first), (79, 81))
    explained(dbg, "data_anomaly").check("data_anomaly", (None, first), (79, 81))


def test_normalisation_forgotten_after_resuming(explained):
    def spoil(step, x):
        return x * 255 if step >= 60 else x

    dbg, losses, _ = train_pictures(spoil, steps=100, when="before", every=20)
    assert losses[60] > 10 * max(losses[50:60])
    explained(dbg, "distribution_shift").check("data_anomaly", (None, "conv"), (59, 61))


def drifts(step, x):
    return x + max(0, step - 80) * 0.05


@TRAININGS
def test_distribution_that_drifts_slowly_is_told_by_the_recorded_validation(
    explained, training, first
):
    dbg, _, validated = training(drifts, steps=220, every=10, when="evaluation")
    assert validated[-1] > 2 * validated[7]  # what it knew, it forgets
    explained(dbg, "distribution_shift").check(
        "data_anomaly",
        (None, first),
        (70, 220),
        is_leading=False,  # few batches are measured here
    )


@TRAININGS
def test_distribution_that_drifts_slowly_is_noted_and_nothing_else_blamed(training, first):
    """A loss that follows a drift is that of a curriculum, too: no failure need be told."""
    dbg, _, _ = training(drifts, steps=220)
    noted = [event for event in dbg.events if event.to_state == "distribution_shift"]
    assert noted
    assert noted[0].layer in {None, first}
    assert noted[0].step >= 70
    assert {str(h.failure_type) for h in dbg.explain_failure()[:1]} <= {"data_anomaly"}


def test_gain_of_a_sensor_that_creeps_up(explained):
    def spoil(step, x):
        return x * 1.02 ** max(0, step - 100)

    dbg, _, validated = train_mlp(spoil, steps=240, when="evaluation", every=10)
    assert validated[-1] > 5 * validated[9]
    explained(dbg, "distribution_shift").check(
        "data_anomaly", (None, "0"), (90, 240), is_leading=False
    )


# -- outliers --------------------------------------------------------------------------------


@TRAININGS
@pytest.mark.parametrize("kind", ["batch", "sample"])
def test_outlier_of_one_batch(explained, training, first, kind, monkeypatch):
    """Watched in full: the loss rises too little for a thinned step to be looked at."""
    monkeypatch.setattr("neuraldbg.capture.budget.FULL_STEPS", 140)

    def spoil(step, x):
        if step == 110:
            if kind == "batch":
                return x * 60
            x[2] *= -5000
        return x

    dbg, losses, _ = training(spoil, steps=140)
    assert losses[110] > 2 * max(losses[100:110])
    explained(dbg, "outlier").check("data_anomaly", (None, first), (109, 111))
    explained(dbg, "data_anomaly").check("data_anomaly", (None, first), (109, 111))
    assert "distribution_shift" not in {event.to_state for event in dbg.events if event.step > 50}


def test_broken_sensor_in_one_column_of_one_batch(explained):
    def spoil(step, x):
        if step == 47:
            x[:, 6] = 1e5
        return x

    dbg, losses, _ = train_mlp(spoil, steps=80, every=9)
    assert losses[47] > 100 * max(losses[40:47])
    explained(dbg, "outlier").check("data_anomaly", (None, "0"), (46, 48))
