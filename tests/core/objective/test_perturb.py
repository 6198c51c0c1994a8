# SPDX-License-Identifier: MIT
"""Perturbed forwards: what they find, what they leave alone, and that the run never notices."""

from __future__ import annotations

import copy
import random
from collections import deque

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg.capture.objective import probe

N, T, C = 12, 9, 6


def kinds(model, *given, loss=None, **named):
    model.train()
    output = model(*given, **named)
    return {o.kind: o for o in probe(model, given, named, output, loss(output) if loss else None)}


class Recurrent(nn.Module):
    def __init__(self, *, batch_first, last=True):
        super().__init__()
        self.read = nn.Linear(C, 8)
        self.memory = nn.LSTM(8, 8, batch_first=batch_first)
        self.head, self.last = nn.Linear(8, 3), last

    def forward(self, given):
        states, _ = self.memory(self.read(given))
        return self.head(states[:, -1] if self.last else states)


def test_recurrence_over_the_batch_is_reported_with_its_layer():
    found = kinds(Recurrent(batch_first=False), torch.randn(N, T, C))
    assert found["sample_leak"].layer == "memory"
    assert found["sample_leak"].words["cause"] == "axis_order_error"


class Reordered(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.mix, self.head = how, nn.GRU(C, 8), nn.Linear(8, 2)

    def forward(self, given):
        n, t, c = given.shape
        turned = given.reshape(t, n, c) if self.how == "reshape" else given.transpose(0, 1)
        return self.head(self.mix(turned)[1][-1])


def test_reshape_where_a_transpose_was_meant_is_reported():
    assert "sample_leak" in kinds(Reordered("reshape"), torch.randn(N, T, C))
    assert kinds(Reordered("transpose"), torch.randn(N, T, C)) == {}


class OfFew(nn.Module):
    """Reads samples as time: each output is made of the last few samples alone."""

    def __init__(self, *, is_wrong):
        super().__init__()
        self.is_wrong, self.mix, self.head = (
            is_wrong,
            nn.GRU(C, 8, batch_first=True),
            nn.Linear(8, 2),
        )

    def forward(self, given):
        n, t, c = given.shape
        if self.is_wrong:
            return self.head(self.mix(given.reshape(t, n, c))[0][-1])
        return self.head(self.mix(given)[0][:, -1])


def test_outputs_that_are_made_of_other_samples_alone_are_reported():
    assert kinds(OfFew(is_wrong=True), torch.randn(N, T, C))["sample_leak"].layer == "mix"
    assert kinds(OfFew(is_wrong=False), torch.randn(N, T, C)) == {}


def test_outputs_that_answer_no_sample_are_no_leak():
    model = nn.Sequential(nn.Linear(C, 8), nn.ReLU(), nn.Linear(8, 2))
    nn.init.zeros_(model[2].weight)
    assert kinds(model, torch.randn(N, C)) == {}


class LastStep(Recurrent):
    def forward(self, given):
        states, _ = self.memory(self.read(given))
        return self.head(states[torch.arange(N), torch.full((N,), T - 1)])


def test_each_sample_picked_by_its_own_number_is_no_reason_to_be_silent():
    assert "sample_leak" in kinds(LastStep(batch_first=False), torch.randn(N, T, C))


class BatchAttention(nn.Module):
    """The first position is the same for all samples, so the output does not show the leak."""

    def __init__(self, *, batch_first):
        super().__init__()
        self.word = nn.Embedding(11, 8)
        self.mix = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first)
        self.head = nn.Linear(8, 2)

    def forward(self, given):
        return self.head(self.mix(self.word(given))[:, 0])


def test_attention_over_the_batch_is_reported_though_the_output_hides_it():
    words = torch.randint(1, 11, (N, T))
    words[:, 0] = 0
    found = kinds(BatchAttention(batch_first=False), words)
    assert found["sample_leak"].layer == "mix.self_attn"
    assert kinds(BatchAttention(batch_first=True), words) == {}


