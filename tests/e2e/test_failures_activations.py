# SPDX-License-Identifier: MIT
"""Dead neurons and saturated activations: real programs, told with type, layer and step."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg

pytestmark = pytest.mark.usefixtures("seed")


def regression(rows=32, width=8):
    x = torch.randn(rows, width)
    return x, (x[:, 0] * x[:, 1] + x[:, 2]).unsqueeze(1)


def update(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def zeros(tensor):
    return (tensor == 0).float().mean().item()


# -- dead neurons ----------------------------------------------------------------------------


def test_bias_that_no_input_overcomes(explained):
    model = nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)
    )
    nn.init.constant_(model[2].bias, -10.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with NeuralDbg(model) as dbg:
        for _ in range(50):
            x, y = regression()
            loss = F.mse_loss(model(x), y)
            update(loss, optimizer)
            dbg.record_loss(loss.item())
    assert zeros(model[:4](x)) == 1.0
    explained(dbg, "dead_neurons").check("dead_neurons", ("2", "3"), 0)


class Counter(nn.Module):
    """Sums what its units say: they all move in one direction."""

    def __init__(self):
        super().__init__()
        self.hidden, self.relu = nn.Linear(8, 32), nn.ReLU()

    def forward(self, x):
        return self.relu(self.hidden(x)).sum(1, keepdim=True)


def test_one_bad_batch_kills_every_unit(explained):
    model = Counter()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    dead = []
    with NeuralDbg(model) as dbg:
        for step in range(80):
            x = torch.rand(32, 8)
            y = x.sum(1, keepdim=True) - (10_000 if step == 40 else 0)
            loss = F.mse_loss(model(x), y)
            dbg.record_loss(loss)
            update(loss, optimizer)
            dead.append(zeros(model.relu(model.hidden(x))))
    assert max(dead[:40]) < 0.8
    assert min(dead[40:]) > 0.99
    explained(dbg, "dead_neurons").check(
        "dead_neurons", ("hidden", "relu"), (40, 41), is_leading=False
    )


class Vision(nn.Module):
    """No activation modules at all."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)
        self.fc = nn.Linear(16, 3)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(F.max_pool2d(x, 2)))
        return self.fc(x.mean((2, 3)))


def test_bad_bias_loaded_in_the_middle_of_training(explained):
    model = Vision()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with NeuralDbg(model) as dbg:
        for step in range(70):
            if step == 35:
                state = model.state_dict()
                state["conv2.bias"] = torch.full((16,), -200.0)
                model.load_state_dict(state)
            y = torch.randint(0, 3, (16,))
            x = torch.randn(16, 1, 8, 8) + 3.0 * y.view(-1, 1, 1, 1)
            loss = F.cross_entropy(model(x), y)
            update(loss, optimizer)
            losses.append(loss.item())
    assert sum(losses[-10:]) > 1.5 * sum(losses[25:35])
    assert model.conv2.weight.grad.abs().max() == 0
    explained(dbg, "dead_neurons").check("dead_neurons", "conv2", 35)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(8, 64)
        self.relu = nn.ReLU(inplace=True)
        self.norm = nn.LayerNorm(64)
        self.out = nn.Linear(64, 1)

    def forward(self, x):
        return self.out(self.norm(self.relu(self.project(x))))


def test_most_units_of_one_layer_dead_from_the_start(explained):
    model = Encoder()
    with torch.no_grad():
        model.project.bias[:62] = -30.0
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with NeuralDbg(model) as dbg:
        for step in range(60):
            x, y = regression()
            loss = F.smooth_l1_loss(model(x), y)
            update(loss, optimizer)
            dbg.record_loss(loss.item())
            if step % 10 == 9:
                model.eval()
                with torch.no_grad():
                    model(x)
                model.train()
    assert (F.relu(model.project(x)).amax(0) == 0).float().mean() > 0.9
    explained(dbg, "dead_neurons").check("dead_neurons", ("project", "relu"), 0)


# -- saturation ------------------------------------------------------------------------------


