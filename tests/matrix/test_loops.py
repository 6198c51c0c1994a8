# SPDX-License-Identifier: MIT
"""Loops and optimizers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from matrix_faults import AT, Truth
from matrix_lab import Net, setup
from torch import nn

BY_LOSS = "each recorded loss counts as a step"
TRANSFORMED = "runs under a transform of torch.func"
NO_OPTIMIZER = "No optimizer of `torch.optim` holds the weights, so there is no rate to see"
UNSTORED = "Gradients never reach a parameter's `.grad`"
NOTHING_TO_CLEAR = "Gradients are not accumulated, so there is nothing to clear"
INSIDE = "Inside a transform of `torch.func` activations cannot be measured, and the run says so"
ZEROS = "Inside a transform a cut graph gives gradients of zero, as a dead layer does"
BORN = Truth(("numerical_error", "data_anomaly"), (None, "stem", "head"), (AT, AT))
"""Where the inputs cannot be seen, a NaN is told as it is born in the loss or the gradients."""


@setup("gradient accumulation")
def accumulation(lab):
    model = lab.net()

    def learn():
        total = 0.0
        lab.clear()
        for _ in range(4):
            x, y = lab.batch()
            loss = F.mse_loss(model(x), y)
            (loss / 4).backward()
            total += loss.item() / 4
        lab.optimizers[0].step()
        return total

    return lab.train(model, learn=learn)


def by_closure(lab, optimizer, make):
    def learn():
        x, y = make()

        def closure():
            lab.clear()
            loss = F.mse_loss(lab.model(x), y)
            loss.backward()
            return loss

        return optimizer.step(closure)

    return lab.train(lab.model, optimizers=[optimizer], learn=learn)


@setup("LBFGS")
def lbfgs(lab):
    model = lab.net()
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    x, y = lab.batch(64)
    return by_closure(lab, optimizer, lambda: (lab.fault.inputs(lab, x), y))


@setup("a closure for a first-order optimizer")
def closure(lab):
    lab.net()
    return by_closure(lab, lab.sgd(), lab.batch)


@setup("optimizer in backward")
def optimizer_in_backward(lab):
    model = lab.net()
    steppers = {p: torch.optim.SGD([p], lr=0.05) for p in model.parameters()}

    def step(parameter):
        steppers[parameter].step()
        if lab.fault.clears(lab):
            steppers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)

    def learn():
        x, y = lab.batch()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        return loss

    return lab.train(model, optimizers=[*steppers.values()], learn=learn)


@setup("`foreach` optimizer")
def foreach(lab):
    model = lab.net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=lab.lr, foreach=True)
    return lab.train(model, optimizers=[optimizer])


@setup("`foreach` with Nesterov momentum, which changes gradients in place")
def foreach_nesterov(lab):
    model = lab.net()
    optimizer = lab.sgd(momentum=0.5, nesterov=True, foreach=True)
    return lab.train(model, optimizers=[optimizer])


@setup("fused optimizer")
def fused(lab):
    model = lab.net()
    return lab.train(model, optimizers=[lab.adam(fused=True)])


@setup("several optimizers over one model")
def several_optimizers(lab):
    model = lab.net()
    low = [*model.stem.parameters(), *model.middle.parameters()]
    optimizers = [torch.optim.Adam(low, lr=lab.lr), lab.sgd(model.head)]
    return lab.train(model, optimizers=optimizers)


@setup("several models over several optimizers", prefix="net.")
def several_models(lab):
    critic, model = nn.Linear(1, 1), lab.net()
    optimizers = [lab.adam(), lab.sgd(critic)]

    def learn():
        x, y = lab.batch()
        out = model(x)
        loss = F.mse_loss(out, y)
        second = F.mse_loss(critic(out.detach()), 0.5 * y)
        lab.clear()
        loss.backward()
        optimizers[0].step()
        second.backward()
        optimizers[1].step()
        return loss

    lab.train(model, optimizers=optimizers, watched={"net": model, "critic": critic}, learn=learn)
    return [model, critic]


@setup("learning rate schedulers")
def schedulers(lab):
    model = lab.net()
    optimizer = lab.adam()
    schedules = [
        torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=6),
        torch.optim.lr_scheduler.StepLR(optimizer, 12, gamma=0.7),
    ]
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=8)

    def learn():
        x, y = lab.batch()
        loss = lab.update(F.mse_loss(model(x), y))
        for schedule in schedules:
            schedule.step()
        plateau.step(loss.item())
        return loss

    return lab.train(model, optimizers=[optimizer], learn=learn)


@setup("gradient penalty (`create_graph`)")
def gradient_penalty(lab):
    model = lab.net()

    def learn():
        x, y = lab.batch()
        x = x.requires_grad_()
        out = model(x)
        (slope,) = torch.autograd.grad(out.sum(), x, create_graph=True, allow_unused=True)
        penalty = 0.0 if slope is None else 0.01 * (slope.norm(dim=1) - 1).pow(2).mean()
        return lab.update(F.mse_loss(out, y) + penalty)

    return lab.train(model, learn=learn)


@setup("`torch.func.functional_call` with the model's own parameters")
def functional_call(lab):
    model = lab.net()

    def call(x):
        return torch.func.functional_call(model, dict(model.named_parameters()), (x,))

    return lab.train(model, call=call)


@setup(
    "`torch.func.functional_call` with weights of one's own and `autograd.grad`",
    without={"rate_jump": NO_OPTIMIZER, "detached": UNSTORED, "uncleared": NOTHING_TO_CLEAR},
    warnings=(BY_LOSS,),
)
def functional_call_without_optimizer(lab):
    model = lab.net()
    weights = {name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()}
    lab.bias = lambda: weights["middle.bias"]

    def learn():
        x, y = lab.batch()
        loss = F.mse_loss(torch.func.functional_call(model, weights, (x,)), y)
        grads = torch.autograd.grad(loss, [*weights.values()], allow_unused=True)
        for (name, p), g in zip([*weights.items()], grads, strict=True):
            if g is not None:
                weights[name] = (p - 0.05 * g).detach().requires_grad_()
        return loss

    lab.train(model, optimizers=[], learn=learn)
    model.load_state_dict(weights)
    return [model]


@setup(
    "gradients per sample by `vmap`",
    without={"dead_relu": INSIDE, "detached": ZEROS, "uncleared": NOTHING_TO_CLEAR},
    truths={"nan_batch": BORN},
    warnings=(TRANSFORMED,),
)
def per_sample_gradients(lab):
    model = lab.net()

    def one(weights, x, y):
        out = torch.func.functional_call(model, weights, (x.unsqueeze(0),))
        return F.mse_loss(out, y.unsqueeze(0))

    gradients = torch.func.vmap(torch.func.grad_and_value(one), in_dims=(None, 0, 0))

    def learn():
        x, y = lab.batch()
        grads, losses = gradients({k: p.detach() for k, p in model.named_parameters()}, x, y)
        lab.clear()
        for name, p in model.named_parameters():
            p.grad = grads[name].mean(0)
        lab.optimizers[0].step()
        return losses.mean()

    return lab.train(model, learn=learn)


@setup(
    "an ensemble by `vmap`, whose stacked weights are not those of the watched model",
    without={
        "rate_jump": NO_OPTIMIZER,
        "dead_relu": INSIDE,
        "detached": UNSTORED,
        "uncleared": UNSTORED,
    },
    truths={"nan_batch": BORN},
    warnings=(BY_LOSS, TRANSFORMED),
)
def ensemble(lab):
    model = lab.net()
    members = [Net() for _ in range(3)]
    weights, _ = torch.func.stack_module_state(members)
    optimizer = torch.optim.SGD(weights.values(), lr=0.05)

    def learn():
        x, y = lab.batch()
        call = torch.vmap(lambda w, x: torch.func.functional_call(model, w, (x,)), (0, None))
        out = call(weights, x)
        return lab.update(F.mse_loss(out, y.expand_as(out)))

    lab.train(model, optimizers=[optimizer], learn=learn)
    return [model]


def test_loop_and_healthy(setup, healthy):
    healthy(setup)


def test_loop_and_faulty(setup, fault, faulty):
    faulty(setup, fault)