class Adjacent(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(C, 8), nn.Linear(8, 2)

    def forward(self, given, link):
        return self.b(link @ F.relu(self.a(link @ given)))


class Edges(Adjacent):
    def forward(self, given, edges):
        h = self.a(given)
        return self.b(torch.zeros_like(h).index_add(0, edges[1], h[edges[0]]))


class Hidden(Adjacent):
    """A graph of which the model's inputs say nothing."""

    def __init__(self, how):
        super().__init__()
        self.how, self.links = how, [torch.eye(N).roll(1, 0).to_sparse()]

    def forward(self, given):
        h = F.relu(self.a(given))
        near = torch.arange(N).roll(1)[:, None].expand(N, 2)
        if self.how == "sparse":
            mixed = torch.sparse.mm(self.links[0], h)
        elif self.how == "gathered":
            mixed = h[near].mean(1)
        else:
            mixed = h.index_select(0, near.flatten()).view(N, 2, -1).sum(1)
        return self.b(mixed)


class Statistics(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(C, 2)

    def forward(self, given):
        h = self.a(given)
        return (h - h.mean(0)) / (h.std(0) + 1)


SILENT = {
    "batch normalisation": lambda: (
        nn.Sequential(nn.Linear(C, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2)),
        torch.randn(N, C),
    ),
    "batch statistics without running ones": lambda: (
        nn.Sequential(nn.Linear(C, 8), nn.BatchNorm1d(8, track_running_stats=False)),
        torch.randn(N, C),
    ),
    "graph with an adjacency matrix": lambda: (Adjacent(), torch.randn(N, C), torch.rand(N, N)),
    "graph with edges": lambda: (Edges(), torch.randn(N, C), torch.randint(0, N, (2, 30))),
    "graph behind a closed door": lambda: (Hidden("sparse"), torch.randn(N, C)),
    "neighbours picked by number": lambda: (Hidden("gathered"), torch.randn(N, C)),
    "neighbours selected": lambda: (Hidden("selected"), torch.randn(N, C)),
    "statistics over the batch": lambda: (Statistics(), torch.randn(N, C)),
    "time first": lambda: (Recurrent(batch_first=False, last=False), torch.randn(T, N, C)),
    "batch first": lambda: (Recurrent(batch_first=True), torch.randn(N, T, C)),
    "bidirectional, not autoregressive": lambda: (
        nn.Sequential(nn.Conv1d(C, C, 3, padding=1), nn.ReLU()),
        torch.randn(N, C, T),
    ),
    "instance and group norm": lambda: (
        nn.Sequential(nn.Conv1d(C, C, 3, padding=1), nn.GroupNorm(2, C), nn.InstanceNorm1d(C)),
        torch.randn(N, C, T),
    ),
    "noise drawn in forward": lambda: (Noisy(), torch.randn(N, C)),
    "similarity of all pairs": lambda: (Pairs(), torch.randn(N, C)),
}


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(C, 2)

    def forward(self, given):
        return self.a(given + torch.randn_like(given))


class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(C, 4)

    def forward(self, given):
        h = F.normalize(self.a(given), dim=1)
        return h @ h.T


@pytest.mark.parametrize("name", SILENT)
def test_what_may_mix_samples_or_mixes_none_is_silent(name):
    model, *given = SILENT[name]()
    assert kinds(model, *given) == {}


class Causal(nn.Module):
    def __init__(self, ahead, *, fused=False):
        super().__init__()
        self.word, self.qkv = nn.Embedding(11, 8), nn.Linear(8, 24)
        self.attend = nn.Identity()
        self.head, self.ahead, self.fused = nn.Linear(8, 11), ahead, fused

    def forward(self, given):
        q, k, v = self.qkv(self.word(given)).chunk(3, -1)
        t = given.shape[1]
        seen = torch.ones(t, t).tril(self.ahead).bool()
        if self.fused:
            h = F.scaled_dot_product_attention(q, k, v, attn_mask=seen)
        else:
            h = (q @ k.mT).masked_fill(~seen, -1e9).softmax(-1) @ v
        return self.head(self.attend(h))


def next_token(text):
    return lambda scores: F.cross_entropy(scores[:, :-1].flatten(0, 1), text[:, 1:].flatten())


@pytest.mark.parametrize("fused", [True, False])
def test_mask_that_shows_the_next_token_is_reported(fused):
    text = torch.randint(0, 11, (N, T))
    found = kinds(Causal(1, fused=fused), text, loss=next_token(text))
    assert found["future_leak"].words["cause"] == "leaky_causal_mask"
    assert kinds(Causal(0, fused=fused), text, loss=next_token(text)) == {}


def test_mask_alone_is_evidence_enough():
    text = torch.randint(0, 11, (N, T))
    assert "future_leak" in kinds(Causal(1), text)
    assert kinds(Causal(0), text) == {}


class Forecast(nn.Module):
    def __init__(self, left, right):
        super().__init__()
        self.pad, self.conv = (left, right), nn.Conv1d(1, 1, 3)

    def forward(self, signal):
        return self.conv(F.pad(signal[:, None], self.pad))[:, 0]


def test_convolution_that_reads_ahead_is_reported_by_its_targets():
    signal = torch.randn(N, 20)

    def loss(output):
        return F.mse_loss(output[:, 4:], signal[:, 5:])

    found = kinds(Forecast(1, 1), signal[:, :-1], loss=loss)
    assert found["future_leak"].layer == "conv"
    assert kinds(Forecast(2, 0), signal[:, :-1], loss=loss) == {}
    same = kinds(Forecast(1, 1), signal, loss=lambda output: F.mse_loss(output, signal))
    assert same == {}, "an autoencoder may look everywhere"


class Busy(nn.Module):
    """Changes everything that a forward can change."""

    def __init__(self):
        super().__init__()
        self.lin = nn.utils.parametrizations.spectral_norm(nn.Linear(C, C))
        self.norm, self.drop = nn.BatchNorm1d(C), nn.Dropout(0.3)
        self.register_buffer("count", torch.zeros(()))
        self.calls, self.seen, self.last, self.recent = 0, [], None, deque(maxlen=3)
        self.cache = {"n": 0}
        self.state = torch.zeros(C)

    def forward(self, given):
        given.mul_(1.0)
        self.calls += 1
        self.seen.append(self.calls)
        self.recent.append(random.random())  # noqa: S311 - the point is Python's state
        self.cache["n"] += 1
        self.count += 1
        self.state.add_(1)
        self.last = self.drop(self.norm(self.lin(given))) + self.state
        return self.last + torch.randn(())


def test_probe_leaves_the_run_bit_for_bit_as_it_was():
    torch.manual_seed(0)
    model, given = Busy(), torch.randn(N, C)
    output = model(given)
    hooked = []
    handle = model.lin.register_forward_hook(lambda *_: hooked.append(1))
    objects = {name: id(b) for name, b in model.named_buffers()}
    versions = {name: b._version for name, b in model.named_buffers()}
    state, plain = copy.deepcopy(model.state_dict()), {**vars(model)}
    lists = copy.deepcopy((model.seen, model.recent, model.cache, model.state))
    noise, python = torch.get_rng_state(), random.getstate()
    probe(model, (given,), {}, output)
    assert torch.equal(noise, torch.get_rng_state())
    assert python == random.getstate()
    assert objects == {name: id(b) for name, b in model.named_buffers()}
    assert versions == {name: b._version for name, b in model.named_buffers()}
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert all(vars(model)[k] is v for k, v in plain.items() if k != "training")
    assert (model.seen, model.recent, model.cache) == lists[:3]
    assert torch.equal(model.state, lists[3])
    assert hooked == []
    assert all(m.training for m in model.modules())
    assert len(model.lin._forward_hooks) == 1
    output.sum().backward()
    handle.remove()


@pytest.mark.parametrize("given", [(object(),), ("text",), (torch.tensor(1.0),), ()])
def test_unknown_inputs_are_not_judged(given):
    assert probe(nn.Linear(4, 2), given, {}, torch.randn(3, 2)) == []


def test_model_that_fails_a_second_time_is_not_judged():
    class Once(nn.Module):
        def forward(self, given):
            if not torch.is_grad_enabled():
                raise RuntimeError("needs gradients")
            return given * 2

    model, given = Once(), torch.randn(N, C)
    assert probe(model, (given,), {}, model(given)) == []
