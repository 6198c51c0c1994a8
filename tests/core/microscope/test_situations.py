# SPDX-License-Identifier: MIT
"""Masks, batch statistics, precision, optimizers, broken inputs and parameters, exceptions."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

HALVES = [torch.bfloat16, torch.float16]


def loop(drive, model, batches, loss_of, optimizer=None, **options):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    driver = drive({"": model}, **options)
    with driver:
        for batch in batches:
            optimizer.zero_grad()
            loss = loss_of(model, batch)
            loss.backward()
            optimizer.step()
    told = Told(driver.told)
    told.left = driver.left
    return told


class Told(list):
    """Observations, and how many examinations were left at the end."""


def only(told, kind="nonfinite_birth"):
    assert [one.kind for one in told] == [kind]
    return told[0]


class Attend(nn.Module):
    def __init__(self, *, fused=False, additive=False):
        super().__init__()
        self.project = nn.Linear(8, 8)
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.fused, self.additive = fused, additive

    def forward(self, x, absent):
        h = self.project(x)
        mask = (
            torch.zeros(absent.shape).masked_fill(absent, -torch.inf) if self.additive else absent
        )
        return self.attend(h, h, h, key_padding_mask=mask, need_weights=not self.fused)[0]


def sets(bad):
    absent = torch.zeros(4, 5, dtype=torch.bool)
    absent[:, 3:] = True
    if bad:
        absent[2] = True
    return torch.randn(4, 5, 8), absent


@pytest.mark.parametrize("additive", [False, True])
def test_attention_over_a_fully_masked_row_is_named(drive, additive):
    model = Attend(additive=additive)
    told = loop(drive, model, [sets(False), sets(True)], lambda m, b: m(*b).square().mean())
    found = only(told)
    assert (found.layer, found.step, found.words["cause"]) == (
        "attend",
        1,
        "fully_masked_attention",
    )
    assert found.words["phase"] == "forward"


def test_partly_masked_attention_is_quiet(drive):
    assert loop(drive, Attend(), [sets(False)] * 3, lambda m, b: m(*b).square().mean()) == []


def test_functional_attention_with_a_float_mask_is_named_or_stays_finite(drive):
    class Fused(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(8, 8)

        def forward(self, x, mask):
            h = self.q(x)[:, None]
            return F.scaled_dot_product_attention(h, h, h, attn_mask=mask[:, None, None])

    def batch(bad):
        x, absent = sets(bad)
        return x, torch.zeros(4, 5).masked_fill(absent, -torch.inf)

    told = loop(drive, Fused(), [batch(False), batch(True)], lambda m, b: m(*b).square().mean())
    if told:  # builds whose kernel answers 0 for such rows have nothing to report
        assert only(told).words["cause"] == "fully_masked_attention"


def test_transformer_encoder_with_an_empty_sequence_is_named_or_stays_finite(drive):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    told = loop(
        drive,
        model,
        [sets(False), sets(True)],
        lambda m, b: m(b[0], src_key_padding_mask=b[1]).square().mean(),
    )
    if told:
        found = only(told)
        assert found.layer == "layers.0.self_attn"
        assert found.words["cause"] == "fully_masked_attention"


def test_attention_written_by_hand_names_its_module(drive):
    class Hand(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(8, 8)

        def forward(self, x, absent):
            h = self.q(x)
            scores = (h @ h.mT).masked_fill(absent[:, None], float("-inf"))
            return scores.softmax(-1) @ h

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Hand()

        def forward(self, x, absent):
            return self.block(x, absent)

    told = loop(drive, Outer(), [sets(False), sets(True)], lambda m, b: m(*b).square().mean())
    found = only(told)
    assert (found.layer, found.words["operation"]) == ("block", "softmax")
    assert found.words["cause"] == "fully_masked_attention"


def test_batch_norm_of_one_value_is_named_from_the_exception(drive):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
    driver = drive({"": model})
    with pytest.raises(ValueError, match="more than 1 value"), driver:
        model(torch.randn(1, 4))
    found = only(driver.told)
    assert (found.layer, found.words["cause"]) == ("1", "single_sample_statistics")


@pytest.mark.parametrize("operation", [torch.linalg.inv, torch.linalg.cholesky])
@pytest.mark.parametrize("inside", [True, False])
def test_singular_matrix_is_named_from_the_exception(drive, operation, inside):
    class Solve(nn.Module):
        def __init__(self):
            super().__init__()
            self.front = nn.Linear(4, 4)
            self.solve = nn.Identity()

        def forward(self, x):
            h = self.front(x) * 0
            return operation(h) if inside else h

    model = Solve()
    driver = drive({"": model})
    with pytest.raises(torch.linalg.LinAlgError), driver:
        operation(model(torch.randn(4, 4)))
    found = only(driver.told)
    assert found.words["mechanism"] == "singular_matrix"
    assert found.layer == ("" if inside else None)


@pytest.mark.parametrize("dtype", HALVES)
def test_overflow_under_autocast_is_told_by_the_dtype(drive, dtype):
    class Grow(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(4, 4)

        def forward(self, x):
            return self.up(x)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.grow = Grow()
            self.drop = nn.Dropout(0.5)

        def forward(self, x):
            return self.drop(self.grow(x))

    def loss_of(model, x):
        with torch.autocast("cpu", dtype=dtype):
            out = model(x)
        return out.float().mean()

    told = loop(drive, Net(), [torch.randn(8, 4), torch.randn(8, 4) * 1e6], loss_of)
    if dtype is torch.float16:
        found = only(told)
        assert found.layer in {"grow.up", "grow"}
        assert found.words["cause"] == "half_precision_overflow"
    else:
        assert told == []


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_nonfinite_input_is_told_apart_from_a_birth(drive, value):
    x = torch.randn(8, 4)
    x[3, 1] = float(value)
    model = nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(), nn.Linear(4, 1))
    told = loop(drive, model, [torch.randn(8, 4), x], lambda m, b: m(b).mean())
    found = only(told, "nonfinite_input")
    assert found.words["cause"] == f"{value}_in_input"
    assert found.words["name"] == ":0"
    assert found.figures["count"] == 1
    assert found.step == 1


def test_a_whole_column_of_nan_suggests_a_constant_feature(drive):
    x = torch.randn(8, 4)
    x[:, 2] = torch.nan
    found = only(loop(drive, nn.Linear(4, 1), [x], lambda m, b: m(b).mean()), "nonfinite_input")
    assert found.words["cause"] == "zero_variance_feature"


def test_nan_in_a_keyword_input_is_named_by_its_keyword(drive):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 1)

        def forward(self, x, *, shift):
            return self.lin(x + shift["by"])

    shift = torch.zeros(8, 4)
    shift[0, 0] = torch.nan
    told = loop(drive, Two(), [shift], lambda m, b: m(torch.randn(8, 4), shift={"by": b}).mean())
    assert only(told, "nonfinite_input").words["name"] == ":shift"


def test_broken_parameter_is_told_apart_from_a_birth(drive):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1))
    with torch.no_grad():
        model[1].weight[0, 0] = torch.nan
    found = only(
        loop(drive, model, [torch.randn(8, 4)] * 3, lambda m, b: m(b).mean()), "nonfinite_parameter"
    )
    assert (found.layer, found.words["name"], found.step) == ("1", "1.weight", 0)


def test_nan_in_a_buffer_is_named(drive):
    class Noise(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)
            self.register_buffer("alpha_bar", torch.linspace(1, -0.5, 8))

        def forward(self, x):
            return self.lin(x) * self.alpha_bar.sqrt()[:, None]

    found = only(loop(drive, Noise(), [torch.randn(8, 4)], lambda m, b: m(b).mean()))
    assert found.words["operation"] == "sqrt"


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop])
def test_half_precision_state_is_named_in_the_optimizer(drive, kind):
    model = nn.Linear(4, 4).half()
    optimizer = kind(model.parameters(), lr=1e-3, eps=1e-8)
    told = loop(
        drive,
        model,
        [torch.randn(8, 4).half() * 1e-3] * 3,
        lambda m, b: m(b).square().mean(),
        optimizer,
    )
    birth = next(one for one in told if one.kind == "nonfinite_birth")
    assert birth.words["phase"] == "optimizer"
    assert birth.words["cause"] == "optimizer_eps_underflow"
    assert birth.layer == ""
    assert birth.step == 0


def test_optimizer_birth_is_seen_right_after_the_step(drive):
    model = nn.Linear(4, 4).half()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-8)
    driver = drive({"": model})
    with driver:
        model(torch.randn(8, 4).half() * 1e-3).square().mean().backward()
        driver.scope.step = 7
        gradients = [p.grad for p in model.parameters()]
        assert all(bool(g.isfinite().all()) for g in gradients)
        for handle in driver._handles[-2:]:
            handle.remove()
        optimizer.step()
        driver.told += driver.scope.examine_optimizer(optimizer)
    found = only(driver.told)
    assert (found.words["phase"], found.step) == ("optimizer", 7)


def test_huge_lr_is_no_eps_underflow(drive):
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e38)
    told = loop(
        drive, model, [torch.full((8, 4), 100.0)] * 3, lambda m, b: (m(b) * 100).mean(), optimizer
    )
    birth = next(one for one in told if one.kind == "nonfinite_birth")
    assert "cause" not in birth.words


def test_nan_target_is_told_from_a_birth(drive):
    target = torch.randn(8, 1)
    target[3] = torch.nan
    told = loop(
        drive, nn.Linear(4, 1), [target], lambda m, b: F.smooth_l1_loss(m(torch.randn(8, 4)), b)
    )
    found = only(told)
    assert (found.words["mechanism"], found.words["cause"]) == (
        "nonfinite_target",
        "degenerate_targets",
    )
    assert found.words["phase"] == "loss"
    assert "1 nan of 8" in found.words["argument"]


def test_nan_target_in_a_loss_by_hand_is_told(drive):
    target = torch.randn(8, 1)
    target[3] = torch.nan
    told = loop(
        drive, nn.Linear(4, 1), [target], lambda m, b: (m(torch.randn(8, 4)) - b).pow(2).mean()
    )
    found = only(told)
    assert found.words["mechanism"] == "nonfinite_target"


def test_nan_target_under_a_mask_is_a_masked_gradient(drive):
    target = torch.randn(8, 1)
    target[3] = torch.nan

    def loss_of(model, b):
        error = (model(torch.randn(8, 4)) - b).pow(2)
        return torch.where(b.isnan(), torch.zeros_like(error), error).mean()

    found = only(loop(drive, nn.Linear(4, 1), [target], loss_of))
    assert (found.words["cause"], found.words["phase"]) == ("masked_nan_gradient", "backward")


@pytest.mark.filterwarnings(
    "ignore:.*Traceback of forward call:UserWarning", "ignore:Anomaly Detection"
)
@pytest.mark.filterwarnings("ignore:Error detected in")
@pytest.mark.parametrize("check", ["assert", "value_error", "anomaly", "distribution"])
def test_exception_on_the_nan_itself_is_examined(drive, check):
    class Log(nn.Module):
        def forward(self, h):
            return torch.log(h * 0) * 0

    model = nn.Sequential(nn.Linear(4, 4), Log())
    driver = drive({"": model})
    with pytest.raises((AssertionError, ValueError, RuntimeError)), driver:  # noqa: PT012
        if check == "anomaly":
            with torch.autograd.set_detect_anomaly(True):
                (model[0](torch.randn(8, 4)) * 0).sqrt().mean().backward()
        else:
            out = model(torch.randn(8, 4))
            if check == "assert":
                assert torch.isfinite(out).all(), "not finite"
            if check == "value_error":
                raise ValueError("loss is nan")
            torch.distributions.Normal(out, 1.0, validate_args=True)
    found = only(driver.told)
    if check == "anomaly":
        assert found.words["phase"] == "backward"
        assert found.words["operation"] == "sqrt"
    else:
        assert (found.layer, found.words["cause"]) == ("1", "log_of_nonpositive")


def test_exception_inside_the_forward_is_examined(drive):
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 4)

        def forward(self, x):
            # The compiler, once used in a process, switches the checks of distributions off.
            logits = self.head(x) / (x * 0)
            return torch.distributions.Categorical(logits=logits, validate_args=True)

    model = Policy()
    driver = drive({"": model})
    with pytest.raises(ValueError, match="logits"), driver:
        model(torch.randn(8, 4))
    assert only(driver.told).words["cause"] == "division_by_zero"


def test_unrelated_exception_is_not_explained(drive):
    model = nn.Linear(4, 1)
    driver = drive({"": model})
    with pytest.raises(KeyError), driver:  # noqa: PT012
        loss = model(torch.randn(8, 4)).mean()
        loss.backward()
        raise KeyError("something else")
    assert driver.told == []


def test_exception_in_the_loss_reads_the_locals_of_its_frames(drive):
    model = nn.Linear(4, 4)
    driver = drive({"": model})

    def criterion(h):
        loss = (h * 0).log().mean()
        if not torch.isfinite(loss):
            raise FloatingPointError("loss is not finite")
        return loss

    with pytest.raises(FloatingPointError), driver:
        criterion(model(torch.randn(8, 4)))
    found = only(driver.told)
    assert (found.words["operation"], found.words["phase"], found.layer) == ("log", "loss", None)


def test_skipped_step_under_a_loss_scale_is_normal(drive):
    model = nn.Linear(4, 4)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    driver = drive({"": model}, scale=2.0**127)
    with driver:
        h = model(torch.ones(8, 4))
        scaler.scale((h - h.detach()).mean() * 1e6).backward()
        assert not torch.isfinite(model.weight.grad).all()
        driver.told += driver.scope.examine_gradients(scale=2.0**127)
        scaler.step(optimizer)
    assert driver.told == []


def test_overflow_of_only_the_scaled_loss_is_normal(drive):
    model = nn.Linear(4, 4).half()
    driver = drive({"": model}, scale=60000.0)
    with driver:
        loss = (model(torch.ones(8, 4).half()) + 1).square().sum() * torch.tensor(60000.0).half()
        assert torch.isinf(loss)
        loss.backward()
    assert driver.told == []


def test_nan_forward_under_a_loss_scale_is_still_a_birth(drive):
    model = nn.Linear(4, 4)
    told = loop(
        drive, model, [torch.randn(8, 4)], lambda m, b: (m(b) * 0).log().mean() * 1024, scale=1024.0
    )
    assert only(told).words["cause"] == "log_of_nonpositive"


class Root(nn.Module):
    def forward(self, h, *, bad):
        return ((h * 0) if bad else (h.square() + 1)).sqrt()


class Shared(nn.Module):
    """Tied weights, LSTM, in-place activation, dropout, dict output."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 8)
        self.rnn = nn.LSTM(8, 8, batch_first=True)
        self.mix = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Dropout(0.3))
        self.root = Root()
        self.head = nn.Linear(8, 10, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens, *, bad):
        h = self.mix(self.rnn(self.embed(tokens))[0])
        return {"logits": self.head(h), "extra": self.root(h, bad=bad)}


