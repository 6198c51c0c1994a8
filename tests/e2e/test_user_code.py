# SPDX-License-Identifier: MIT
"""Every shape of user code: training is unharmed, steps are counted right, and all is quiet."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections import OrderedDict, namedtuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

from neuraldbg import NeuralDbg
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


# -- what a forward takes and returns --------------------------------------------------------


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


# -- kinds of layers -------------------------------------------------------------------------


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


# -- the shape of the loop -------------------------------------------------------------------


class Deep(nn.Module):
    def __init__(self, *, reentrant):
        super().__init__()
        self.inp, self.head = nn.Linear(6, 24), nn.Linear(24, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 24), nn.GELU(), nn.Dropout(0.1))
            for _ in range(3)
        )
        self.reentrant = reentrant

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_recomputed_forward_is_not_a_second_one(unharmed, ledger, reentrant):
    dbg = unharmed(lambda watch: fit(watch, Deep(reentrant=reentrant), lambda m, x: m(x)), N)
    assert calls(dbg, "blocks.1.1") == [1] * N
    assert ledger(dbg, "forwards") == [1] * N
    assert ledger(dbg, "backwards") == [1] * N


@pytest.mark.parametrize("divided", ["loss", "gradients"])
def test_gradient_accumulation(unharmed, ledger, divided):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        with watch(model) as dbg:
            for _ in range(N):
                total = 0.0
                for _ in range(4):
                    x, y = batch()
                    loss = F.mse_loss(model(x), y)
                    (loss / 4 if divided == "loss" else loss).backward()
                    total += loss.item() / 4
                if divided == "gradients":
                    for p in model.parameters():
                        p.grad.div_(4)
                optimizer.step()
                optimizer.zero_grad(set_to_none=divided == "loss")
                dbg.record_loss(total)
        return [model]

    dbg = unharmed(program, N)
    assert ledger(dbg, "backwards") == [4] * N


def test_lbfgs_closure(unharmed, ledger):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.3, max_iter=5)
        x, y = batch(64)
        with watch(model) as dbg:
            for _ in range(12):

                def closure():
                    optimizer.zero_grad()
                    loss = F.mse_loss(model(x), y)
                    loss.backward()
                    return loss

                dbg.record_loss(optimizer.step(closure))
        return [model]

    dbg = unharmed(program, 12)
    assert min(ledger(dbg, "forwards")[:3]) > 1
    assert ledger(dbg, "steps") == [1] * 12


def test_closure_of_a_first_order_optimizer(unharmed, ledger):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()

                def closure(x=x, y=y):
                    optimizer.zero_grad()
                    loss = F.mse_loss(model(x), y)
                    loss.backward()
                    return loss

                dbg.record_loss(optimizer.step(closure))
        return [model]

    dbg = unharmed(program, N)
    assert ledger(dbg, "backwards") == [1] * N


def test_sparse_gradients(unharmed):
    def program(watch):
        table, head = nn.EmbeddingBag(40, 8, sparse=True, mode="mean"), nn.Linear(8, 1)
        model = nn.Sequential(OrderedDict(table=table, head=head))
        optimizers = [torch.optim.SparseAdam(table.parameters(), lr=1e-2),
                      torch.optim.Adam(head.parameters(), lr=1e-2)]  # fmt: skip
        with watch(model) as dbg:
            for _ in range(N):
                ids = torch.randint(0, 40, (32, 4))
                loss = F.mse_loss(model(ids), ids.float().mean(1, keepdim=True) / 40)
                for optimizer in optimizers:
                    optimizer.zero_grad()
                loss.backward()
                for optimizer in optimizers:
                    optimizer.step()
                dbg.record_loss(loss)
        return [model]

    unharmed(program, N)


@pytest.mark.parametrize("unscales", [False, True])
def test_gradient_scaler(unharmed, unscales):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=8)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = F.mse_loss(model(x).float(), y)
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                if unscales:
                    scaler.unscale_(optimizer)
                    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                scaler.step(optimizer)
                scaler.update()
                dbg.record_loss(loss.item())
        return [model]

    unharmed(program, N)


@pytest.mark.parametrize("style", ["norm", "value", "by hand", "foreach off"])
def test_clipping_in_any_spelling(unharmed, style):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                loss = F.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                if style == "norm":
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                elif style == "foreach off":
                    torch.nn.utils.clip_grad_norm_(list(model.parameters()), 1.0, foreach=False)
                elif style == "value":
                    nn.utils.clip_grad_value_(model.parameters(), 0.5)
                else:
                    total = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
                    for p in model.parameters():
                        p.grad.mul_((1.0 / (total + 1e-6)).clamp(max=1.0))
                optimizer.step()
                dbg.record_loss(loss)
        return [model]

    unharmed(program, N)


def test_several_models_and_optimizers(unharmed):
    def program(watch):
        encoder, decoder, critic = mlp(6, 16, 4), mlp(4, 16, 6), mlp(4, 16, 1)
        own = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
        theirs = torch.optim.Adam(critic.parameters(), lr=1e-2)
        with watch({"encoder": encoder, "decoder": decoder, "critic": critic}) as dbg:
            for _ in range(N):
                x, y = batch()
                code = encoder(x)
                reconstruction = F.mse_loss(decoder(code), x)
                update(reconstruction, own)
                prediction = F.mse_loss(critic(encoder(x).detach()), y)
                update(prediction, theirs)
                dbg.record_loss(reconstruction.item(), name="reconstruction")
                dbg.record_loss(prediction.item(), name="prediction")
        return [encoder, decoder, critic]

    dbg = unharmed(program, N)
    assert {layer.path.split(".")[0] for layer in dbg.trace.run.layers} == {
        "encoder",
        "decoder",
        "critic",
    }
    assert len(dbg.trace.run.optimizers) == 2
    assert set(dbg.trace.losses) == {"reconstruction", "prediction"}


def test_averaged_and_target_copies(unharmed):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            target = copy.deepcopy(model)
            average = torch.optim.swa_utils.AveragedModel(model)
            for _ in range(N):
                x, y = batch()
                with torch.no_grad():
                    goal = 0.9 * y + 0.1 * target(x)
                loss = F.mse_loss(model(x), goal)
                update(loss, optimizer)
                dbg.record_loss(loss)
                average.update_parameters(model)
                with torch.no_grad():
                    for slow, fast in zip(target.parameters(), model.parameters(), strict=True):
                        slow.lerp_(fast, 0.05)
        return [model, target, average]

    dbg = unharmed(program, N)
    assert calls(dbg, "0") == [1] * N


def test_functional_call_with_parameters_of_ones_own(unharmed, ledger):
    def program(watch):
        model = mlp()
        weights = {
            name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()
        }
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                loss = F.mse_loss(torch.func.functional_call(model, weights, (x,)), y)
                grads = torch.autograd.grad(loss, [*weights.values()])
                weights = {
                    name: (p - 0.05 * g).detach().requires_grad_()
                    for (name, p), g in zip(weights.items(), grads, strict=True)
                }
                dbg.record_loss(loss.item())
                dbg.step_iteration()
        model.load_state_dict(weights)
        return [model]

    unharmed(program, N)


def test_functional_call_in_a_meta_learning_loop(unharmed):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for _ in range(N):
                (x, y), (x2, y2) = batch(), batch()
                fast = dict(model.named_parameters())
                inner = F.mse_loss(torch.func.functional_call(model, fast, (x,)), y)
                grads = torch.autograd.grad(inner, [*fast.values()], create_graph=True)
                fast = {k: p - 0.01 * g for (k, p), g in zip(fast.items(), grads, strict=True)}
                loss = F.mse_loss(torch.func.functional_call(model, fast, (x2,)), y2)
                update(loss, optimizer)
                dbg.record_loss(loss)
        return [model]

    unharmed(program, N)


def test_per_sample_gradients_by_vmap_over_the_model(unharmed):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def one(weights, x, y):
            out = torch.func.functional_call(model, weights, (x.unsqueeze(0),))
            return F.mse_loss(out, y.unsqueeze(0))

        per_sample = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0, 0))
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                grads = per_sample({k: p.detach() for k, p in model.named_parameters()}, x, y)
                optimizer.zero_grad()
                for name, p in model.named_parameters():
                    p.grad = grads[name].clamp(-1, 1).mean(0)
                optimizer.step()
                with torch.no_grad():
                    dbg.record_loss(F.mse_loss(model(x), y))
        return [model]

    unharmed(program, N)


def test_ensemble_by_vmap(unharmed):
    def program(watch):
        model = mlp()
        members = [mlp() for _ in range(3)]
        weights, _ = torch.func.stack_module_state(members)
        optimizer = torch.optim.SGD(weights.values(), lr=0.05)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                out = torch.vmap(
                    lambda w, x: torch.func.functional_call(model, w, (x,)), (0, None)
                )(weights, x)
                loss = F.mse_loss(out, y.expand_as(out))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss)
                dbg.step_iteration()
        return [
            nn.ParameterDict(
                {k.replace(".", "_"): nn.Parameter(v.detach()) for k, v in weights.items()}
            )
        ]

    unharmed(program)


def test_gradient_penalty_through_a_graph_of_the_backward(unharmed):
    def program(watch):
        critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
        optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
        with watch(critic) as dbg:
            for _ in range(N):
                real, fake = torch.randn(16, 2) + 1, torch.randn(16, 2) - 1
                mixed = torch.lerp(real, fake, torch.rand(16, 1)).requires_grad_()
                (grads,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
                loss = (critic(fake) - critic(real)).mean() + 10 * (grads.norm(dim=1) - 1).pow(
                    2
                ).mean()
                update(loss, optimizer)
                dbg.record_loss(loss.item())
        return [critic]

    unharmed(program, N)


def test_two_backwards_of_one_graph(unharmed, ledger):
    def program(watch):
        model = mlp(6, 16, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                out = model(x)
                first, second = F.mse_loss(out[:, :1], y), F.mse_loss(out[:, 1:], -y)
                optimizer.zero_grad()
                first.backward(retain_graph=True)
                second.backward()
                optimizer.step()
                dbg.record_loss(first.item() + second.item())
        return [model]

    dbg = unharmed(program, N)
    assert ledger(dbg, "backwards") == [2] * N


# -- sessions --------------------------------------------------------------------------------


def test_nested_sessions_on_one_model(unharmed):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as outer:
            for i in range(N):
                if i == 10:
                    inner = watch(model)
                    inner.__enter__()
                x, y = batch()
                loss = F.mse_loss(model(x), y)
                update(loss, optimizer)
                outer.record_loss(loss)
                if 10 <= i < 20:
                    inner.record_loss(loss)
                if i == 19:
                    inner.__exit__(None, None, None)
        program.sessions = (outer, inner)
        return [model]

    unharmed(program)
    outer, inner = program.sessions
    assert outer.trace.step_count == N
    assert inner.trace.step_count == 10
    assert calls(outer, "0") == [1] * N
    assert calls(inner, "0") == [1] * 10
    assert outer.loss_history[10:20] == pytest.approx(inner.loss_history)


def test_two_sessions_on_two_models_at_once(unharmed):
    def program(watch):
        a, b = mlp(), mlp(6, 8)
        of_a, of_b = torch.optim.Adam(a.parameters(), 1e-2), torch.optim.SGD(b.parameters(), 0.05)
        with watch(a) as one, watch(b) as two:
            for i in range(N):
                x, y = batch()
                loss = F.mse_loss(a(x), y)
                update(loss, of_a)
                one.record_loss(loss)
                if i % 2:
                    loss = F.mse_loss(b(x), -y)
                    update(loss, of_b)
                    two.record_loss(loss)
        program.sessions = (one, two)
        return [a, b]

    unharmed(program)
    one, two = program.sessions
    assert (one.trace.step_count, two.trace.step_count) == (N, N // 2)
    assert {p.name for p in one.trace.run.parameters} == {
        "0.weight",
        "0.bias",
        "2.weight",
        "2.bias",
    }
    assert [o.kind for o in one.trace.run.optimizers] == ["Adam"]
    assert [o.kind for o in two.trace.run.optimizers] == ["SGD"]


def test_one_session_after_another_on_one_model(unharmed):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        sessions = []
        for _ in range(3):
            with watch(model) as dbg:
                for _ in range(8):
                    x, y = batch()
                    loss = F.mse_loss(model(x), y)
                    update(loss, optimizer)
                    dbg.record_loss(loss)
            sessions.append(dbg)
        program.sessions = sessions
        return [model]

    unharmed(program)
    assert [dbg.trace.step_count for dbg in program.sessions] == [8, 8, 8]


def test_an_unrelated_model_trained_in_the_block(unharmed, ledger):
    def program(watch):
        model, other = mlp(), mlp(6, 64)
        ours = torch.optim.Adam(model.parameters(), 1e-2)
        theirs = torch.optim.SGD(other.parameters(), 1e3)
        with watch(model) as dbg:
            for i in range(N):
                if i % 5 == 4:
                    x, y = batch()
                    theirs.zero_grad()
                    (1e5 * F.mse_loss(other(x), y)).backward()
                    nn.utils.clip_grad_norm_(other.parameters(), 1.0)
                    theirs.step()
                x, y = batch()
                loss = F.mse_loss(model(x), y)
                update(loss, ours)
                dbg.record_loss(loss)
        return [model]

    dbg = unharmed(program, N)
    assert ledger(dbg, "clips") == [0] * N
    assert len(dbg.trace.run.optimizers) == 1


class Multi(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.ReLU())
        self.price, self.unused = nn.Linear(16, 1), nn.Linear(16, 5)

    def forward(self, x, task="price"):
        return getattr(self, task)(self.body(x))


def test_a_model_that_is_only_partly_used(unharmed):
    def program(watch):
        model = Multi()
        parts = [*model.body.parameters(), *model.price.parameters()]
        optimizer = torch.optim.Adam(parts, lr=1e-2)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                loss = F.mse_loss(model(x), y)
                update(loss, optimizer)
                dbg.record_loss(loss)
        return [model]

    dbg = unharmed(program, N, is_quiet=False)
    # An unused head may be named, quietly or not, but never with a layer that is used.
    assert {h.layer for h in dbg.explain_failure()} <= {"unused"}


def test_submodules_called_instead_of_the_root(unharmed):
    def predict(model, x):
        return model.price(model.body(x))

    def program(watch):
        model = Multi()
        del model.unused
        return fit(watch, model, predict)

    dbg = unharmed(program, N)
    assert calls(dbg, "price") == [1] * N


def test_a_method_other_than_forward(unharmed):
    class Agent(nn.Module):
        def __init__(self):
            super().__init__()
            self.policy, self.value = mlp(6, 16, 3), mlp(6, 16, 1)

        def evaluate(self, x):
            return self.policy(x), self.value(x)

    def program(watch):
        model = Agent()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                logits, value = model.evaluate(x)
                loss = F.cross_entropy(logits, x[:, :3].argmax(1)) + F.mse_loss(value, y)
                update(loss, optimizer)
                dbg.record_loss(loss)
        return [model]

    dbg = unharmed(program, N)
    assert calls(dbg, "value.0") == [1] * N


# -- what the user says ------------------------------------------------------------------------


def test_labels_metrics_and_losses_by_name(unharmed):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for i in range(N):
                dbg.step = 1000 + 10 * i
                x, y = batch()
                out = model(x)
                fit_loss, size = F.mse_loss(out, y), out.pow(2).mean()
                update(fit_loss + 0.01 * size, optimizer)
                dbg.record_loss(fit_loss.item(), name="fit")
                dbg.record_loss(size, name="size")
                dbg.record_metric("error", (out - y).abs().mean())
        return [model]

    dbg = unharmed(program, N)
    assert dbg.trace.loss.steps.tolist() == [1000 + 10 * i for i in range(N)]
    assert set(dbg.trace.losses) == {"fit", "size"}
    assert len(dbg.trace.metrics["error"]) == N


def test_step_iteration_where_no_optimizer_of_torch_steps(unharmed):
    def program(watch):
        model = mlp()
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                loss = F.mse_loss(model(x), y)
                model.zero_grad()
                loss.backward()
                with torch.no_grad():
                    for p in model.parameters():
                        p -= 0.05 * p.grad
                dbg.record_loss(loss)
                dbg.step_iteration()
        return [model]

    unharmed(program, N)


def test_step_iteration_on_top_of_an_optimizer_counts_once(unharmed):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                loss = F.mse_loss(model(x), y)
                update(loss, optimizer)
                dbg.record_loss(loss)
                dbg.step_iteration()
        return [model]

    unharmed(program, N)


def test_module_outside_the_model(unharmed):
    def program(watch):
        model, criterion = mlp(6, 16, 4), nn.Linear(4, 1)
        optimizer = torch.optim.Adam([*model.parameters(), *criterion.parameters()], lr=1e-2)
        dbg = watch(model)
        dbg.register_composite_hook(criterion)
        with dbg:
            for _ in range(N):
                x, y = batch()
                loss = F.mse_loss(criterion(torch.tanh(model(x))), y)
                update(loss, optimizer)
                dbg.record_loss(loss)
        return [model, criterion]

    dbg = unharmed(program, N)
    assert "Linear.weight" in {p.name for p in dbg.trace.run.parameters}


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_evaluation_of_another_kind_inside_the_loop(unharmed, ledger, mode):
    def program(watch):
        model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for i in range(N):
                model.train()
                x, y = batch()
                loss = F.mse_loss(model(x), y)
                update(loss, optimizer)
                dbg.record_loss(loss)
                if i % 5 == 4:
                    model.eval()
                    with getattr(torch, mode)():
                        for _ in range(3):
                            x, y = batch()
                            dbg.record_metric("validation", F.mse_loss(model(100 * x), y))
        return [model]

    dbg = unharmed(program, N)
    assert sum(ledger(dbg, "eval_forwards")) == 15
    assert activations(dbg, "0")[:, ActivationStat.MAX].max() < 50


def test_frozen_parts_thawed_and_added_to_the_optimizer_later(unharmed):
    def program(watch):
        model = nn.Sequential(
            OrderedDict(body=nn.Linear(6, 16), act=nn.Tanh(), head=nn.Linear(16, 1))
        )
        model.body.requires_grad_(False)
        optimizer = torch.optim.Adam(model.head.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for i in range(N):
                if i == 10:
                    model.body.requires_grad_(True)  # noqa: FBT003 - torch's own signature
                    optimizer.add_param_group({"params": model.body.parameters(), "lr": 1e-3})
                x, y = batch()
                loss = F.mse_loss(model(x), y)
                update(loss, optimizer)
                dbg.record_loss(loss)
        return [model]

    unharmed(program, N)


# -- torch.compile -----------------------------------------------------------------------------


class Compilable(nn.Module):
    """A class of the user's: torch refuses to compile the forward of a bare Sequential in place."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 1)
        self.act = nn.Tanh()

    def forward(self, x):
        return self.c(F.gelu(self.b(self.act(self.a(x)))))


