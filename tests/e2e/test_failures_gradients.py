# SPDX-License-Identifier: MIT
"""Vanishing and exploding gradients: real programs, told with type, layer and step."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg

pytestmark = pytest.mark.usefixtures("seed")


def blobs(rows=32, width=16, classes=4):
    y = torch.randint(0, classes, (rows,))
    return F.one_hot(y, width).float() * 3 + torch.randn(rows, width), y


# -- vanishing -------------------------------------------------------------------------------


def test_tower_of_sigmoids(explained):
    layers = []
    for i in range(14):
        layers += [nn.Linear(16 if i == 0 else 24, 24), nn.Sigmoid()]
    model = nn.Sequential()
    model.body = nn.Sequential(*layers)
    model.head = nn.Linear(24, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    norms = []
    with NeuralDbg(model) as dbg:
        for _ in range(60):
            x, y = blobs()
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            norms.append(
                (model.body[0].weight.grad.norm().item(), model.head.weight.grad.norm().item())
            )
            optimizer.step()
            dbg.record_loss(loss)
    assert max(first for first, _ in norms) < 1e-7 * max(last for _, last in norms)
    explained(dbg, "vanishing_gradients").check("vanishing_gradients", ("body.0", "body.1"), 0)


class SmallInit(nn.Module):
    """Functional tanh, and normal(0, 0.01) as in many an old script."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(8, 32)
        self.hidden = nn.ModuleList(nn.Linear(32, 32) for _ in range(10))
        self.out = nn.Linear(32, 1)
        for layer in self.hidden:
            nn.init.normal_(layer.weight, std=0.005)

    def forward(self, x):
        x = torch.tanh(self.embed(x))
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        return self.out(x)


def test_weights_drawn_too_small(explained):
    model = SmallInit()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    norms = []
    with NeuralDbg(model) as dbg:
        for _ in range(50):
            x = torch.randn(32, 8)
            loss = F.mse_loss(model(x).squeeze(1), x[:, 0] * x[:, 1])
            optimizer.zero_grad(set_to_none=False)
            dbg.record_loss(loss.item())
            loss.backward()
            optimizer.step()
            norms.append(model.embed.weight.grad.norm().item())
    assert max(norms) < 1e-8
    explained(dbg, "vanishing_gradients").check("vanishing_gradients", ("embed", "hidden.0"), 0)


def test_weights_drawn_too_small_beside_biases_that_are_not():
    """The biases alone keep the size of what passes; it no longer tells samples apart."""
    layers = [part for _ in range(6) for part in (nn.Linear(12, 12), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(12, 4))
    for layer in model[::2]:
        nn.init.normal_(layer.weight, std=0.01)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rule = torch.randn(12, 4)
    with NeuralDbg(model) as dbg:
        for _ in range(100):
            x = torch.randn(48, 12)
            loss = F.cross_entropy(model(x), (x @ rule).argmax(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss)
    first = dbg.explain_failure()[0]
    assert (first.cause, first.layer, first.onset) == ("init_too_small", "0", 0)
    assert "little but their biases" in first.description


class Recall(nn.Module):
    """Has to remember its first input over 60 steps, through a contraction."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(5, 16)
        self.memory = nn.RNN(16, 16, batch_first=True)
        self.readout = nn.Linear(16, 5)
        with torch.no_grad():
            self.memory.weight_hh_l0.mul_(0.5)

    def forward(self, cue, *, length=60):
        first = self.encoder(cue).unsqueeze(1)
        rest = first.new_zeros(len(cue), length - 1, 16)
        states, _ = self.memory(torch.cat([first, rest], 1))
        return self.readout(states[:, -1])


def test_memory_over_too_many_time_steps(explained):
    model = Recall()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    norms, losses = [], []
    with NeuralDbg(model) as dbg:
        for _ in range(60):
            y = torch.randint(0, 5, (32,))
            loss = F.cross_entropy(model(F.one_hot(y, 5).float(), length=60), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            norms.append(model.encoder.weight.grad.norm().item())
            losses.append(loss.item())
    assert max(norms) < 1e-9
    assert losses[-1] > 1.4
    explained(dbg, "vanishing_gradients").check("vanishing_gradients", ("encoder", "memory"), 0)


class Growing(nn.Module):
    """A network to which a block is added while it trains."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4))
        self.grown = nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 1))
        self.head = nn.Linear(8 * 16, 3)
        for i in (0, 2):
            nn.init.normal_(self.grown[i].weight, std=1e-6)
            nn.init.zeros_(self.grown[i].bias)
        self.is_grown = False

    def forward(self, image):
        x = self.stem(image)
        if self.is_grown:
            x = self.grown(x)
        return self.head(x.flatten(1))


def test_block_without_signal_added_in_the_middle_of_training(explained):
    model = Growing()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.03)
    before, after = [], []
    with NeuralDbg(model) as dbg:
        for step in range(75):
            if step == 50:
                model.is_grown = True
            y = torch.randint(0, 3, (16,))
            x = torch.randn(16, 1, 8, 8) + y.view(-1, 1, 1, 1)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            dbg.record_loss(loss.item())
            (after if step >= 50 else before).append(model.stem[0].weight.grad.norm().item())
            if step % 20 == 19:
                model.eval()
                with torch.no_grad():
                    model(x)
                model.train()
    assert max(after) < 1e-5 * min(before)
    explained(dbg, "vanishing_gradients").check(
        "vanishing_gradients", ("grown.0", "grown.2", "stem.0"), 50, is_leading=False
    )


