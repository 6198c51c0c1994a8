# SPDX-License-Identifier: MIT
"""Steps count themselves, whatever the shape of the loop; what belongs to which step."""

from __future__ import annotations

import math
import threading

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from neuraldbg import NeuralDbg
from neuraldbg.capture.ledger import is_divided
from neuraldbg.capture.segment import Segment, merge
from neuraldbg.schema.facts import InputStat
from neuraldbg.trace import LEDGER_FIELDS

N = 12


def column(dbg, name):
    return dbg.trace.facts.ledger[:, LEDGER_FIELDS.index(name)].tolist()


def linear():
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def batch_loss(model, size=8):
    x = torch.randn(size, 4)
    return F.mse_loss(model(x), x.sum(1, keepdim=True))


@pytest.mark.parametrize("when", ["before", "after", "never"])
def test_one_optimizer_makes_one_step_each(when):
    model, optimizer = linear()
    sent = []
    with NeuralDbg(model) as dbg:
        for _ in range(N):
            loss = batch_loss(model)
            optimizer.zero_grad()
            loss.backward()
            if when == "before":
                dbg.record_loss(loss.item())
            optimizer.step()
            if when == "after":
                dbg.record_loss(loss.item())
            sent.append(loss.item())
    assert dbg.trace.step_count == N
    assert dbg.loss_history == pytest.approx(sent)
    assert column(dbg, "forwards") == [1] * N
    assert column(dbg, "steps") == [1] * N


def test_accumulated_batches_are_one_step():
    model, optimizer = linear()
    with NeuralDbg(model) as dbg:
        for _ in range(N):
            for _ in range(3):
                loss = batch_loss(model)
                (loss / 3).backward()
            optimizer.step()
            optimizer.zero_grad()
            dbg.record_loss(loss)
    assert dbg.trace.step_count == N
    assert column(dbg, "backwards") == [3] * N
    assert dbg.explain_failure() == []


def gan(critic_steps, *, records):
    g, d = nn.Linear(2, 2), nn.Linear(2, 1)
    og, od = torch.optim.SGD(g.parameters(), 0.01), torch.optim.SGD(d.parameters(), 0.01)
    with NeuralDbg({"G": g, "D": d}) as dbg:
        for _ in range(N):
            for _ in range(critic_steps):
                od.zero_grad()
                fake = g(torch.randn(8, 2)).detach()
                (F.softplus(-d(torch.randn(8, 2) + 1)) + F.softplus(d(fake))).mean().backward()
                od.step()
            og.zero_grad()
            loss = F.softplus(-d(g(torch.randn(8, 2)))).mean()
            loss.backward()
            og.step()
            if records:
                dbg.record_loss(loss.item())
    return dbg


def test_two_optimizers_with_one_recorded_loss_are_one_step():
    dbg = gan(1, records=True)
    assert dbg.trace.step_count == N
    assert column(dbg, "steps") == [2] * N
    assert column(dbg, "is_cleared") == [1] * N


def test_several_critic_steps_are_steps_of_their_own():
    dbg = gan(3, records=True)
    assert 3 * N <= dbg.trace.step_count <= 4 * N
    assert sum(column(dbg, "steps")) == 4 * N


def test_two_optimizers_without_a_recorded_loss_lose_no_step():
    assert sum(column(gan(1, records=False), "steps")) == 2 * N


def test_evaluation_passes_are_kept_apart():
    model, optimizer = linear()
    with NeuralDbg(model) as dbg:
        for _ in range(N):
            loss = batch_loss(model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
            model.eval()
            with torch.no_grad():
                model(1e6 * torch.ones(5, 4))
            model.train()
    assert dbg.trace.step_count == N
    assert column(dbg, "eval_forwards") == [1] * N
    assert dbg.trace.facts.inputs[:, 0, 3].max() < 100
    assert dbg.trace.facts.activation[:, 0, 4].max() < 100


def test_no_optimizer_step_makes_backwards_count():
    model, optimizer = linear()
    count = 40
    with NeuralDbg(model) as dbg:
        for _ in range(count):
            loss = batch_loss(model, size=64)
            optimizer.zero_grad()
            loss.backward()
            dbg.record_loss(loss)
    assert abs(dbg.trace.step_count - count) <= 1
    assert [h.cause for h in dbg.explain_failure()][:1] == ["missing_optimizer_step"]


def test_labels_follow_the_user():
    model, optimizer = linear()
    with NeuralDbg(model) as dbg:
        for step in range(100, 100 + N):
            dbg.step = step
            loss = batch_loss(model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    assert dbg.trace.loss.steps.tolist() == list(range(100, 100 + N))


def test_an_unrelated_model_in_the_same_block_is_not_recorded():
    model, optimizer = linear()
    other, its_optimizer = linear()
    sent = []
    with NeuralDbg(model) as dbg:
        for _ in range(N):
            loss = batch_loss(model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            sent.append(loss.item())
            for _ in range(2):
                its_optimizer.zero_grad()
                (1e6 * batch_loss(other)).backward()
                its_optimizer.step()
    assert dbg.trace.step_count == N
    assert dbg.loss_history == pytest.approx(sent)


def test_a_skipped_scaler_step_is_a_step_and_no_failure():
    model, optimizer = linear()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=10_000)
    with NeuralDbg(model) as dbg:
        for step in range(30):
            loss = batch_loss(model) * (1e30 if step == 0 else 1)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            dbg.record_loss(loss.item() if step else 1.0)
    assert dbg.trace.step_count == 30
    assert column(dbg, "skipped")[0] == 1
    assert sum(column(dbg, "skipped")) < 5
    assert dbg.explain_failure() == []


def test_scale_that_is_halved_to_zero_stops_nothing():
    model, optimizer = linear()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**-148)
    with NeuralDbg(model) as dbg:
        for _ in range(N):
            optimizer.zero_grad()
            loss = batch_loss(model) * torch.tensor(float("inf"))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            dbg.record_loss(loss.item())
    assert scaler.get_scale() == 0.0
    assert dbg.trace.run.warnings == ()
    assert dbg.trace.step_count == N


def test_the_interrupted_step_is_recorded_and_the_exception_passes():
    model, optimizer = linear()
    error, dbg = KeyError("mine"), NeuralDbg(model)

    def train():
        with dbg:
            for step in range(N):
                loss = batch_loss(model)
                if step == 5:
                    raise error
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss)

    with pytest.raises(KeyError) as caught:
        train()
    assert caught.value is error
    assert dbg.trace.step_count == 6
    assert "mine" in (dbg.trace.exception or "")