@pytest.fixture(scope="module")
def _compiler():
    """Let the compiler put its own marks on torch before the guards look."""
    torch._dynamo.mutation_guard.install_generation_tagging_init()


def compiled_program(backend, when, how, seen):
    def compiled(model):
        if how == "function":
            return torch.compile(model, backend=backend, fullgraph=True)
        model.compile(backend=backend, fullgraph=True)
        return model

    def program(watch):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        model = Compilable()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        call = compiled(model) if when == "before" else model
        with watch(call) as dbg:
            call = compiled(model) if when == "inside" else call
            for _ in range(12):
                x, y = batch()
                loss = F.mse_loss(call(x), y)
                update(loss, optimizer)
                dbg.record_loss(loss.item())
        counters = torch._dynamo.utils.counters
        seen.append((dict(counters["graph_break"]), counters["stats"]["unique_graphs"]))
        torch._dynamo.reset()
        return [model]

    return program


COMPILED = pytest.mark.parametrize(
    ("backend", "when", "how"),
    [
        (b, w, h)
        for b in ("eager", "aot_eager")
        for w in ("before", "inside")
        for h in ("function", "method")
    ],
)


@COMPILED
@pytest.mark.usefixtures("_compiler")
def test_compiled_model_is_unharmed_and_breaks_no_graph(unharmed, ledger, backend, when, how):
    seen = []
    dbg = unharmed(compiled_program(backend, when, how, seen), 12)
    (plain_breaks, plain_graphs), (breaks, graphs) = seen
    assert breaks == plain_breaks == {}
    assert plain_graphs == 1
    assert graphs <= 2
    assert ledger(dbg, "steps") == [1] * 12
    assert ledger(dbg, "forwards") == [1] * 12


@COMPILED
@pytest.mark.usefixtures("_compiler")
def test_taps_see_the_activations_of_a_compiled_model(unharmed, backend, when, how):
    dbg = unharmed(compiled_program(backend, when, how, []), 12)
    for path in ("a", "act", "b", "c"):
        rms = activations(dbg, path)[:, ActivationStat.RMS]
        assert (rms > 0).all(), path


@pytest.mark.usefixtures("_compiler")
def test_layers_compiled_one_by_one(unharmed, ledger):
    def program(watch):
        torch._dynamo.reset()
        model = nn.Sequential(Compilable(), nn.Tanh(), nn.Linear(1, 1))
        model[0].compile(backend="eager")
        out = fit(watch, model, lambda m, x: m(x), steps=12)
        torch._dynamo.reset()
        return out

    dbg = unharmed(program, 12)
    assert calls(dbg, "2") == [1] * 12
