# SPDX-License-Identifier: MIT
"""Every check on a wrong program, and on its right twin."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytestmark = pytest.mark.filterwarnings("ignore:Using a target size")
N, K = 32, 5
PROGRAMS = {}


def program(kind, layer=None):
    """Register `build(wrong) -> model, loss(model)`, and what must be found in the wrong one."""

    def register(build):
        PROGRAMS[build.__name__] = (kind, layer, build)
        return build

    return register


def mlp(out, *last):
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, out), *last)


def labels(low=0, high=K, n=N):
    return torch.randint(low, high, (n,))


def x(*shape):
    return torch.randn(*(shape or (N, 6)))


@program("probabilities_into_cross_entropy", "3")
def softmax_module_before_cross_entropy(wrong):
    return mlp(K, nn.Softmax(dim=1) if wrong else nn.LogSoftmax(dim=1)), lambda m: F.cross_entropy(
        m(x()), labels()
    )


@program("probabilities_into_cross_entropy", "2")
def functional_softmax_in_the_loop(wrong):
    return mlp(K), lambda m: F.cross_entropy(
        m(x()).softmax(-1) if wrong else m(x()).softmax(-1) * 20, labels()
    )


@program("probabilities_into_cross_entropy", "3")
def sigmoid_before_soft_cross_entropy(wrong):
    return mlp(K, *([nn.Sigmoid()] if wrong else [])), lambda m: F.cross_entropy(
        m(x()), torch.rand(N, K).softmax(-1)
    )


@program("probabilities_into_cross_entropy", "3")
def softmax_before_label_smoothing(wrong):
    return mlp(K, *([nn.Softmax(1)] if wrong else [])), lambda m: F.cross_entropy(
        m(x()), labels(), label_smoothing=0.1
    )


@program("probabilities_into_logits_loss", "3")
def sigmoid_before_logits_loss(wrong):
    return mlp(1, *([nn.Sigmoid()] if wrong else [])), lambda m: F.binary_cross_entropy_with_logits(
        m(x()).squeeze(1)[4:], torch.rand(N - 4).round()
    )


@program("scores_into_probability_loss", "2")
def raw_scores_into_nll(wrong):
    return mlp(K), lambda m: F.nll_loss(m(x()) if wrong else m(x()).log_softmax(1), labels())


@program("scores_into_probability_loss", "3")
def probabilities_into_nll(wrong):
    return mlp(K, nn.Softmax(1)), lambda m: F.nll_loss(m(x()) if wrong else m(x()).log(), labels())


@program("scores_into_probability_loss", "2")
def raw_scores_into_kl(wrong):
    return mlp(K), lambda m: F.kl_div(
        m(x()) if wrong else F.log_softmax(m(x()) / 4, 1),
        torch.rand(N, K).softmax(1),
        reduction="batchmean",
    )


@program("scores_into_probability_loss", "2")
def tempered_scores_into_kl(wrong):
    return mlp(K), lambda m: F.kl_div(
        m(x()) / 3 if wrong else (m(x()) / 3).log_softmax(1),
        torch.rand(N, K).softmax(1),
        reduction="batchmean",
    )


@program("broadcast_loss", "2")
def column_against_row_fused(wrong):
    return mlp(1), lambda m: F.smooth_l1_loss(m(x()), x(N) if wrong else x(N, 1))


@program("broadcast_loss", "2")
def column_against_row_by_hand(wrong):
    return mlp(1), lambda m: (m(x()) - (x(N) if wrong else x(N, 1))).abs().mean()


@program("broadcast_loss", "2")
def row_against_column_by_hand(wrong):
    return mlp(1), lambda m: ((m(x()).squeeze(1) - (x(N, 1) if wrong else x(N))) ** 2).mean()


@program("broadcast_loss", "2")
def log_probability_against_advantages(wrong):
    def loss(m):
        chosen = m(x()).log_softmax(1).gather(1, labels()[:, None]).squeeze(1)
        return -(chosen * (x(N, 1) if wrong else x(N))).mean()

    return mlp(K), loss


@program("softmax_dim", "3")
def softmax_over_samples(wrong):
    return mlp(K, nn.Softmax(0 if wrong else 1)), lambda m: F.mse_loss(
        m(x()), F.one_hot(labels(), K).float()
    )


@program("softmax_dim", "2")
def log_softmax_over_samples(wrong):
    return mlp(K), lambda m: F.nll_loss(m(x()).log_softmax(0 if wrong else 1), labels())


class Pooling(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.score, self.head, self.dim = nn.Linear(6, 1), nn.Linear(6, 1), dim

    def forward(self, given):
        return self.head((self.score(given).softmax(self.dim) * given).sum(1))


@program("softmax_dim", "score")
def softmax_over_one_score(wrong):
    return Pooling(-1 if wrong else 1), lambda m: F.mse_loss(m(x(N, 7, 6)), x(N, 1))


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(6, 8), nn.Linear(6, 8), nn.Linear(6, 8)
        self.dim = dim

    def forward(self, given):
        scores = self.q(given) @ self.k(given).transpose(1, 2) / 8**0.5
        return (scores.softmax(self.dim) @ self.v(given)).mean(1)


@program("softmax_dim")
def softmax_over_queries(wrong):
    return Attention(1 if wrong else 2), lambda m: F.mse_loss(m(x(N, 7, 6)), x(N, 8))


@program("target_out_of_range", "3")
def relu_head_negative_targets(wrong):
    return mlp(1, nn.ReLU()), lambda m: F.mse_loss(m(x()), x(N, 1) if wrong else x(N, 1).abs())


@program("target_out_of_range", "3")
def tanh_head_wide_targets_by_hand(wrong):
    return mlp(2, nn.Tanh()), lambda m: ((m(x()) - x(N, 2) * (4 if wrong else 0.2)) ** 2).mean()


@program("target_out_of_range", "2")
def signed_labels_into_bce(wrong):
    return mlp(1), lambda m: F.binary_cross_entropy_with_logits(
        m(x()), torch.rand(N, 1).round() * (2 if wrong else 1) - (1 if wrong else 0)
    )


@program("label_gap")
def labels_start_at_one(wrong):
    return mlp(K), lambda m: F.cross_entropy(m(x()), labels(1 if wrong else 0))


@program("padding_dominates", "2")
def padding_enters_the_loss(wrong):
    def loss(m):
        length = torch.randint(2, 6, (N, 1))
        tokens = torch.randint(1, K, (N, 12)) * (torch.arange(12) < length)
        scores = m(x(N, 12, 6)).transpose(1, 2)
        return F.cross_entropy(scores, tokens, ignore_index=-100 if wrong else 0)

    return mlp(K), loss


@program("sum_reduction", "2")
def sum_over_the_batch(wrong):
    return mlp(4), lambda m: F.mse_loss(m(x()), x(N, 4), reduction="sum" if wrong else "mean")


@program("constant_term", "1")
def ranking_against_itself(wrong):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(6, K), nn.ModuleList([nn.Linear(6, 1)])
            self.add_module("1", nn.Linear(6, 1))

        def forward(self, given):
            return self.first(given), self.get_submodule("1")(given).squeeze(1)

    def loss(m):
        scores, rank = m(x())
        term = F.relu(1 - (rank[:16] - (rank[:16] if wrong else rank[16:]))).mean()
        return F.cross_entropy(scores, labels()) + term

    return Two(), loss


@program("detached_term")
def penalty_without_gradient(wrong):
    def loss(m):
        output = m(x())
        penalty = (m(x() + 0.1) - output).pow(2).mean()
        return F.mse_loss(output, x(N, 2)) + (penalty.detach() if wrong else penalty)

    return mlp(2), loss


@program("detached_term")
def penalty_as_a_small_number(wrong):
    def loss(m):
        hidden = m[1](m[0](x()))
        penalty = 0.05 * hidden.square().mean()
        error = F.mse_loss(m[2](hidden), 3 + 9 * x(N, 2))
        return error + (penalty.item() if wrong else penalty)

    return mlp(2), loss


@program("negative_term", "2")
def squared_error_maximised(wrong):
    return mlp(2), lambda m: (-1 if wrong else 1) * F.mse_loss(m(x()), x(N, 2))


@program("negative_term", "2")
def log_likelihood_minimised(wrong):
    def loss(m):
        value = m(x()).log_softmax(1)[torch.arange(N), labels()].mean()
        return value if wrong else -value

    return mlp(K), loss


@program("degenerate_targets")
def targets_all_zero(wrong):
    return mlp(1), lambda m: F.binary_cross_entropy_with_logits(
        m(x()), torch.zeros(N, 1) if wrong else torch.rand(N, 1).round()
    )


@program("degenerate_targets")
def classes_all_zero(wrong):
    return mlp(K), lambda m: F.cross_entropy(
        m(x()), torch.zeros(N, dtype=torch.long) if wrong else labels()
    )


@program("constant_term", "1")
def hinge_against_itself_beside_a_penalty(wrong):
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 1))

    def loss(m):
        high = m(x())
        low = high if wrong else m(x())
        return F.relu(1 - (high - low)).mean() + 1e-3 * high.square().mean()

    return model, loss


def contrast(scale):
    def loss(m):
        a, b = F.normalize(m(x()), dim=1), F.normalize(m(x()), dim=1)
        return F.cross_entropy(a @ b.T * scale, torch.arange(N))

    return loss


@program("temperature")
def temperature_multiplied(wrong):
    return mlp(16), contrast(0.07 if wrong else 1 / 0.07)


@program("temperature")
def temperature_far_too_low(wrong):
    return mlp(16), contrast(1000 if wrong else 10)


class Residual(nn.Module):
    def __init__(self, *, inplace):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.block = nn.Module()
        self.block.act = nn.ReLU(inplace=inplace)
        self.block.lin = nn.Linear(6, 6)
        self.block.forward = lambda h: h + self.block.lin(self.block.act(h))

    def forward(self, given):
        return self.block.forward(self.first(given))


@program("inplace_skip", "block.act")
def inplace_activation_on_the_skip(wrong):
    return Residual(inplace=wrong), lambda m: m(x()).pow(2).mean()


@pytest.mark.parametrize("name", PROGRAMS)
def test_wrong_program_is_reported_from_its_first_step(run_audit, name):
    kind, layer, build = PROGRAMS[name]
    torch.manual_seed(1)
    model, loss = build(True)
    said = run_audit(model, lambda _: [(loss(model), [model])])
    assert kind in said, said
    assert said[kind].step == 0
    assert 0 < said[kind].figures["confidence"] <= 1
    if layer is not None:
        assert said[kind].layer == layer


@pytest.mark.parametrize("name", PROGRAMS)
def test_right_twin_is_silent(run_audit, name):
    _, _, build = PROGRAMS[name]
    torch.manual_seed(1)
    model, loss = build(False)
    assert run_audit(model, lambda _: [(loss(model), [model])]) == {}


def test_missing_last_class_is_reported_after_patience(run_audit):
    torch.manual_seed(1)
    model = mlp(K)
    said = run_audit(
        model, lambda _: [(F.cross_entropy(model(x()), labels(0, K - 1)), [model])], steps=66
    )
    assert said["label_gap"].figures["missing"] == K - 1
    assert said["label_gap"].step == 0


def test_class_that_was_missing_and_comes_late_closes_the_gap(run_audit):
    torch.manual_seed(1)
    model = mlp(K)

    def losses(step):
        return [(F.cross_entropy(model(x()), labels(0, K - 1 if step < 90 else K)), [model])]

    assert "label_gap_closed" not in run_audit(model, losses, steps=89)
    said = run_audit(model, losses, steps=140)
    assert "label_gap" in said
    assert said["label_gap_closed"].step >= 90


@pytest.mark.parametrize("wrong", [True, False])
def test_adversarial_term_that_only_reaches_the_judge_is_reported(run_audit, wrong):
    torch.manual_seed(1)
    maker, judge = mlp(6), mlp(1)

    def losses(_):
        given, real = x(), x()
        fake = maker(given)
        yield F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean(), [judge]
        shown = fake.detach() if wrong else fake
        yield F.softplus(-judge(shown)).mean() + F.mse_loss(fake, real), [maker]

    said = run_audit({"maker": maker, "judge": judge}, losses)
    assert ("detached_term" in said) is wrong


DELIBERATE = {
    "free bits": lambda m: (
        F.cross_entropy(m(x()), labels()) + (m(x()).pow(2).mean(0) * 1e-3).clamp(min=0.5).sum()
    ),
    "distillation": lambda m: F.kl_div(
        F.log_softmax(m(x()) / 4, 1), F.softmax(x(N, K) / 4, 1), reduction="batchmean"
    ),
    "policy gradient": lambda m: (
        -(m(x()).log_softmax(1).gather(1, labels()[:, None]).squeeze(1) * x(N)).mean()
    ),
    "sum divided by hand": lambda m: F.mse_loss(m(x()), x(N, K), reduction="sum") / N,
    "constant offset": lambda m: F.mse_loss(m(x()), x(N, K)) + 3.0,
    "quantiles against quantiles": lambda m: F.smooth_l1_loss(
        m(x())[:, :, None].expand(N, K, K), x(N, 1, K).expand(N, K, K)
    ),
    "distance matrix": lambda m: (m(x())[:, :1] - m(x())[:, :1].T).abs().mean(),
    "all pairs written out": lambda m: (m(x())[:, 0].unsqueeze(1) - x(N)).abs().mean(),
    "straight-through": lambda m: F.mse_loss(
        (m(x()).round() - m(x())).detach() + m(x()), torch.randint(-2, 3, (N, K)).float()
    ),
    "cross-entropy with a hard target network": lambda m: F.cross_entropy(
        m(x()), m(x()).detach().argmax(1)
    ),
    "hinge": lambda m: F.multi_margin_loss(m(x()), labels()),
    "entropy bonus": lambda m: (
        F.cross_entropy(m(x()), labels())
        + 0.01 * (m(x()).softmax(1) * m(x()).log_softmax(1)).sum(1).mean()
    ),
}


@pytest.mark.parametrize("name", DELIBERATE)
def test_deliberate_use_is_silent(run_audit, name):
    torch.manual_seed(1)
    model = mlp(K)
    assert run_audit(model, lambda _: [(DELIBERATE[name](model), [model])]) == {}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", ["mse", "cross_entropy", "both"])
def test_a_constant_number_in_the_loss_is_no_detached_term(run_audit, dtype, kind):
    torch.manual_seed(1)
    model = mlp(K).to(dtype)

    def loss(_):
        output = model(x().to(dtype))
        error = F.mse_loss(output, (100 * x(N, K)).to(dtype)) if kind != "cross_entropy" else 0
        if kind != "mse":
            error = error + F.cross_entropy(output, labels())
        return [(error + 0.918938533, [model])]

    assert "detached_term" not in run_audit(model, loss, steps=40)


def test_positives_in_column_zero_are_no_degenerate_targets(run_audit):
    torch.manual_seed(1)
    model = mlp(16)

    def loss(m):
        a, b = F.normalize(m(x()), dim=1), F.normalize(m(x()), dim=1)
        near = (a * b).sum(1, keepdim=True)
        far = a @ torch.randn(16, 32)
        return F.cross_entropy(torch.cat([near, far], 1) / 0.1, torch.zeros(N, dtype=torch.long))

    assert "degenerate_targets" not in run_audit(model, lambda _: [(loss(model), [model])])
