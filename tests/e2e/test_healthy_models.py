# SPDX-License-Identifier: MIT
"""Promise 3: a healthy run is quiet. Models and data on which naive rules cry wolf."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from neuraldbg import NeuralDbg

pytestmark = pytest.mark.usefixtures("seed")


def update(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def mlp(width=8, hidden=32, out=1, act=nn.ReLU):
    return nn.Sequential(
        nn.Linear(width, hidden), act(), nn.Linear(hidden, hidden), act(), nn.Linear(hidden, out)
    )


def regression(rows=32, width=8, noise=0.0):
    x = torch.randn(rows, width)
    return x, x[:, :2].sum(1, keepdim=True) + noise * torch.randn(rows, 1)


def classes(rows=32, width=12, count=3):
    y = torch.randint(0, count, (rows,))
    return F.one_hot(y, width).float() * 2 + torch.randn(rows, width), y


def train(model, make, criterion, optimizer, steps, schedule=None):
    with NeuralDbg(model) as dbg:
        for _ in range(steps):
            x, y = make()
            loss = criterion(model(x), y)
            update(loss, optimizer)
            if schedule is not None:
                schedule.step()
            dbg.record_loss(loss.item())
    return dbg


def is_quiet(dbg):
    said = [str(hypothesis) for hypothesis in dbg.explain_failure()]
    assert said == []
    assert dbg.get_causal_hypotheses() == []
    assert "no failure found" in repr(dbg)
    return True


# -- activations and scales ------------------------------------------------------------------------


def test_relu_network_that_is_sparse_by_design():
    model = nn.Sequential(nn.Linear(8, 256), nn.ReLU(), nn.Linear(256, 1))
    nn.init.constant_(model[0].bias, -1.0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    dbg = train(model, regression, F.mse_loss, optimizer, 120)
    assert dbg.loss_history[-1] < 0.3 * dbg.loss_history[0]
    assert is_quiet(dbg)


def test_confident_sigmoid_and_softmax_outputs():
    model = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 3), nn.LogSoftmax(1))
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)

    def make():
        y = torch.randint(0, 3, (64,))
        return F.one_hot(y, 12).float() * 8 + torch.randn(64, 12) * 0.3, y

    dbg = train(model, make, F.nll_loss, optimizer, 150)
    assert dbg.loss_history[-1] < 1e-2
    assert is_quiet(dbg)


def test_gates_of_an_lstm_that_learn_to_close():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.LSTM(2, 24, batch_first=True), nn.Linear(24, 1)

        def forward(self, x):
            return self.head(self.rnn(x)[0][:, -1])

    model = Reader()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def make():
        x = torch.randn(32, 12, 2)
        return x, x[:, -3:, 0].sum(1, keepdim=True)

    dbg = train(model, make, F.mse_loss, optimizer, 200)
    assert is_quiet(dbg)


def test_tiny_loss_scale_with_an_adaptive_optimizer():
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-16)

    def make():
        x, y = regression()
        return x, y * 1e-4

    model[-1].weight.data.mul_(1e-3)
    model[-1].bias.data.mul_(1e-3)
    dbg = train(model, make, F.mse_loss, optimizer, 150)
    assert is_quiet(dbg)


def test_sum_reduction_on_purpose_with_a_small_rate():
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=4e-5)

    def criterion(out, y):
        return F.mse_loss(out, y, reduction="sum")

    dbg = train(model, lambda: regression(256), criterion, optimizer, 150)
    assert dbg.loss_history[-1] < 0.7 * dbg.loss_history[0]
    assert is_quiet(dbg)


def test_inputs_of_mixed_kinds_and_scales_behind_a_norm():
    model = nn.Sequential(nn.BatchNorm1d(8), nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scales = torch.tensor([1.0, 100.0, 0.01, 1.0, 1.0, 1000.0, 1.0, 1.0])

    def make():
        x, y = regression(64)
        return x * scales, y

    assert is_quiet(train(model, make, F.mse_loss, optimizer, 120))


def test_batches_of_very_different_sizes_and_lengths():
    class Bag(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(30, 16), nn.Linear(16, 2)

        def forward(self, ids):
            return self.head(self.embed(ids).mean(1))

    model = Bag()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-2)

    def make():
        rows, length = (int(n) for n in torch.randint(1, 40, (2,)))
        ids = torch.randint(0, 30, (rows, length))
        return ids, ((ids < 15).float().mean(1) > 0.5).long()

    assert is_quiet(train(model, make, F.cross_entropy, optimizer, 120))


def test_batch_size_of_one():
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    assert is_quiet(train(model, lambda: regression(1), F.mse_loss, optimizer, 200))


def test_heavy_tailed_inputs():
    model = mlp()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)

    def make():
        x = torch.distributions.StudentT(3.0).sample((32, 8))
        return x, x[:, :1].tanh()

    assert is_quiet(train(model, make, F.smooth_l1_loss, optimizer, 150))


# -- partial training ------------------------------------------------------------------------------


def test_frozen_backbone_under_a_new_head():
    model = nn.Sequential()
    model.backbone, model.head = mlp(12, 32, 16), nn.Linear(16, 3)
    model.backbone.requires_grad_(False).eval()
    optimizer = torch.optim.Adam(model.head.parameters(), lr=2e-2)
    dbg = train(model, lambda: classes(64), F.cross_entropy, optimizer, 120)
    assert is_quiet(dbg)


class LowRank(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def test_low_rank_adapters_that_start_at_zero():
    model = mlp(12, 32, 3)
    for i in (0, 2):
        model[i] = LowRank(model[i])
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    dbg = train(model, lambda: classes(64), F.cross_entropy, optimizer, 120)
    assert is_quiet(dbg)


def test_residual_blocks_that_start_at_zero():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.inner, self.outer = (
                nn.LayerNorm(16),
                nn.Linear(16, 32),
                nn.Linear(32, 16),
            )
            nn.init.zeros_(self.outer.weight)
            nn.init.zeros_(self.outer.bias)

        def forward(self, x):
            return x + self.outer(F.gelu(self.inner(self.norm(x))))

    model = nn.Sequential(nn.Linear(8, 16), *(Block() for _ in range(4)), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    assert is_quiet(train(model, regression, F.mse_loss, optimizer, 100))


def test_accumulation_with_clipping():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with NeuralDbg(model) as dbg:
        for step in range(240):
            x, y = regression(8)
            loss = F.mse_loss(model(x), y) / 4
            loss.backward()
            dbg.record_loss(loss.item() * 4)
            if step % 4 == 3:
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)
                optimizer.step()
                optimizer.zero_grad()
    assert is_quiet(dbg)


def test_tied_autoencoder():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.encode = nn.Linear(12, 4)
            self.bias = nn.Parameter(torch.zeros(12))

        def forward(self, x):
            return F.linear(torch.tanh(self.encode(x)), self.encode.weight.T, self.bias)

    model = Tied()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    mix = torch.randn(3, 12)

    def make():
        x = torch.randn(64, 3) @ mix / 3
        return x, x

    assert is_quiet(train(model, make, F.mse_loss, optimizer, 150))


def test_second_order_optimizer_on_a_full_batch():
    model = mlp(4, 16, 1, nn.Tanh)
    optimizer = torch.optim.LBFGS(model.parameters(), line_search_fn="strong_wolfe", max_iter=6)
    x = torch.randn(64, 4)
    y = x.prod(1, keepdim=True)
    with NeuralDbg(model) as dbg:
        for _ in range(15):

            def closure():
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                return loss

            dbg.record_loss(optimizer.step(closure))
    assert is_quiet(dbg)


def test_sparse_embeddings_of_which_few_rows_are_touched():
    table, head = nn.Embedding(2000, 8, sparse=True), nn.Linear(8, 1)
    model = nn.Sequential(table, head)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    goal = torch.randn(2000, 1)

    def make():
        ids = torch.randint(0, 2000, (32,))
        return ids, goal[ids]

    assert is_quiet(train(model, make, F.mse_loss, optimizer, 120))