def test_tied_recurrent_in_place_model_with_dict_output_names_the_module(drive):
    def loss_of(model, bad):
        out = model(torch.randint(0, 10, (4, 6)), bad=bad)
        return out["logits"].square().mean() + out["extra"].mean()

    found = only(loop(drive, Shared(), [False, True], loss_of))
    assert (found.layer, found.words["phase"], found.words["cause"]) == (
        "root",
        "backward",
        "sqrt_at_zero",
    )
    assert found.step == 1


def test_several_forwards_per_step_name_the_failing_one(drive):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.front = nn.Linear(4, 4)
            self.root = Root()

        def forward(self, x, *, bad=False):
            return self.root(self.front(x), bad=bad)

    told = loop(
        drive,
        Net(),
        [False, True],
        lambda m, bad: sum(m(torch.randn(8, 4), bad=bad and k == 1).mean() for k in range(3)),
    )
    found = only(told)
    assert (found.layer, found.words["operation"], found.step) == ("root", "sqrt", 1)


def test_two_models_are_told_apart(drive):
    class Bad(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, x):
            return torch.sqrt(self.lin(x) * 0)

    generator, critic = nn.Linear(4, 4), Bad()
    optimizer = torch.optim.SGD([*generator.parameters(), *critic.parameters()], lr=0.1)
    driver = drive({"G": generator, "D": critic})
    with driver:
        critic(generator(torch.randn(8, 4))).mean().backward()
        optimizer.step()
    assert only(driver.told).layer == "D"