@given(
    st.lists(
        st.builds(
            Segment,
            forwards=st.integers(0, 5),
            backwards=st.integers(0, 5),
            steps=st.integers(0, 2),
            is_cleared=st.booleans(),
            batch_size=st.integers(0, 9),
            backward_losses=st.lists(st.floats(-5, 5), max_size=3),
        ),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=50, deadline=None)
def test_merging_segments_adds_counts_and_joins_flags(segments):
    forwards = sum(s.forwards for s in segments)
    cleared = all(s.is_cleared for s in segments)
    losses = [x for s in segments for x in s.backward_losses]
    joined = merge(segments)
    assert joined.forwards == forwards
    assert joined.is_cleared is cleared
    values = joined.loss_values()
    assert values == ({"backward": math.fsum(losses) / len(losses)} if losses else {})


def test_division_of_the_loss_is_recognised():
    x = torch.ones(3, requires_grad=True)
    loss = (x**2).mean()
    assert not is_divided(loss, is_scaled=False)
    assert is_divided(loss / 4, is_scaled=False)
    assert is_divided(loss * 0.25, is_scaled=False)
    assert is_divided((loss / 4) * torch.tensor(1024.0), is_scaled=True)
    assert not is_divided(loss * 4, is_scaled=False)


@pytest.mark.filterwarnings("ignore:Complex modules are a new feature:UserWarning")
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.complex64])
def test_models_of_every_dtype_are_watched(dtype):
    model = nn.Linear(4, 4).to(dtype)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model) as dbg:
        for _ in range(N):
            loss = model(torch.randn(8, 4).to(dtype)).abs().float().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    assert dbg.trace.run.warnings == ()
    assert dbg.trace.step_count == N
    assert (dbg.trace.facts.parameter[:, :, 0] > 0).all()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_inputs_without_plain_data_are_passed_over():
    class Picky(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 1)

        def forward(self, x, *_):
            return self.a(x)

    model = Picky()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    odd = [
        torch.zeros(3, 3).to_sparse(),
        torch.randn(3, 3, device="meta"),
        torch.nested.nested_tensor([torch.randn(2, 3), torch.randn(4, 3)]),
        torch.ones(3, dtype=torch.bool),
        torch.zeros(0, 3),
    ]
    with NeuralDbg(model) as dbg:
        for _ in range(N):
            loss = model(torch.randn(8, 3), *odd).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    assert dbg.trace.run.warnings == ()
    assert dbg.trace.step_count == N


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support:UserWarning")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_input_is_measured_by_the_values_that_it_stores(layout):
    class Hop(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 1)

        def forward(self, x, links):
            return links @ self.a(x)

    links = torch.diag(torch.tensor([1.0, 2.0, 0.5, -3.0]))
    model = Hop()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with NeuralDbg(model) as dbg:
        for step in range(N):
            given = links / (step != 2)  # 0 / 0 is stored too
            given = given.to_sparse(layout=layout)
            loss = model(torch.randn(4, 3), given).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    info = dbg.trace.run.inputs[1]
    assert (info.name, info.shape, info.dtype) == (":1", (4, 4), "float32")
    figures = dbg.trace.facts.inputs[:, 1]
    assert figures[0, InputStat.MEAN] == pytest.approx(0.125)
    assert (figures[0, InputStat.MIN], figures[0, InputStat.MAX]) == (-3.0, 2.0)
    assert figures[:3, InputStat.NAN].tolist() == [0.0, 0.0, 1.0]
    assert dbg.explain_failure()[0].cause == "nan_in_input"


def test_closure_that_is_evaluated_often_is_no_accumulation():
    model, _ = linear()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    x = torch.randn(16, 4)

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
        loss.backward()
        return loss

    with NeuralDbg(model) as dbg:
        for _ in range(N):
            dbg.record_loss(optimizer.step(closure))
    assert dbg.trace.step_count == N
    assert [o for o in dbg.trace.observations if o.kind == "accumulation_unscaled"] == []


def test_training_on_another_thread_is_followed():
    model, optimizer = linear()

    def train(dbg):
        torch.set_num_threads(1)
        for _ in range(N):
            loss = batch_loss(model)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)

    with NeuralDbg(model) as dbg:
        thread = threading.Thread(target=train, args=(dbg,))
        thread.start()
        thread.join()
    assert dbg.trace.step_count == N
    assert column(dbg, "backwards") == [1] * N
