# SPDX-License-Identifier: MIT
"""A log-scale must pay for what its exponential gains; flows, variances and weights that do."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

N, K = 16, 4


def pair(split):
    """Return scale and shift of a coupling layer, from two heads or from one that is cut."""
    net = nn.Sequential(nn.Linear(K, 8), nn.Tanh(), nn.Linear(8, 2 * K))

    def heads(x):
        both = net(x)
        if split == "chunk":
            return both.chunk(2, dim=1)
        if split == "shift first":
            shift, scale = both.chunk(2, dim=1)
            return scale, shift
        return both[:, :K], both[:, K:]

    return net, heads


def flow(sign, split="chunk", inverse=1.0):
    net, heads = pair(split)

    def loss(_):
        kept, moved = torch.randn(N, K), torch.randn(N, K)
        scale, shift = heads(kept)
        scale = 1.5 * scale.tanh()
        z = moved * (inverse * scale).exp() + shift
        log_det = (inverse * scale).sum(1)
        return (0.5 * z.square().sum(1) + 1.8 + sign * log_det).mean()

    return net, loss


def gaussian(sign):
    net = nn.Linear(K, 2)

    def loss(_):
        mean, log_variance = net(torch.randn(N, K)).unbind(1)
        error = (mean - torch.randn(N)) ** 2
        return 0.5 * (torch.exp(-log_variance) * error + sign * log_variance).mean()

    return net, loss


def variational(sign):
    net = nn.Linear(K, 2 * K)

    def loss(_):
        x = torch.randn(N, K)
        mean, log_variance = net(x).chunk(2, dim=1)
        code = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(1).mean()
        return F.mse_loss(code, x) + sign * divergence

    return net, loss


def gated_regression():
    """Return a gain that is kept small on purpose: its target holds it."""
    net = nn.Linear(K, K)

    def loss(_):
        x = torch.randn(N, K)
        gain = net(x)
        return (x * gain.exp() - torch.randn(N, K)).pow(2).mean() + 1e-2 * gain.mean()

    return net, loss


UNHELD = {
    "flow": lambda: flow(1.0),
    "flow, shift first": lambda: flow(1.0, "shift first"),
    "flow, heads by slices": lambda: flow(1.0, "slices"),
    "flow that divides": lambda: flow(1.0, inverse=-1.0),
    "Gaussian": lambda: gaussian(-1.0),
}
HELD = {
    "flow": lambda: flow(-1.0),
    "flow, shift first": lambda: flow(-1.0, "shift first"),
    "flow, heads by slices": lambda: flow(-1.0, "slices"),
    "flow that divides": lambda: flow(-1.0, inverse=-1.0),
    "Gaussian": lambda: gaussian(1.0),
    "autoencoder": lambda: variational(1.0),
    "regression": gated_regression,
}


@pytest.mark.parametrize("name", UNHELD)
def test_log_scale_that_nothing_holds_is_reported(run_audit, name):
    torch.manual_seed(1)
    net, loss = UNHELD[name]()
    said = run_audit(net, lambda step: [(loss(step), [net])])
    assert said["unopposed_log_scale"].words["cause"] == "wrong_loss_sign"


@pytest.mark.parametrize("name", HELD)
def test_log_scale_that_pays_for_what_it_gains_is_silent(run_audit, name):
    torch.manual_seed(1)
    net, loss = HELD[name]()
    assert "unopposed_log_scale" not in run_audit(net, lambda step: [(loss(step), [net])])
