# SPDX-License-Identifier: MIT
"""The walk of the autograd graph, against models whose structure is known."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
import time
import weakref

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.checkpoint import checkpoint

from neuraldbg.capture.objective import ObjectiveAudit, trace_structure
from neuraldbg.schema.run import INPUT


def structure(tapped, model, given, loss=lambda output: output.pow(2).mean()):
    taps = tapped(model)
    return trace_structure(loss(model(given)), taps.nodes)


def test_sequence_has_parents_activations_and_one_output(tapped):
    model = nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(8, 8), nn.Tanh()
    )
    seen = structure(tapped, model, torch.randn(3, 4))
    assert seen.layers["0"].parents == (INPUT,)
    assert seen.layers["1"].parents == ("0",)
    assert seen.layers["3"].parents == ("2",)
    assert [seen.layers[k].activation for k in "0134"] == ["relu", "relu", "tanh", "tanh"]
    assert {k for k, v in seen.layers.items() if v.is_output} == {"4", ""}
    assert (seen.depth, seen.series, seen.residual_adds) == (2, 2, 0)


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (F.relu, "relu"), (F.relu_, "relu"), (F.leaky_relu, "leaky_relu"), (F.elu, "elu"),
        (F.selu, "selu"), (F.silu, "silu"), (F.gelu, "gelu"), (torch.sigmoid, "sigmoid"),
        (torch.tanh, "tanh"), (F.softplus, "softplus"), (F.mish, "mish"), (F.relu6, "relu6"),
        (F.hardtanh, "hardtanh"), (F.hardsigmoid, "hardsigmoid"), (F.hardswish, "hardswish"),
        (lambda t: t.softmax(-1), "softmax"), (lambda t: t.log_softmax(-1), "log_softmax"),
        (lambda t: t.clamp(0, 1), "clamp"), (lambda t: t * t.sigmoid(), "silu"),
        (lambda t: F.relu(F.dropout(t.unflatten(1, (2, 4)))), "relu"),
        (lambda t: t + 1, None),
    ],
)  # fmt: skip
def test_functional_activation_belongs_to_the_layer_it_is_applied_to(tapped, function, name):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, given):
            return self.last(function(self.first(given)).flatten(1))

    assert structure(tapped, Net(), torch.randn(3, 4)).layers["first"].activation == name


class Block(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.norm, self.up, self.down = (
            nn.LayerNorm(width),
            nn.Linear(width, 16),
            nn.Linear(16, width),
        )

    def forward(self, given):
        return given + self.down(F.gelu(self.up(self.norm(given))))


def test_residual_blocks_are_skips_and_cut_the_series(tapped):
    model = nn.Sequential(nn.Linear(4, 8), Block(), Block(), nn.LayerNorm(8), nn.Linear(8, 2))
    seen = structure(tapped, model, torch.randn(3, 4))
    assert (seen.residual_adds, seen.depth, seen.series) == (2, 6, 2)
    assert set(seen.layers["2"].parents) == {"1", "2.down"}
    assert seen.layers["3"].has_residual
    assert not seen.layers["1.up"].has_residual
    assert seen.normalizations == ("1.norm", "2.norm", "3")


def test_two_branches_that_are_added_are_no_skip(tapped):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, given):
            h = self.stem(given)
            return self.a(h) + self.b(h)

    seen = structure(tapped, Two(), torch.randn(3, 4))
    assert seen.residual_adds == 0
    assert {k for k, v in seen.layers.items() if v.is_output} == {""}


def test_recurrence_by_hand_counts_each_weight_once(tapped):
    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.u, self.out = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1)

        def forward(self, given):
            h = torch.zeros(len(given), 8)
            for t in range(given.shape[1]):
                h = torch.tanh(self.w(given[:, t]) + self.u(h))
            return self.out(h)

    seen = structure(tapped, Cell(), torch.randn(3, 9, 4))
    assert seen.depth <= 3
    assert seen.residual_adds == 0
    assert set(seen.layers["out"].parents) == {"w", "u"}


def test_tied_weights_views_and_shared_modules_are_followed(tapped):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.word, self.mix = nn.Embedding(7, 4), nn.Linear(4, 4)
            self.head = nn.Linear(4, 7, bias=False)
            self.head.weight = self.word.weight

        def forward(self, given):
            h = self.mix(self.word(given)).view(-1, 4)
            return self.head(F.relu_(self.mix(h)))

    model = Tied()
    seen = structure(tapped, model, torch.randint(0, 7, (3, 5)))
    assert set(seen.layers["mix"].parents) == {"word"}
    assert seen.layers["head"].parents == ("mix",)
    assert seen.reached == {id(p) for p in model.parameters()}


def test_in_place_activation_on_a_view_keeps_the_layer(tapped):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    seen = structure(tapped, model, torch.randn(3, 5, 4))
    assert seen.layers["1"].parents == ("0",)
    assert seen.layers["2"].parents == ("1",)


def test_custom_functions_and_several_losses_are_walked(tapped):
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(_ctx, given):
            return given * 2

        @staticmethod
        def backward(_ctx, grad):
            return grad * 2

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 1), nn.Linear(8, 3)

        def forward(self, given):
            h = Double.apply(self.body(given))
            return self.a(h), self.b(h)

    model = Net()
    seen = structure(tapped, model, torch.randn(3, 4), lambda o: o[0].mean() + o[1].pow(2).sum())
    assert seen.layers["a"].is_output
    assert seen.layers["b"].is_output
    assert seen.layers["a"].parents == ("body",)
    assert len(seen.reached) == 6


def test_reentrant_checkpoint_is_opaque_and_said_so(tapped):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, given):
            return self.b(checkpoint(nn.Tanh(), self.a(given), use_reentrant=True))

    seen = structure(tapped, Net(), torch.randn(3, 4))
    assert seen.opaque == ("CheckpointFunction",)
    assert not seen.is_complete
    assert seen.layers["b"].parents == ("a",)


COMPILED = """
import torch
from torch import nn
from neuraldbg.capture.objective import trace_structure
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
run = torch.compile(lambda given: model(given), backend="aot_eager")
seen = trace_structure(run(torch.randn(3, 4)).mean(), {})
assert seen.opaque and not seen.is_complete, seen
assert seen.reached == {id(p) for p in model.parameters()}
"""


@pytest.mark.slow
def test_compiled_graph_is_opaque_but_its_parameters_are_reached():
    subprocess.run([sys.executable, "-c", COMPILED], check=True, capture_output=True, timeout=100)


def test_loss_without_graph_has_no_structure():
    assert trace_structure(torch.tensor(1.0), {}) is None
    assert ObjectiveAudit().observe(0, torch.tensor(1.0), {}) == []
    assert ObjectiveAudit().observe(0, None, {}) == []


def test_freed_graph_is_survived(tapped):
    model = nn.Linear(4, 3)
    taps = tapped(model)
    loss = F.cross_entropy(model(torch.randn(5, 4)), torch.randint(0, 3, (5,)))
    loss.backward()
    audit = ObjectiveAudit()
    audit.observe(0, loss, taps.nodes, taps.batch, taps.modules)
    assert audit.structure is not None


def test_limit_stops_the_walk_and_says_so(tapped):
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(50)))
    taps = tapped(model)
    seen = trace_structure(model(torch.randn(3, 4)).sum(), taps.nodes, limit=40)
    assert seen.nodes == 40
    assert not seen.is_complete


def test_thousand_layers_take_a_moment(tapped):
    model = nn.Sequential(*(m for _ in range(500) for m in (nn.Linear(4, 4), nn.ReLU())))
    taps = tapped(model)
    loss = model(torch.randn(3, 4)).sum()
    best = min(_seconds(loss, taps.nodes) for _ in range(3))
    assert best < 0.25  # 30 ms on an idle core; the machine of a test run is not idle


def _seconds(loss, nodes):
    start = time.process_time()
    trace_structure(loss, nodes)
    return time.process_time() - start


def test_audit_keeps_nothing_alive_and_changes_no_gradient(tapped):
    torch.manual_seed(0)
    model, audit = nn.Linear(4, 3), ObjectiveAudit()
    given, wanted = torch.randn(5, 4), torch.randint(0, 3, (5,))
    F.cross_entropy(model(given), wanted).backward()
    plain = model.weight.grad.clone()
    model.zero_grad()
    taps = tapped(model)
    output = model(given)
    loss = F.cross_entropy(output, wanted)
    audit.observe(0, loss, taps.nodes, taps.batch, taps.modules)
    loss.backward()
    assert torch.equal(plain, model.weight.grad)
    gone = weakref.ref(output)
    taps.nodes.clear()
    del output, loss
    gc.collect()
    assert gone() is None


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.sampled_from(["linear", "relu", "block", "norm", "branch"]), min_size=1, max_size=12
    )
)
def test_random_network_reaches_exactly_what_backward_reaches(kinds):
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, given):
            return torch.cat([self.used(given)[:, :4], given[:, 4:]], 1)

    make = {
        "linear": lambda: nn.Linear(8, 8),
        "relu": nn.ReLU,
        "block": Block,
        "norm": lambda: nn.LayerNorm(8),
        "branch": Branch,
    }
    model = nn.Sequential(nn.Linear(8, 8), *(make[kind]() for kind in kinds))
    nodes, order = {}, []
    for name, module in model.named_children():
        module.register_forward_hook(
            lambda _m, _g, out, name=name: nodes.setdefault(name, []).append(out.grad_fn)
        )
        order.append(name)
    loss = model(torch.randn(3, 8)).mean()
    seen = trace_structure(loss, nodes)
    loss.backward()
    assert seen.reached == {id(p) for p in model.parameters() if p.grad is not None}
    for before, after in itertools.pairwise(order):
        assert before in seen.layers[after].parents
    assert seen.residual_adds == kinds.count("block")