def test_tanh_fed_with_raw_pixels(explained):
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    with NeuralDbg(model) as dbg:
        for _ in range(50):
            y = torch.randint(0, 3, (32,))
            x = (torch.rand(32, 16) * 200 + 20.0 * y.unsqueeze(1)).clamp(0, 255)
            loss = F.cross_entropy(model(x), y)
            update(loss, optimizer)
            dbg.record_loss(loss)
    assert (model[:2](x).abs() > 0.995).float().mean() > 0.7
    explained(dbg, "saturated_activations").check(
        "saturated_activations", ("0", "1"), 0, is_leading=False
    )


def test_sigmoid_behind_weights_drawn_too_large(explained):
    model = nn.Sequential()
    model.embed, model.gelu = nn.Linear(8, 32), nn.GELU()
    model.gate, model.squash = nn.Linear(32, 32), nn.Sigmoid()
    model.head = nn.Linear(32, 1)
    nn.init.normal_(model.gate.weight, std=30.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with NeuralDbg(model) as dbg:
        for _ in range(50):
            x, y = regression()
            loss = F.mse_loss(model(x), y)
            update(loss, optimizer)
            dbg.record_loss(loss.item())
    squashed = model[:4](x)
    assert (squashed * (1 - squashed) < 0.0025).float().mean() > 0.8
    explained(dbg, "saturated_activations").check("saturated_activations", ("gate", "squash"), 0)


class Gated(nn.Module):
    """Gates whose steepness a schedule raises while it trains."""

    def __init__(self):
        super().__init__()
        self.inp, self.gate, self.out = nn.Linear(8, 32), nn.Linear(32, 32), nn.Linear(32, 1)
        self.squash, self.steepness = nn.Sigmoid(), 1.0

    def forward(self, x):
        return self.out(self.squash(self.gate(F.silu(self.inp(x))) * self.steepness))


def test_gate_made_too_steep_by_a_schedule(explained):
    model = Gated()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    losses = []
    with NeuralDbg(model) as dbg:
        for step in range(120):
            model.steepness = 1.0 if step < 80 else 5000.0
            x, y = regression(64)
            loss = F.mse_loss(model(x), y)
            update(loss, optimizer)
            dbg.record_loss(loss.item())
            losses.append(loss.item())
    gate = torch.sigmoid(model.gate(F.silu(model.inp(x))) * model.steepness)
    assert (gate * (1 - gate) < 0.0025).float().mean() > 0.9
    assert min(losses[85:]) > max(losses[75:80])
    explained(dbg, "saturated_activations").check("saturated_activations", ("gate", "squash"), 80)


class Unscaled(nn.Module):
    """Attention written by hand: weights drawn too large, no division by the root of the width."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(4, 64)
        self.query, self.key, self.value = (nn.Linear(64, 64) for _ in range(3))
        self.softmax, self.head = nn.Softmax(dim=-1), nn.Linear(64, 1)
        for layer in (self.query, self.key):
            nn.init.normal_(layer.weight, std=2.0)

    def forward(self, tokens):
        x = self.embed(tokens)
        scores = self.query(x) @ self.key(x).transpose(1, 2)
        return self.head((self.softmax(scores) @ self.value(x)).mean(1))


def test_softmax_of_unscaled_attention(explained):
    model = Unscaled()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    with NeuralDbg(model) as dbg:
        for _ in range(60):
            x = torch.randn(32, 10, 4)
            marked = torch.randint(0, 10, (32, 1, 1)).expand(-1, -1, 4)
            x[:, :, 3] = 0.0
            y = x.gather(1, marked)[:, 0, :1]
            x.scatter_(1, marked, x.gather(1, marked) + torch.tensor([0.0, 0.0, 0.0, 1.0]))
            loss = F.mse_loss(model(x), y)
            update(loss, optimizer)
            dbg.record_loss(loss)
            losses.append(loss.item())
    hidden = model.embed(x)
    attention = model.softmax(model.query(hidden) @ model.key(hidden).transpose(1, 2))
    assert (attention.amax(-1) > 0.99).float().mean() > 0.9
    assert sum(losses[-10:]) > 7
    explained(dbg, "saturated_activations").check(
        ("saturated_activations", "representation_collapse"), ("softmax", "query", "key"), 0
    )