def test_birth_between_two_models_is_found(drive):
    generator, critic = nn.Linear(4, 4), nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*generator.parameters(), *critic.parameters()], lr=0.1)
    driver = drive({"G": generator, "D": critic})
    with driver:
        critic((generator(torch.randn(8, 4)) * 0).sqrt()).mean().backward()
        optimizer.step()
    found = only(driver.told)
    assert (found.words["operation"], found.words["phase"]) == ("sqrt", "backward")


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointed_module_is_named(drive, use_reentrant):
    from torch.utils.checkpoint import checkpoint

    class Root(nn.Module):
        def forward(self, h):
            return (h * 0).sqrt()

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.front = nn.Linear(4, 4)
            self.root = Root()

        def forward(self, x):
            return checkpoint(self.root, self.front(x), use_reentrant=use_reentrant)

    found = only(loop(drive, Net(), [torch.randn(8, 4)], lambda m, b: m(b).mean()))
    assert (found.layer, found.words["phase"]) == ("root", "backward")
    assert found.words["operation"] in {"sqrt", "div"}


def test_examinations_are_bounded(drive):
    model = nn.Linear(4, 4)

    class Frozen(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        def step(self):
            pass

    told = loop(
        drive,
        model,
        [torch.randn(8, 4)] * 6,
        lambda m, b: (m(b) * 0).log().mean(),
        Frozen(model.parameters()),
        examinations=3,
    )
    only(told)  # the same again is not told again
    assert told.left == 0


def test_minus_inf_in_the_batch_is_no_mask_for_a_linear_layer(drive):
    x = torch.rand(8, 4)
    x[2, 0] = 0
    model = nn.Sequential(nn.Linear(4, 4), nn.Softplus(), nn.Linear(4, 1))
    told = loop(drive, model, [torch.rand(8, 4).log(), x.log()], lambda m, b: m(b).mean())
    assert only(told, "nonfinite_input").words["cause"] == "inf_in_input"


def test_invalid_noise_schedule_is_named_behind_a_nan_input(drive):
    betas = torch.linspace(1e-4, 1.2, 50)
    alpha_bar = (1 - betas).cumprod(0) - 0.01

    def loss_of(model, clean):
        noise = torch.randn_like(clean)
        t = torch.full((8,), 40)
        noisy = alpha_bar[t].sqrt()[:, None] * clean + (1 - alpha_bar[t]).sqrt()[:, None] * noise
        return F.mse_loss(model(noisy), noise)

    found = only(loop(drive, nn.Linear(4, 4), [torch.randn(8, 4)], loss_of), "nonfinite_input")
    assert found.words["cause"] == "noise_schedule_invalid"


def test_invalid_noise_schedule_is_known_by_its_shape(drive):
    class Ramp:
        def __init__(self):
            self.kept = torch.cumprod(1 - torch.linspace(0.005, 1.2, 20), 0)

    ramp = Ramp()

    def loss_of(model, clean):
        kept = ramp.kept[torch.arange(12, 20)][:, None]
        return model(kept.sqrt() * clean + (1 - kept).sqrt() * torch.randn_like(clean)).mean()

    found = only(loop(drive, nn.Linear(4, 4), [torch.randn(8, 4)], loss_of), "nonfinite_input")
    assert found.words["cause"] == "noise_schedule_invalid"


class Diffusion(nn.Module):
    def __init__(self, highest):
        super().__init__()
        self.net = nn.Linear(4, 4)
        self.schedule = nn.Module()
        self.schedule.register_buffer("betas", torch.linspace(1e-4, highest, 20))

    def forward(self, x, shift):
        kept = (1 - self.schedule.betas).cumprod(0)[-8:, None] - shift
        return self.net(kept.sqrt() * x)


@pytest.mark.parametrize(
    ("highest", "shift", "cause"), [(1.2, 0.0, "noise_schedule_invalid"), (0.02, 2.0, None)]
)
def test_root_of_a_negative_number_is_blamed_on_a_schedule_out_of_range(
    drive, highest, shift, cause
):
    model = Diffusion(highest)
    loss_of = lambda m, x: m(x, shift).mean()  # noqa: E731
    found = only(loop(drive, model, [torch.randn(8, 4)], loss_of))
    assert found.words["mechanism"] == "root_of_negative"
    assert found.words.get("cause") == cause


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_nan_in_a_sequence_is_an_input_of_the_recurrent_net(drive, kind):
    x = torch.randn(3, 5, 2)
    x[1, 2, 0] = torch.nan
    told = loop(drive, kind(2, 4, batch_first=True), [x], lambda m, b: m(b)[0].mean())
    assert only(told, "nonfinite_input").words["cause"] == "nan_in_input"


def test_overflow_before_a_batch_norm_is_not_its_running_statistics(drive):
    class Energy(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.Linear(4, 4)

        def forward(self, x):
            return (self.up(x).half() * 300).square().float()

    model = nn.Sequential(Energy(), nn.BatchNorm1d(4), nn.Linear(4, 1))
    found = only(loop(drive, model, [torch.randn(8, 4) * 10], lambda m, b: m(b).mean()))
    assert (found.layer, found.words["cause"]) == ("0", "half_precision_overflow")


def test_sparse_adjacency_names_the_degree_of_zero(drive):
    class Mean(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, x, links):
            degree = torch.sparse.sum(links, 1).to_dense()[:, None]
            return torch.sparse.mm(links, self.lin(x)) / degree

    links = torch.eye(8)
    links[3] = 0
    told = loop(drive, Mean(), [links.to_sparse()], lambda m, b: m(torch.randn(8, 4), b).mean())
    found = only(told)
    assert (found.layer, found.words["cause"]) == ("", "division_by_zero")


def test_spectrum_of_silence_names_the_log(drive):
    class Spectrum(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(9, 2)

        def forward(self, x):
            return self.lin(torch.fft.rfft(x).abs().log())

    found = only(loop(drive, Spectrum(), [torch.zeros(4, 16)], lambda m, b: m(b).mean()))
    assert found.words["operation"] == "log"


COMPILED = """
import torch
from torch import nn
from neuraldbg.capture.microscope import Microscope

class Log(nn.Module):
    def forward(self, h):
        return torch.log(h * 0)

model = torch.compile(nn.Sequential(nn.Linear(4, 4), Log()), backend="eager")
scope, x = Microscope({"": model}), torch.randn(8, 4)
scope.begin_forward(model, (x,), {})
out = model(x)
scope.end_forward(model, out)
(found,) = scope.before_backward(out.mean())
assert scope.failure is None, scope.failure
print(found.layer, found.words["cause"])
"""


@pytest.mark.slow
def test_compiled_model_is_examined_without_compilation():
    # In a process of its own: torch's compiler patches nn.Module for good.
    done = subprocess.run(
        [sys.executable, "-c", COMPILED], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", "log_of_nonpositive"]


def test_vmap_inside_the_forward_is_survived(drive):
    class Mapped(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, x):
            return torch.func.vmap(lambda row: torch.log(row * 0))(self.lin(x))

    found = only(loop(drive, Mapped(), [torch.randn(8, 4)], lambda m, b: m(b).mean()))
    assert found.words["operation"] == "log"


def test_probability_rounded_to_zero_in_half_is_an_underflow(drive):
    h = torch.tensor([[0.0, 30.0]]).half()

    def loss_of(model, b):
        return -(model(b) * 0 + h).softmax(-1).log()[:, 0].mean()

    told = loop(drive, nn.Linear(2, 2).half(), [torch.randn(4, 2).half()], loss_of)
    assert only(told).words["cause"] == "half_precision_underflow"


def test_loop_that_leaves_on_its_own_is_examined_on_request(drive):
    class Log(nn.Module):
        def forward(self, h):
            return torch.log(h * 0)

    model = nn.Sequential(nn.Linear(4, 4), Log())
    driver = drive({"": model})
    with driver:
        model(torch.randn(8, 4))
        driver.told += driver.scope.examine_forwards()
    assert only(driver.told).layer == "1"


def test_accumulated_backwards_keep_their_loss_graphs(drive):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    driver = drive({"": model})
    with driver:
        for bad in (0, 1, 0):
            h = model(torch.randn(8, 4))
            ((h * 0 if bad else h.square() + 1).sqrt().mean() / 3).backward()
        optimizer.step()
    assert only(driver.told).words["cause"] == "sqrt_at_zero"


def test_root_of_what_where_throws_away_in_the_loss_is_a_masked_gradient(drive):
    model = nn.Linear(4, 4)

    def loss_of(model, b):
        raw = model(b)
        return torch.where(raw > 0.01, raw.sqrt(), raw).square().mean()

    found = only(loop(drive, model, [torch.randn(8, 4)], loss_of))
    assert found.words["cause"] == "masked_nan_gradient"
    assert (found.words["operation"], found.words["phase"]) == ("sqrt", "backward")
    assert "negative" in found.words["argument"]
    assert "where" in found.words["argument"]


@pytest.mark.parametrize(
    ("is_far_masked", "cause"), [(False, "sqrt_at_zero"), (True, "masked_nan_gradient")]
)
def test_a_root_is_thrown_away_where_each_use_of_it_is(drive, is_far_masked, cause):
    """The square of a distance of 0 has slope 0 of its own: no mask has dropped it."""
    model = nn.Linear(4, 4)
    same = torch.tensor([1.0] * 7 + [0.0])

    def loss_of(model, b):
        distance = (model(b[:8]) - model(b[8:])).square().sum(1).sqrt()
        near = (same * distance.square()).sum()
        far = (1 - same) * (1 - distance).clamp(min=0).square()
        return near + far.sum()

    def all_dropped(model, b):
        distance = (model(b[:8]) - model(b[8:])).square().sum(1).sqrt()
        keep = torch.tensor([0.0] + [1.0] * 7)
        return (keep * distance).sum() + (keep * distance.square()).sum()

    batch = torch.randn(16, 4)
    batch[8] = batch[0]
    found = only(loop(drive, model, [batch], all_dropped if is_far_masked else loss_of))
    assert found.words["operation"] == "sqrt"
    assert found.words["cause"] == cause


@pytest.mark.parametrize("name", ["sqrt", "rsqrt", "acos", "power"])
def test_operations_outside_their_domain_under_a_mask_are_named(drive, name):
    model = nn.Linear(4, 4)

    def loss_of(model, b):
        raw = 3 * model(b)
        value = raw.pow(0.3) if name == "power" else getattr(raw, name)()
        return torch.where((raw > 0.01) & (raw < 0.99) & value.isfinite(), value, raw).mean()

    found = only(loop(drive, model, [torch.randn(32, 4)], loss_of))
    assert found.words["cause"] == "masked_nan_gradient"
    assert found.words["operation"] == {"power": "pow"}.get(name, name)


def test_clamped_overflow_beside_the_birth_is_not_blamed(drive):
    model = nn.Linear(4, 4)

    def loss_of(model, b):
        h = model(b)
        big = (h * 1e30 * 1e30).clamp(-1, 1)
        return (h * 0).sqrt().mean() + big.mean()

    found = only(loop(drive, model, [torch.randn(8, 4)], loss_of))
    assert found.words["cause"] == "sqrt_at_zero"


@pytest.mark.parametrize("how", ["square", "product", "exp", "sigmoid"])
def test_underflow_in_half_behind_a_conversion_is_named(drive, how):
    model = nn.Linear(4, 4)

    def small(h):
        half = h.half()
        if how == "square":
            return (1e-4 * h).half().square().mean(1, keepdim=True).sqrt()
        if how == "product":
            return ((half * 1e-4) * (half * 1e-4)).mean(1, keepdim=True)
        return (half * 0 - 30).exp() if how == "exp" else (half * 0 - 30).sigmoid()

    def loss_of(model, b):
        return (model(b) / small(model(b)).float()).mean()

    found = only(loop(drive, model, [torch.ones(8, 4)], loss_of))
    assert found.words["cause"] == "half_precision_underflow"


def test_zero_in_half_that_was_zero_before_is_no_underflow(drive):
    model = nn.Linear(4, 4)

    def loss_of(model, b):
        h = model(b)
        return (h / (h * 0).half().square().mean(1, keepdim=True).sqrt().float()).mean()

    found = only(loop(drive, model, [torch.randn(8, 4)], loss_of))
    assert found.words["cause"] == "division_by_zero"


class Energy(nn.Module):
    def __init__(self):
        super().__init__()
        self.filters, self.head = nn.Linear(16, 32), nn.Linear(32, 2)

    def forward(self, signal):
        energy = (300 * self.filters(signal)).square()
        return self.head(energy / energy.mean())


@pytest.mark.parametrize("scale", [1.0, 65536.0])
def test_overflow_of_half_logits_is_no_mask(drive, scale):
    def loss_of(model, b):
        with torch.autocast("cpu", torch.float16):
            logits = model(b)
        return F.cross_entropy(logits.float(), torch.zeros(64, dtype=torch.long))

    found = only(loop(drive, Energy(), [torch.randn(64, 16)], loss_of, scale=scale))
    assert found.words["cause"] == "half_precision_overflow"
    assert found.words["phase"] == "forward"


def test_overflow_of_half_logits_in_the_loop_is_no_mask(drive):
    def loss_of(model, b):
        logits = (model(b).half() * 3e4 * torch.tensor([9.0, -9.0])).half() * 10
        return F.cross_entropy(logits.float(), torch.zeros(8, dtype=torch.long))

    found = only(loop(drive, nn.Linear(4, 2), [5 + torch.randn(8, 4)], loss_of))
    assert found.words["cause"] == "half_precision_overflow"


def test_rows_masked_in_the_loss_are_still_named(drive):
    def loss_of(model, b):
        scores = model(b).masked_fill(torch.ones(8, 4, dtype=torch.bool), -torch.inf)
        return scores.softmax(-1).square().mean()

    found = only(loop(drive, nn.Linear(4, 4), [torch.randn(8, 4)], loss_of))
    assert found.words["cause"] == "fully_masked_attention"


class Expanding(nn.Module):
    """A recurrence whose gradient is multiplied by `factor` on each of its steps back in time."""

    def __init__(self, factor):
        super().__init__()
        self.rnn, self.head = nn.RNN(8, 32, batch_first=True), nn.Linear(32, 1)
        for name, parameter in self.rnn.named_parameters():
            nn.init.zeros_(parameter) if "bias" in name else None
        nn.init.orthogonal_(self.rnn.weight_hh_l0, factor)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


@pytest.mark.parametrize("length", [80, 120])
def test_gradient_that_overflows_in_a_recurrence_names_it_and_its_growth(drive, length):
    x = torch.zeros(16, length, 8)
    x[:, -1] = 1e-20
    driver = drive({"": Expanding(3.0)})
    model = driver.models[""]
    with driver:
        (model(x) - 1).square().mean().backward()
        largest = model.rnn.weight_hh_l0.grad.abs().max()
        driver.told += driver.scope.examine_gradients()
        model.zero_grad()
    assert bool(largest.isfinite()) is (length == 80)
    found = only(driver.told)
    assert (found.layer, found.words["phase"]) == ("rnn", "backward")
    assert found.words["mechanism"] == "gradient_overflow"
    assert "grew from" in found.words["argument"]
    assert found.figures["growth"] > 1e20
    assert "cause" not in found.words


def ends_in(what):
    def loss_of(model, b):
        scores = model(b)
        if what == "masked class":
            scores = scores.masked_fill(torch.arange(4) == 3, -torch.inf)
        if what == "masked rows":
            hidden = scores.masked_fill(torch.ones(8, 4, dtype=torch.bool), -torch.inf)
            loss = hidden.logsumexp(1).clamp(min=-5).mean()
        else:
            loss = F.cross_entropy(scores, torch.tensor([0, 1, 2, -100] * 2))
        return loss + (b[:, 0] * 0 - 1).log().mean() * model(b).mean()

    return loss_of


@pytest.mark.parametrize("what", ["cross-entropy", "masked class", "masked rows"])
def test_a_finite_term_beside_the_broken_one_is_not_blamed(drive, what):
    found = only(loop(drive, nn.Linear(4, 4), [torch.randn(8, 4)], ends_in(what)))
    assert (found.words["operation"], found.words["phase"]) == ("mul", "loss")


def test_an_infinite_loss_in_bfloat16_is_no_half_overflow(drive):
    model = nn.Linear(4, 4).bfloat16()
    batch = torch.randn(8, 4).bfloat16()
    told = loop(drive, model, [batch], lambda m, b: m(b).sum() * 1e38 * 1e38)
    assert all("cause" not in one.words for one in told)


def test_a_matrix_that_is_singular_for_broken_weights_is_no_birth(drive):
    model = nn.Linear(4, 4)
    nn.init.constant_(model.weight, torch.nan)
    driver = drive({"": model})
    with pytest.raises(torch.linalg.LinAlgError), driver:
        torch.linalg.eigvalsh(model(torch.randn(4, 4)))
    assert only(driver.told, "nonfinite_parameter").words["name"] == "weight"


@pytest.mark.filterwarnings("ignore:std\\(\\). degrees of freedom")
@pytest.mark.parametrize(
    ("returns", "cause"), [(1, "single_sample_statistics"), (3, "degenerate_targets")]
)
def test_batch_of_one_that_is_standardised_by_its_own_deviation(drive, returns, cause):
    """Advantages of an episode: of one step they have no deviation, of more they may be broken."""
    model = nn.Linear(4, 2)
    gains = torch.ones(returns) if returns == 1 else torch.full((returns,), torch.nan)
    driver = drive({"": model})
    with driver:
        cost = -model(torch.randn(returns, 4)).log_softmax(1)[:, 0]
        (cost * ((gains - gains.mean()) / (gains.std() + 1e-8))).mean().backward()
    assert only(driver.told).words["cause"] == cause


@pytest.mark.parametrize(
    ("shares", "cause"),
    [
        (lambda gains: gains / gains.sum(1, keepdim=True), "division_by_zero"),
        (lambda gains: gains.masked_fill(gains == 0, torch.nan), "degenerate_targets"),
    ],
    ids=["shares of a sum of 0", "missing entries"],
)
def test_rows_that_were_divided_by_their_sum(drive, shares, cause):
    """Relevances of a query, as shares: of a query without a relevant answer there are none."""
    model = nn.Linear(4, 5)
    gains = torch.tensor([[1.0, 2.0, 0.0, 1.0, 0.0], [0.0] * 5, [3.0, 0.0, 0.0, 1.0, 2.0]])
    driver = drive({"": model})
    with driver:
        given = model(torch.randn(3, 4)).log_softmax(1)
        (-(shares(gains) * given).sum(1)).mean().backward()
    assert only(driver.told).words["cause"] == cause


def widths_of(boxes):
    return torch.log(boxes[:, 1:2] - boxes[:, 0:1])


def test_target_made_by_a_logarithm_in_the_loop_names_the_function(drive):
    model = nn.Linear(4, 1)
    boxes = torch.tensor([[0.0, 1.0], [1.0, 0.5]])
    driver = drive({"": model})
    with driver:
        F.smooth_l1_loss(model(torch.randn(2, 4)), widths_of(boxes)).backward()
    found = only(driver.told)
    assert found.words["cause"] == "degenerate_targets"
    assert "(widths_of: log)" in found.words["argument"]


def test_broken_target_of_a_loop_without_a_logarithm_names_no_function(drive):
    model = nn.Linear(4, 1)
    driver = drive({"": model})
    with driver:
        F.smooth_l1_loss(model(torch.randn(2, 4)), torch.full((2, 1), torch.nan)).backward()
    assert "logarithm" not in only(driver.told).words["argument"]


class Once(nn.Module):
    """Breaks on its second call only, by a count that it keeps."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        CALLS.append(1)
        return self.lin(x) + (torch.log(x[:1] * 0 - 1) if len(CALLS) == 2 else 0)


CALLS = []


@pytest.mark.parametrize("by", ["mse_loss", "square"])
def test_a_birth_that_does_not_come_again_is_not_put_on_the_target(drive, by):
    CALLS.clear()

    def loss_of(model, b):
        output = model(b)
        return F.mse_loss(output, b) if by == "mse_loss" else output.square().mean()

    told = loop(drive, Once(), [torch.randn(8, 4)] * 2, loss_of)
    found = only(told)
    assert found.words["mechanism"] == "not_repeated"
    assert "cause" not in found.words


def test_adam_without_eps_breaks_a_weight_whose_gradient_is_zero(drive):
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, eps=0.0)
    batches = [torch.randn(8, 4) * torch.tensor([0.0, 1.0, 1.0, 1.0])] * 2
    told = loop(drive, model, batches, lambda m, b: m(b).square().mean(), optimizer)
    birth = only(told)
    assert (birth.words["phase"], birth.words["cause"]) == ("optimizer", "optimizer_eps_underflow")


def test_gradient_of_a_scaled_loss_that_leaves_half_is_the_scalers_business(drive):
    model = nn.Linear(4, 4).half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    with drive({"": model}, scale=2.0**14) as driver:
        h = model(torch.randn(8, 4).half())
        ((h - h.detach()).mean() * 300 * 2.0**14).backward()
        assert not torch.isfinite(model.bias.grad).all()
        optimizer.step()
    assert driver.told == []
