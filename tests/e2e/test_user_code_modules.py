# SPDX-License-Identifier: MIT
"""Whatever modules take, return and are: training is unharmed, steps are counted, all is quiet."""

from __future__ import annotations

import dataclasses
import warnings
from collections import OrderedDict, namedtuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from neuraldbg.schema.facts import ActivationStat

N = 25


def batch(rows=16, width=6):
    x = torch.randn(rows, width)
    return x, x[:, :2].sum(1, keepdim=True) - x[:, 2:3]


def mlp(width=6, hidden=16, out=1):
    return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, out))


def update(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def fit(watch, model, predict, make=batch, lr=1e-2, steps=N, kind=torch.optim.Adam):
    """Train `model` by `predict(model, x)` on a learnable task, and return it."""
    optimizer = kind(model.parameters(), lr=lr)
    with watch(model) as dbg:
        for _ in range(steps):
            x, y = make()
            loss = F.mse_loss(predict(model, x), y)
            update(loss, optimizer)
            dbg.record_loss(loss.item())
    return [model]


def activations(dbg, path):
    """Return `[T, stats]` of one layer."""
    row = [layer.path for layer in dbg.trace.run.layers].index(path)
    return dbg.trace.facts.activation[:, row]


def calls(dbg, path):
    return activations(dbg, path)[:, ActivationStat.CALLS].tolist()


# -- what a forward takes and returns --------------------------------------------------------------


class TupleBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 1)

    def forward(self, pair):
        x, scale = pair
        hidden = torch.relu(self.a(x) * scale)
        return self.b(hidden), hidden


def test_tuples_in_and_out(unharmed):
    dbg = unharmed(lambda watch: fit(watch, TupleBlock(), lambda m, x: m((x, 2.0))[0]), N)
    assert calls(dbg, "a") == [1] * N


class DictBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(3, 8), nn.Linear(3, 8)
        self.head = nn.Linear(16, 1)

    def forward(self, features):
        parts = {"l": self.left(features["l"]), "r": self.right(features["r"])}
        return {"nested": {"prediction": self.head(torch.tanh(torch.cat([*parts.values()], 1)))}}


def test_nested_dicts_in_and_out(unharmed):
    def predict(model, x):
        return model({"l": x[:, :3], "r": x[:, 3:]})["nested"]["prediction"]

    dbg = unharmed(lambda watch: fit(watch, DictBlock(), predict), N)
    assert calls(dbg, "head") == [1] * N


@dataclasses.dataclass
class Prediction:
    mean: torch.Tensor
    log_variance: torch.Tensor


Pair = namedtuple("Pair", "mean log_variance")  # noqa: PYI024 - as users write them


