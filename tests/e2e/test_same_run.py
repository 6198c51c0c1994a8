# SPDX-License-Identifier: MIT
"""Promise 1: the watched run is the run. Weights bit-equal, nothing kept, nothing left behind."""

from __future__ import annotations

import contextlib
import copy
import gc
import io
import weakref
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg

STEPS = 50
Run = Callable[[Callable[[object], object]], dict[str, torch.Tensor]]


def weights(*models: nn.Module) -> dict[str, torch.Tensor]:
    return {
        f"{i}.{name}": value.clone()
        for i, model in enumerate(models)
        for name, value in model.state_dict().items()
    }


def mlp_with_dropout(watch):
    model = nn.Sequential(
        nn.Linear(10, 32),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(32, 32),
        nn.GELU(),
        nn.Linear(32, 1),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with watch(model) as dbg:
        for _ in range(STEPS):
            x = torch.randn(16, 10)
            loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
    return weights(model)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )
        self.last = nn.ReLU(inplace=True)

    def forward(self, x):
        out = self.body(x)
        out += x
        return self.last(out)


def cnn_with_batchnorm_in_place(watch):
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(inplace=True), Residual(8), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(8 * 16, 4),
    )  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    with watch(model) as dbg:
        for step in range(STEPS):
            x, y = torch.randn(8, 3, 8, 8), torch.randint(0, 4, (8,))
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            dbg.record_loss(loss)
            if step % 10 == 9:
                model.eval()
                with torch.no_grad():
                    model(x)
                model.train()
    return weights(model)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 12)
        self.lstm = nn.LSTM(12, 16, num_layers=2, dropout=0.2, batch_first=True)
        self.out = nn.Linear(16, 5)

    def forward(self, ids):
        states, (last, _) = self.lstm(self.embed(ids))
        return {"scores": self.out(states), "last": last}


def lstm_with_dict_output(watch):
    model = Tagger()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    with watch(model) as dbg:
        for _ in range(STEPS):
            ids = torch.randint(0, 20, (6, 9))
            loss = F.cross_entropy(model(ids=ids)["scores"].flatten(0, 1), (ids % 5).flatten())
            optimizer.zero_grad(set_to_none=False)
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
    return weights(model)