# -- exploding -------------------------------------------------------------------------------


class Oscillator(nn.Module):
    def __init__(self, gain):
        super().__init__()
        self.rnn = nn.RNN(3, 24, nonlinearity="relu", batch_first=True)
        self.head = nn.Linear(24, 1)
        nn.init.orthogonal_(self.rnn.weight_hh_l0, gain=gain)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


def test_recurrence_that_expands(explained):
    model = Oscillator(2.5)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    norms = []
    with NeuralDbg(model) as dbg:
        for _ in range(40):
            x = torch.randn(16, 30, 3)
            loss = F.l1_loss(model(x), x.mean((1, 2)).unsqueeze(1))
            optimizer.zero_grad()
            loss.backward()
            norms.append(model.rnn.weight_hh_l0.grad.norm().item())
            optimizer.step()
            dbg.record_loss(loss.item())
            if not loss.isfinite():
                break
    assert norms[0] > 1e4
    explained(dbg, "exploding_gradients").check("exploding_gradients", "rnn", 0)


def test_every_layer_drawn_too_large(explained):
    model = nn.Sequential(
        *(layer for i in range(10) for layer in (nn.Linear(16 if i == 0 else 32, 32), nn.ReLU())),
        nn.Linear(32, 1),
    )
    for module in model:
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    norms, losses = [], []
    with NeuralDbg(model) as dbg:
        for _ in range(40):
            x, _ = blobs()
            loss = F.l1_loss(model(x).squeeze(1), x.mean(1))
            optimizer.zero_grad()
            loss.backward()
            norms.append(model[0].weight.grad.norm().item())
            dbg.record_loss(loss)
            optimizer.step()
            losses.append(loss.item())
    assert norms[0] > 1e4
    assert losses[0] > 1e4
    explained(dbg, "exploding_gradients").check("exploding_gradients", "0", 0)


class Regressor(nn.Module):
    """One layer of several was scaled by a thousand."""

    def __init__(self):
        super().__init__()
        self.embed, self.mix = nn.Linear(16, 32), nn.Linear(32, 32)
        self.wide, self.out = nn.Linear(32, 32), nn.Linear(32, 1)
        with torch.no_grad():
            self.mix.weight.mul_(1000)

    def forward(self, x):
        x = F.silu(self.embed(x))
        x = F.silu(self.mix(x))
        return self.out(F.silu(self.wide(x)))


def test_one_layer_drawn_too_large(explained):
    model = Regressor()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    norms = []
    with NeuralDbg(model) as dbg:
        for _ in range(40):
            x, _ = blobs()
            loss = F.mse_loss(model(x).squeeze(1), x.mean(1))
            optimizer.zero_grad()
            loss.backward()
            norms.append(model.embed.weight.grad.norm().item())
            optimizer.step()
            dbg.record_loss(loss)
    assert norms[0] > 1e3
    explained(dbg, "exploding_gradients").check("exploding_gradients", "mix", 0)


def test_one_long_sequence_among_short_ones_without_clipping(explained):
    model = Oscillator(2.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    norms, losses = [], []
    with NeuralDbg(model) as dbg:
        for step in range(60):
            x = torch.randn(16, 30 if step == 45 else 8, 3)
            loss = F.mse_loss(model(x), x.mean((1, 2)).unsqueeze(1))
            optimizer.zero_grad()
            loss.backward()
            norms.append(model.rnn.weight_hh_l0.grad.norm().item())
            optimizer.step()
            losses.append(loss.item())
            dbg.record_loss(losses[-1])
            if not loss.isfinite():
                break
    assert 1e3 * max(norms[:45]) < norms[45] < float("inf")
    assert not losses[46] < 3 * max(losses[:45])
    explained(dbg, "exploding_gradients").check("exploding_gradients", "rnn", 45, is_leading=False)


class Adder(nn.Module):
    """Adds up a series with a rectified recurrence, whose gradient grows from step to step."""

    def __init__(self, growth):
        super().__init__()
        self.core = nn.RNN(1, 24, nonlinearity="relu", batch_first=True)
        self.head = nn.Linear(24, 1)
        with torch.no_grad():
            self.core.weight_hh_l0.copy_(growth * torch.eye(24))

    def forward(self, x):
        return self.head(self.core(x)[0][:, -1])


@pytest.mark.parametrize(
    ("growth", "lr", "clip", "cause"),
    [
        (1.2, 0.03, None, "missing_gradient_clipping"),
        (1.2, 0.03, 1.0, None),
        (1.0, 30.0, None, "lr_too_high"),
    ],
)
def test_recurrence_whose_gradient_is_huge_from_the_first_step(growth, lr, clip, cause):
    model = Adder(growth)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    with NeuralDbg(model) as dbg:
        for _ in range(200):
            x = torch.randn(32, 24, 1) / 2
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), x.sum(1))
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            dbg.record_loss(loss)
    first = [(h.cause, h.layer, h.onset) for h in dbg.explain_failure()[:1]]
    if cause == "missing_gradient_clipping":
        assert first == [(cause, "core", 0)]
    else:
        assert [c for c, *_ in first] == ([cause] if cause else [])