class Gaussian(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.body, self.mean = nn.Sequential(nn.Linear(6, 16), nn.SiLU()), nn.Linear(16, 1)
        self.log_variance = nn.Linear(16, 1)
        self.kind = kind

    def forward(self, x):
        hidden = self.body(x)
        return self.kind(self.mean(hidden), self.log_variance(hidden).clamp(-3, 3))


@pytest.mark.parametrize("kind", [Prediction, Pair])
def test_dataclass_and_named_tuple_outputs(unharmed, kind):
    def program(watch):
        model = Gaussian(kind)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                out = model(x)
                loss = F.gaussian_nll_loss(out.mean, y, out.log_variance.exp())
                update(loss, optimizer)
                dbg.record_loss(loss)
        return [model]

    dbg = unharmed(program, N)
    assert calls(dbg, "log_variance") == [1] * N


class ModelOutput(OrderedDict):
    """Like that of transformers: an ordered dict whose keys are attributes and whose [0] works."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, key):
        return super().__getitem__(key) if isinstance(key, str) else list(self.values())[key]


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.body = nn.Embedding(12, 8), nn.GRU(8, 16, batch_first=True)
        self.head = nn.Linear(16, 3)

    def forward(self, input_ids, attention_mask=None, labels=None, *, return_dict=True):
        states, _ = self.body(self.embed(input_ids))
        if attention_mask is not None:
            states = states * attention_mask.unsqueeze(-1)
        logits = self.head(states.mean(1))
        loss = None if labels is None else F.cross_entropy(logits, labels)
        return ModelOutput(loss=loss, logits=logits) if return_dict else (loss, logits)


def test_keyword_inputs_and_model_output_with_its_own_loss(unharmed):
    def program(watch):
        model = Classifier()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for _ in range(N):
                ids = torch.randint(0, 12, (16, 7))
                inputs = {
                    "input_ids": ids,
                    "attention_mask": torch.ones_like(ids),
                    "labels": ids[:, 0] % 3,
                }
                out = model(**inputs)
                assert out[0] is out.loss
                update(out.loss, optimizer)
                dbg.record_loss(out["loss"])
        return [model]

    dbg = unharmed(program, N)
    assert any("input_ids" in info.name for info in dbg.trace.run.inputs)


class Odd(nn.Module):
    """Its children return None, a number, a string and a list of tensors."""

    class Logger(nn.Module):
        def forward(self, x):
            self.seen = float(x.detach().abs().mean())

    class Count(nn.Module):
        def forward(self, x):
            return len(x)

    class Name(nn.Module):
        def forward(self, x):
            return "named"

    class Split(nn.Module):
        def forward(self, x):
            return list(x.chunk(2, 1))

    def __init__(self):
        super().__init__()
        self.log, self.count, self.name, self.split = (
            self.Logger(),
            self.Count(),
            self.Name(),
            self.Split(),
        )
        self.a, self.b = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, x):
        self.log(x)
        left, right = self.split(x)
        assert self.name(x) == "named"
        return self.b(torch.tanh(self.a(left) + self.a(right))) * (self.count(x) / len(x))


def test_modules_that_return_none_a_number_or_a_string(unharmed):
    dbg = unharmed(lambda watch: fit(watch, Odd(), lambda m, x: m(x)), N)
    assert calls(dbg, "a") == [2] * N


class Nothing(nn.Module):
    """Keeps its loss on itself and returns nothing at all."""

    def __init__(self):
        super().__init__()
        self.body = mlp()

    def forward(self, x, y):
        self.loss = F.mse_loss(self.body(x), y)


def test_root_that_returns_nothing(unharmed):
    def program(watch):
        model = Nothing()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for _ in range(N):
                model(*batch())
                update(model.loss, optimizer)
                dbg.record_loss(model.loss)
        del model.loss
        return [model]

    unharmed(program, N)


def test_integer_boolean_complex_and_empty_tensors_pass_through(unharmed):
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.spectrum, self.head = nn.Identity(), nn.Linear(8, 1)

        def forward(self, x, mask, empty):
            spectrum = self.spectrum(torch.fft.rfft(x))
            features = torch.cat([spectrum.real, spectrum.imag], 1)
            return self.head(features).where(mask, 0.0), empty

    def program(watch):
        model = Mixed()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                mask = torch.ones(16, 1, dtype=torch.bool)
                loss = F.mse_loss(model(x, mask, torch.empty(0, 3))[0], y)
                update(loss, optimizer)
                dbg.record_loss(loss)
        return [model]

    unharmed(program, N)


# -- kinds of layers -------------------------------------------------------------------------------


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.rnn, self.head = kind(6, 12, num_layers=2, batch_first=True), nn.Linear(12, 1)

    def forward(self, x):
        states, _ = self.rnn(x.unsqueeze(1).expand(-1, 4, -1))
        return self.head(states[:, -1])


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(unharmed, kind):
    dbg = unharmed(lambda watch: fit(watch, Recurrent(kind), lambda m, x: m(x)), N)
    assert calls(dbg, "rnn") == [1] * N


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(1, 12, batch_first=True), nn.Linear(12, 1)

    def forward(self, x):
        lengths = torch.arange(len(x)) % 3 + 4
        packed = nn.utils.rnn.pack_padded_sequence(
            x.unsqueeze(-1), lengths, batch_first=True, enforce_sorted=False
        )
        _, (last, _) = self.rnn(packed)
        return self.head(last[-1])


def test_packed_sequences(unharmed):
    unharmed(lambda watch: fit(watch, Packed(), lambda m, x: m(x)), N)


class Cells(nn.Module):
    """A recurrence by hand: one cell called once per time step."""

    def __init__(self):
        super().__init__()
        self.cell, self.head = nn.GRUCell(1, 12), nn.Linear(12, 1)

    def forward(self, x):
        state = x.new_zeros(len(x), 12)
        for t in range(x.shape[1]):
            state = self.cell(x[:, t : t + 1], state)
        return self.head(state)


def test_cells_called_once_per_time_step(unharmed):
    dbg = unharmed(lambda watch: fit(watch, Cells(), lambda m, x: m(x)), N)
    assert calls(dbg, "cell") == [6] * N


class Attention(nn.Module):
    def __init__(self, *, weights):
        super().__init__()
        self.up, self.attention = nn.Linear(1, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.head, self.weights = nn.LayerNorm(8), nn.Linear(8, 1), weights

    def forward(self, x):
        tokens = self.up(x.unsqueeze(-1))
        mixed, _ = self.attention(tokens, tokens, tokens, need_weights=self.weights)
        return self.head(self.norm(tokens + mixed).mean(1))


@pytest.mark.parametrize("weights", [False, True])
def test_multihead_attention(unharmed, weights):
    unharmed(lambda watch: fit(watch, Attention(weights=weights), lambda m, x: m(x)), N)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.block, self.out = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 1)
        self.act = nn.ReLU()
        self.again = self.block

    def forward(self, x):
        x = self.act(self.inp(x))
        for _ in range(3):
            x = x + self.act(self.block(x)) / 3
        return self.out(x + self.again(x))


def test_shared_modules_called_several_times(unharmed):
    dbg = unharmed(lambda watch: fit(watch, Shared(), lambda m, x: m(x)), N)
    assert calls(dbg, "block") == [4] * N
    assert calls(dbg, "act") == [4] * N


def test_in_place_activations(unharmed):
    def make():
        return nn.Sequential(
            nn.Linear(6, 32), nn.ReLU(inplace=True), nn.Linear(32, 32), nn.LeakyReLU(inplace=True),
            nn.Linear(32, 32), nn.Dropout(0.1, inplace=True), nn.ELU(inplace=True),
            nn.Linear(32, 32), nn.Hardtanh(-5, 5, inplace=True), nn.Linear(32, 1),
        )  # fmt: skip

    unharmed(lambda watch: fit(watch, make(), lambda m, x: m(x)), N)


class InPlaceAfterwards(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 1)

    def forward(self, x):
        hidden = self.a(x).relu_()
        deep = self.b(hidden)
        deep += hidden
        return self.c(deep.mul_(0.5))


def test_outputs_changed_in_place_by_the_caller(unharmed):
    unharmed(lambda watch: fit(watch, InPlaceAfterwards(), lambda m, x: m(x)), N)


@pytest.mark.parametrize("style", ["parametrization", "old", "spectral", "own"])
def test_weight_reparametrizations(unharmed, style):
    class Positive(nn.Module):
        def forward(self, weight):
            return F.softplus(weight)

    def make():
        model = mlp()
        if style == "parametrization":
            parametrizations.weight_norm(model[0])
        elif style == "spectral":
            parametrizations.spectral_norm(model[0])
        elif style == "own":
            nn.utils.parametrize.register_parametrization(model[2], "weight", Positive())
        else:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", FutureWarning)
                nn.utils.weight_norm(model[0])
        return model

    dbg = unharmed(lambda watch: fit(watch, make(), lambda m, x: m(x)), N)
    assert calls(dbg, "0") == [1] * N


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.body = nn.Embedding(12, 16), nn.Linear(16, 16)
        self.head = nn.Linear(16, 12, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(torch.tanh(self.body(self.embed(ids))))


def test_tied_weights(unharmed):
    def program(watch):
        model = Tied()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for _ in range(N):
                ids = torch.randint(0, 12, (32,))
                loss = F.cross_entropy(model(ids), (ids + 1) % 12)
                update(loss, optimizer)
                dbg.record_loss(loss)
        return [model]

    unharmed(program, N)
