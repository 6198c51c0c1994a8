# SPDX-License-Identifier: MIT
"""Operations at their singular points: what makes a NaN or Inf of finite values, and what not."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
ALL = (F32, BF16, F16)
WIDE = (F32, BF16)
"""Formats with eight bits of exponent."""


@dataclass(frozen=True)
class Case:
    """One operation at its singular point; `make` makes a bad result of a healthy `[8, 4]`."""

    name: str
    make: object
    operations: tuple[str, ...]
    cause: str | None
    phase: str = "forward"
    dtypes: tuple[torch.dtype, ...] = ALL
    words: str = ""
    places: tuple[str, ...] = ("module", "loss")
    mechanism: str | None = None


def zero(h):
    return h * 0


def one(h):
    return h * 0 + 1


class FiniteForwardWrongBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x * 0).reciprocal()


class DividesByZero(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x / (x * 0)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def masked_softmax(h, *, log=False):
    closed = torch.zeros_like(h, dtype=torch.bool)
    closed[2] = True
    scores = h.masked_fill(closed, -torch.inf)
    return (F.log_softmax if log else F.softmax)(scores, dim=-1)


def ctc(h):
    logits = F.log_softmax(h, -1)[:, None]
    target = torch.tensor([[1, 1, 1, 1, 1, 1]])
    return F.ctc_loss(logits, target, torch.tensor([8]), torch.tensor([6]), reduction="none")


FORWARD = [
    Case(
        "log of zero",
        lambda h: zero(h).log(),
        ("log",),
        "log_of_nonpositive",
        words="32 zeros of 32",
    ),
    Case(
        "log of negatives",
        lambda h: (zero(h) - 1).log(),
        ("log",),
        "log_of_nonpositive",
        words="32 negative numbers of 32",
        mechanism="log_of_negative",
    ),
    Case("log1p of minus one", lambda h: (-one(h)).log1p(), ("log1p",), "log_of_nonpositive"),
    Case("log2 of zero", lambda h: zero(h).log2(), ("log2",), "log_of_nonpositive"),
    Case("log10 of zero", lambda h: zero(h).log10(), ("log10",), "log_of_nonpositive"),
    Case("xlogy of zero", lambda h: torch.xlogy(one(h), zero(h)), ("xlogy",), "log_of_nonpositive"),
    Case("logit of one", lambda h: torch.logit(one(h)), ("logit",), "log_of_nonpositive"),
    Case(
        "x over zero",
        lambda h: one(h) / zero(h),
        ("div",),
        "division_by_zero",
        words="32 zeros of 32",
    ),
    Case(
        "zero over zero",
        lambda h: zero(h) / zero(h),
        ("div",),
        "division_by_zero",
        mechanism="zero_by_zero",
    ),
    Case(
        "x over a count of zero",
        lambda h: h.sum() / torch.zeros(8, dtype=torch.bool).sum(),
        ("div",),
        "division_by_zero",
    ),
    Case("x over a literal zero", lambda h: one(h) / 0, ("div",), "division_by_zero"),
    Case("in-place division", lambda h: one(h).div_(zero(h)), ("div",), "division_by_zero"),
    Case("literal over zero", lambda h: 1 / zero(h), ("reciprocal", "div"), "division_by_zero"),
    Case(
        "reciprocal of zero",
        lambda h: zero(h).reciprocal(),
        ("reciprocal",),
        "division_by_zero",
    ),
    Case("rsqrt of zero", lambda h: zero(h).rsqrt(), ("rsqrt",), "division_by_zero"),
    Case(
        "zero to minus one",
        lambda h: zero(h) ** -1,
        ("pow", "reciprocal"),
        "division_by_zero",
    ),
    Case("zero to minus a half", lambda h: zero(h) ** -0.5, ("pow", "rsqrt"), "division_by_zero"),
    Case(
        "negative to a half",
        lambda h: (-one(h)) ** 0.3,
        ("pow",),
        None,
        mechanism="root_of_negative",
    ),
    Case(
        "sqrt of negatives",
        lambda h: (-one(h)).sqrt(),
        ("sqrt",),
        None,
        mechanism="root_of_negative",
    ),
    Case(
        "remainder by zero",
        lambda h: torch.remainder(one(h), zero(h)),
        ("div",),
        "division_by_zero",
        places=("module",),
    ),
    Case("exp overflow", lambda h: (one(h) * 100).exp(), ("exp",), "exp_overflow", dtypes=WIDE),
    Case(
        "exp beyond float32 in half",
        lambda h: (one(h) * 100).exp(),
        ("exp",),
        "exp_overflow",
        dtypes=(F16,),
        words="that of float32, too",
        places=("module",),
    ),
    Case(
        "a reparameterised sample",
        lambda h: h + torch.exp(0.5 * (one(h) * 200)) * torch.randn_like(h),
        ("exp",),
        "exp_overflow",
        dtypes=WIDE,
    ),
    Case(
        "a divergence from the unit Gaussian",
        lambda h: -0.5 * (1 + one(h) * 100 - h.square() - (one(h) * 100).exp()).sum(-1),
        ("exp",),
        "exp_overflow",
        dtypes=WIDE,
    ),
    Case("cosh overflow", lambda h: (one(h) * 100).cosh(), ("cosh",), "exp_overflow", dtypes=WIDE),
    Case(
        "a custom function whose forward divides",
        DividesByZero.apply,
        ("div", "DividesByZero"),
        "division_by_zero",
        places=("module",),
    ),
    Case(
        "exp overflow in half",
        lambda h: (one(h) * 20).exp(),
        ("exp",),
        "half_precision_overflow",
        dtypes=(F16,),
    ),
    Case(
        "expm1 overflow", lambda h: (one(h) * 100).expm1(), ("expm1",), "exp_overflow", dtypes=WIDE
    ),
    Case(
        "log-sum-exp by hand",
        lambda h: (one(h) * 200).exp().sum(-1).log(),
        ("exp",),
        "exp_overflow",
        dtypes=WIDE,
    ),
    Case(
        "softplus by hand",
        lambda h: torch.log(1 + torch.exp(one(h) * 90)),
        ("exp",),
        "exp_overflow",
        dtypes=WIDE,
    ),
    Case(
        "softmax by hand",
        lambda h: (e := (one(h) * 100).exp()) / e.sum(-1, keepdim=True),
        ("exp",),
        "exp_overflow",
        dtypes=WIDE,
    ),
    Case(
        "contrastive exp with an eye mask",
        lambda h: (torch.exp(one(h) @ one(h).T * 100) * (1 - torch.eye(8))).sum(1).log(),
        ("exp",),
        "exp_overflow",
        dtypes=WIDE,
    ),
    Case(
        "square in half",
        lambda h: (one(h) * 300).square(),
        ("pow", "square"),
        "half_precision_overflow",
        dtypes=(F16,),
    ),
    Case(
        "product in half",
        lambda h: (one(h) * 300) * (one(h) * 300),
        ("mul",),
        "half_precision_overflow",
        dtypes=(F16,),
    ),
    Case(
        "matrix product in half",
        lambda h: (one(h) * 200) @ (one(h) * 200).T,
        ("mm",),
        "half_precision_overflow",
        dtypes=(F16,),
    ),
    Case(
        "sum in half",
        lambda h: (one(h) * 30000).sum(),
        ("sum",),
        "half_precision_overflow",
        dtypes=(F16,),
    ),
    Case(
        "fp32 overflow has no cause of its own",
        lambda h: (one(h) * 1e30).square(),
        ("pow",),
        None,
        dtypes=WIDE,
    ),
    Case(
        "eps rounded away in half",
        lambda h: one(h) / (zero(h) + 1e-8),
        ("div",),
        "half_precision_underflow",
        dtypes=(F16,),
    ),
    Case("std of one sample", lambda h: h[:1].std(0), ("std",), "single_sample_statistics"),
    Case("var of one sample", lambda h: h[:1].var(0), ("var",), "single_sample_statistics"),
    Case(
        "std and mean of one sample",
        lambda h: torch.std_mean(h[:1], 0)[0],
        ("std",),
        "single_sample_statistics",
    ),
    Case(
        "standardised by a zero std",
        lambda h: (one(h) - one(h).mean(0)) / one(h).std(0),
        ("div",),
        "zero_variance_feature",
    ),
    Case(
        "softmax over a masked row",
        masked_softmax,
        ("softmax",),
        "fully_masked_attention",
    ),
    Case(
        "log-softmax over a masked row",
        lambda h: masked_softmax(h, log=True),
        ("log_softmax",),
        "fully_masked_attention",
    ),
    Case("ctc with a target too long", ctc, ("ctc_loss",), "infeasible_target", dtypes=(F32,)),
    Case(
        "cosine by hand of zero vectors",
        lambda h: (zero(h) * h).sum(1) / (zero(h).norm(dim=1) * h.norm(dim=1)),
        ("div",),
        "division_by_zero",
    ),
    Case(
        "normalised by hand",
        lambda h: zero(h) / zero(h).norm(dim=1, keepdim=True),
        ("div",),
        "division_by_zero",
    ),
    Case("atanh of one", lambda h: one(h).atanh(), ("atanh",), "division_by_zero"),
    Case("acos of two", lambda h: (one(h) * 2).acos(), ("acos",), None, mechanism="outside_domain"),
    Case("mean of nothing", lambda h: h[:0].mean(), ("mean", "div"), "division_by_zero"),
    Case(
        "loss with all targets ignored",
        lambda h: F.cross_entropy(h, torch.full((8,), -100)),
        ("cross_entropy",),
        "degenerate_targets",
    ),
    Case(
        "mse over an empty selection",
        lambda h: F.mse_loss(h[:0], torch.zeros(0, 4)),
        ("mse_loss", "mean"),
        None,
    ),
    Case(
        "nan times a zero mask",
        lambda h: (zero(h).log() * torch.zeros(8, 4)).sum(),
        ("log",),
        "log_of_nonpositive",
    ),
    Case(
        "layer norm without eps",
        lambda h: F.layer_norm(one(h), (4,), eps=0.0),
        ("layer_norm",),
        "division_by_zero",
        places=("module",),
    ),
    Case(
        "logdet of a singular matrix",
        lambda h: torch.logdet(zero(h)[:4]),
        ("linalg_slogdet", "slogdet"),
        None,
        mechanism="singular_matrix",
        dtypes=(F32,),
    ),
]

BACKWARD = [
    Case(
        "sqrt at zero",
        lambda h: zero(h).sqrt(),
        ("sqrt",),
        "sqrt_at_zero",
        "backward",
        words="32 zeros of 32",
    ),
    Case(
        "distance by hand at zero",
        lambda h: ((h - h.detach()) ** 2).sum(1).sqrt(),
        ("sqrt",),
        "sqrt_at_zero",
        "backward",
    ),
    Case(
        "power of a half at zero",
        lambda h: zero(h) ** 0.5,
        ("pow", "sqrt"),
        "sqrt_at_zero",
        "backward",
    ),
    Case(
        "power of a third at zero",
        lambda h: zero(h).pow(1 / 3),
        ("pow",),
        "sqrt_at_zero",
        "backward",
    ),
    Case(
        "tensor power at zero",
        lambda h: zero(h) ** torch.full((8, 4), 0.5),
        ("pow",),
        "sqrt_at_zero",
        "backward",
        dtypes=(F32,),
    ),
    Case(
        "p-norm by hand at zero",
        lambda h: zero(h).abs().pow(3).sum(1).pow(1 / 3),
        ("pow",),
        "sqrt_at_zero",
        "backward",
    ),
    Case(
        "std by hand at zero",
        lambda h: (one(h) - one(h).mean(0)).square().mean(0).sqrt(),
        ("sqrt",),
        "sqrt_at_zero",
        "backward",
    ),
    Case(
        "hypot at zero",
        lambda h: torch.hypot(zero(h), zero(h)),
        ("hypot",),
        "sqrt_at_zero",
        "backward",
    ),
    Case(
        "cosine by hand with eps beside the root",
        lambda h: (zero(h) * h).sum(1) / (zero(h).square().sum(1).sqrt() + 1e-3),
        ("sqrt",),
        "sqrt_at_zero",
        "backward",
    ),
    Case(
        "a gradient that leaves half",
        lambda h: h * 1e-3 * 300 * 300 * 300,
        ("mul (backward)", "loss (backward)"),
        "half_precision_overflow",
        "backward",
        dtypes=(F16,),
    ),
    Case("acos at one", lambda h: one(h).acos(), ("acos",), "sqrt_at_zero", "backward"),
    Case("asin at one", lambda h: one(h).asin(), ("asin",), "sqrt_at_zero", "backward"),
    Case("acosh at one", lambda h: one(h).acosh(), ("acosh",), "sqrt_at_zero", "backward"),
    Case(
        "where threw away log",
        lambda h: torch.where(zero(h) > 0, zero(h).log(), zero(h)),
        ("log",),
        "masked_nan_gradient",
        "backward",
    ),
    Case(
        "where threw away sqrt",
        lambda h: torch.where(zero(h) > 0, zero(h).sqrt(), zero(h)),
        ("sqrt",),
        "masked_nan_gradient",
        "backward",
    ),
    Case(
        "where threw away division",
        lambda h: torch.where(zero(h) > 0, one(h) / zero(h), zero(h)),
        ("div",),
        "masked_nan_gradient",
        "backward",
    ),
    Case(
        "where threw away exp",
        lambda h: torch.where(one(h) > 0, h, torch.exp(one(h) * 100)),
        ("exp",),
        "masked_nan_gradient",
        "backward",
    ),
    Case(
        "a mask threw away sqrt",
        lambda h: zero(h).sqrt() * torch.zeros(8, 4),
        ("sqrt",),
        "masked_nan_gradient",
        "backward",
        dtypes=(F32,),
    ),
    Case(
        "masked_fill threw away log",
        lambda h: zero(h).log().masked_fill(torch.ones(8, 4, dtype=torch.bool), 0.0),
        ("log",),
        "masked_nan_gradient",
        "backward",
    ),
    Case(
        "custom function",
        FiniteForwardWrongBackward.apply,
        ("FiniteForwardWrongBackward",),
        "custom_backward_wrong",
        "backward",
    ),
    Case(
        "eigenvectors of equal eigenvalues",
        lambda h: torch.linalg.eigh(torch.eye(4) + zero(h)[:4])[1],
        ("eigh",),
        "division_by_zero",
        "backward",
        dtypes=(F32,),
    ),
]

SAFE = [
    ("norm at zero", lambda h: zero(h).norm(dim=1)),
    ("norm of order a half at zero", lambda h: torch.linalg.vector_norm(zero(h), 0.5, dim=1)),
    ("cdist at zero", lambda h: torch.cdist(zero(h), zero(h))),
    (
        "cdist by matrix product at zero",
        lambda h: torch.cdist(zero(h), zero(h), compute_mode="use_mm_for_euclid_dist"),
    ),
    ("pairwise distance at zero", lambda h: F.pairwise_distance(h, h.detach(), eps=0.0)),
    ("cosine similarity of zero vectors", lambda h: F.cosine_similarity(zero(h), h)),
    ("normalize of zero vectors", lambda h: F.normalize(zero(h))),
    ("std of constants", lambda h: one(h).std(0)),
    ("causal mask of -inf", lambda h: F.softmax(h + torch.full((8, 4), -torch.inf).triu(1), -1)),
    (
        "log of a mask before softmax",
        lambda h: F.softmax(
            h
            + torch.eye(8, 4)
            .add(torch.eye(8, 4).flip(0))
            .clamp(max=1)
            .add(torch.tensor([1.0, 0, 0, 0]))
            .log(),
            -1,
        ),
    ),
]