def transformer_with_multihead_attention(watch):
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.1, batch_first=True)
    model = nn.Sequential(nn.Linear(5, 16), nn.TransformerEncoder(layer, 2), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with watch(model) as dbg:
        for _ in range(STEPS):
            x = torch.randn(4, 7, 5)
            loss = (model(x).squeeze(-1) - x.sum(-1)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
    return weights(model)


class TiedLanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(30, 16)
        self.body = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 30, bias=False)
        self.head.weight = self.token.weight

    def forward(self, ids):
        return self.head(self.body(self.token(ids))[0])


def tied_language_model(watch):
    model = TiedLanguageModel()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    with watch(model) as dbg:
        for _ in range(STEPS):
            ids = torch.randint(0, 30, (4, 9))
            loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            dbg.record_loss(loss.item())
    return weights(model)


def gan_with_two_optimizers(watch):
    g = nn.Sequential(
        nn.Linear(4, 16), nn.BatchNorm1d(16), nn.LeakyReLU(0.2, inplace=True), nn.Linear(16, 2)
    )
    d = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    og = torch.optim.Adam(g.parameters(), lr=1e-3, betas=(0.5, 0.9))
    od = torch.optim.Adam(d.parameters(), lr=1e-3, betas=(0.5, 0.9))
    with watch({"G": g, "D": d}) as dbg:
        for _ in range(STEPS):
            real, fake = torch.randn(16, 2) + 2, g(torch.randn(16, 4))
            od.zero_grad()
            (F.softplus(-d(real)) + F.softplus(d(fake.detach()))).mean().backward()
            od.step()
            og.zero_grad()
            loss = F.softplus(-d(fake)).mean()
            loss.backward()
            og.step()
            dbg.record_loss(loss.item())
    return weights(g, d)


def gradient_accumulation(watch):
    model = nn.Sequential(nn.Linear(6, 24), nn.SiLU(), nn.LayerNorm(24), nn.Linear(24, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model) as dbg:
        for _ in range(STEPS):
            for _ in range(4):
                x, y = torch.randn(8, 6), torch.randint(0, 3, (8,))
                loss = F.cross_entropy(model(x), y)
                (loss / 4).backward()
            optimizer.step()
            optimizer.zero_grad()
            dbg.record_loss(loss.item())
    return weights(model)


def bf16_autocast(watch):
    model = nn.Sequential(
        nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.ReLU(True), nn.Linear(32, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with watch(model) as dbg:
        for _ in range(STEPS):
            x = torch.randn(16, 12)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = (model(x).float().squeeze(1) - x.mean(1)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
    return weights(model)


def lbfgs_closure(watch):
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)
    x = torch.randn(32, 3)
    y = x.prod(1, keepdim=True)
    with watch(model) as dbg:
        for _ in range(10):

            def closure():
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                return loss

            dbg.record_loss(optimizer.step(closure))
    return weights(model)


def checkpointed_and_grad_scaled(watch):
    from torch.utils.checkpoint import checkpoint

    first, second = (
        nn.Linear(8, 32),
        nn.Sequential(nn.Dropout(0.1), nn.Linear(32, 32), nn.ReLU(True)),
    )
    model = nn.ModuleDict({"first": first, "second": second, "head": nn.Linear(32, 1)})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with watch(model) as dbg:
        for _ in range(STEPS):
            x = torch.randn(16, 8)
            hidden = checkpoint(second, torch.relu(first(x)), use_reentrant=False)
            loss = (model["head"](hidden).squeeze(1) - x.sum(1)).pow(2).mean()
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            dbg.record_loss(loss.item())
    return weights(model)


ARCHITECTURES = [
    mlp_with_dropout, cnn_with_batchnorm_in_place, lstm_with_dict_output,
    transformer_with_multihead_attention, tied_language_model, gan_with_two_optimizers,
    gradient_accumulation, bf16_autocast, lbfgs_closure, checkpointed_and_grad_scaled,
]  # fmt: skip


class Unwatched(contextlib.AbstractContextManager):
    def __init__(self, model):
        pass

    def __exit__(self, *_):
        return None

    def record_loss(self, *_, **__):
        pass


@pytest.mark.parametrize("train", ARCHITECTURES, ids=lambda f: f.__name__)
def test_watched_weights_are_bit_equal(train):
    torch.manual_seed(7)
    plain = train(Unwatched)
    state = torch.get_rng_state()
    torch.manual_seed(7)
    sessions = []

    def watch(model):
        sessions.append(NeuralDbg(model))
        return sessions[-1]

    watched = train(watch)
    assert plain.keys() == watched.keys()
    for name, value in plain.items():
        assert torch.equal(value, watched[name]), name
    assert torch.equal(state, torch.get_rng_state())
    assert sessions[0].trace.run.warnings == ()
    assert sessions[0].trace.step_count == (10 if train is lbfgs_closure else STEPS)


@pytest.mark.parametrize("train", ARCHITECTURES, ids=lambda f: f.__name__)
def test_run_on_pure_noise_or_plain_task_names_no_failure(train):
    torch.manual_seed(7)
    sessions = []

    def watch(model):
        sessions.append(NeuralDbg(model))
        return sessions[-1]

    train(watch)
    assert sessions[0].explain_failure() == []


def hooks_of(model):
    names = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [len(getattr(m, name)) for m in model.modules() for name in names]


@pytest.mark.parametrize("raises", [False, True])
def test_leaving_the_block_removes_every_hook(raises):
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.LSTM(2, 2))
    originals = (torch.autograd.backward, torch.nn.utils.clip_grad._get_total_norm)
    before = hooks_of(model)
    with contextlib.suppress(ZeroDivisionError), NeuralDbg(model):
        assert hooks_of(model) != before
        if raises:
            raise ZeroDivisionError
    assert hooks_of(model) == before
    assert (torch.autograd.backward, torch.nn.utils.clip_grad._get_total_norm) == originals


def test_no_activation_outlives_its_step():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    alive = []
    with NeuralDbg(model) as dbg:
        for _ in range(3):
            x = torch.randn(5, 4)
            hidden = model[0](x)
            out = model[2](model[1](hidden))
            loss = out.pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
            alive += [weakref.ref(t) for t in (x, hidden, out, loss)]
        del x, hidden, out, loss
        gc.collect()
        assert [ref() for ref in alive[:8]] == [None] * 8
    assert [ref() for ref in alive] == [None] * len(alive)


def test_model_copies_and_pickles_inside_the_block():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with NeuralDbg(model) as dbg:
        for _ in range(4):
            average = copy.deepcopy(model)
            loss = (model(torch.ones(5, 4)) - average(torch.ones(5, 4)).detach() + 1).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        again = torch.load(file, weights_only=False)
        again(torch.ones(2, 4))
    calls = dbg.trace.facts.activation[:, :, 0]
    assert (calls == 1).all()
