# SPDX-License-Identifier: MIT
"""Models and modules."""

from __future__ import annotations

import copy
import io
import warnings

import torch
import torch.nn.functional as F
from matrix_faults import Truth
from matrix_lab import WIDTH, Lab, Net, count_hooks, setup
from torch import nn
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

from neuraldbg.schema.facts import ActivationStat


class Checkpointed(Net):
    def __init__(self, *, reentrant):
        super().__init__()
        self.reentrant = reentrant

    def block(self, x):
        return self.bend(self.middle(x))

    def forward(self, x):
        x = self.rise(self.stem(x))
        return self.head(checkpoint(self.block, x, use_reentrant=self.reentrant))


@setup("activation checkpointing")
def checkpointing(lab):
    return lab.train(lab.net(Checkpointed, reentrant=False))


@setup(
    "activation checkpointing, reentrant",
    without={"detached": "Torch itself refuses a checkpoint in which nothing needs a gradient"},
)
def checkpointing_reentrant(lab):
    return lab.train(lab.net(Checkpointed, reentrant=True))


@setup("weight norm by parametrization")
def weight_norm(lab):
    model = lab.net()
    parametrizations.weight_norm(model.middle)
    return lab.train(model)


@setup("weight norm of the old kind, by hooks")
def weight_norm_by_hooks(lab):
    model = lab.net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(model.middle)
    return lab.train(model)


@setup("spectral norm")
def spectral_norm(lab):
    model = lab.net()
    parametrizations.spectral_norm(model.middle)
    return lab.train(model)


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight

    def right_inverse(self, weight):
        return weight / 2


@setup("a parametrization of one's own")
def parametrization(lab):
    model = lab.net()
    parametrize.register_parametrization(model.middle, "weight", Doubled())
    return lab.train(model)


class Bag(nn.Module):
    """A sparse table of embeddings below the net."""

    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(40, 24, sparse=True, mode="mean")
        self.middle, self.bend, self.head = nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 1)

    def forward(self, ids):
        return self.head(self.bend(self.middle(self.table(ids))))


@setup(
    "sparse embeddings",
    without={"nan_batch": "The inputs are integers, which cannot be NaN"},
    truths={"detached": Truth(("training_wiring",), ("table", "middle", "bend"), (0, 1))},
)
def sparse_embeddings(lab):
    model = lab.net(Bag)
    dense = [*model.middle.parameters(), *model.head.parameters()]
    optimizers = [
        torch.optim.SparseAdam(model.table.parameters(), lr=lab.lr),
        torch.optim.Adam(dense, lr=lab.lr),
    ]

    def learn():
        ids = torch.randint(0, 40, (32, 4))
        return lab.update(F.mse_loss(model(ids), ids.float().mean(1, keepdim=True) / 20))

    return lab.train(model, optimizers=optimizers, learn=learn)


class Averaged(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = copy.deepcopy(model)

    def follow(self, model):
        for slow, fast in zip(self.model.parameters(), model.parameters(), strict=True):
            slow.detach().lerp_(fast.detach(), 0.05)


@setup("an average of the weights in a copy made inside the block")
def averaged_copy(lab):
    model = lab.net()
    kept = []

    def learn():
        x, y = lab.batch()
        if not kept:
            kept.append(Averaged(model))
        with torch.no_grad():
            goal = 0.9 * y + 0.1 * kept[0].model(x)
        loss = lab.update(F.mse_loss(model(x), goal))
        kept[0].follow(model)
        return loss

    lab.train(model, learn=learn)
    return [model, kept[0]]


@setup("`torch.save(model)` and `torch.load` inside the block")
def saved_inside(lab):
    model = lab.net()
    kept = []

    def learn():
        x, y = lab.batch()
        loss = lab.update(F.mse_loss(model(x), y))
        if lab.step % 20 == 7:
            file = io.BytesIO()
            torch.save(model, file)
            file.seek(0)
            kept.append(torch.load(file, weights_only=False))
            kept[-1](x)
        return loss

    trained = lab.train(model, learn=learn)
    lab.notes["saved"] = kept
    return trained


@setup(
    "a layer replaced in mid-run, and the optimizer with it",
    warnings=("'head' was put into the model",),
)
def layer_replaced(lab):
    model = lab.net()
    lab.optimizers = [lab.adam()]

    def learn():
        if lab.step == 10:
            model.head = nn.Linear(24, 1)
            lab.optimizers = [lab.adam()]
        x, y = lab.batch()
        return lab.update(F.mse_loss(model(x), y))

    return lab.train(model, optimizers=lab.optimizers, learn=learn)


class Thousand(Net):
    """A thousand and some leaves."""

    def __init__(self):
        super().__init__()
        kinds = (nn.Tanh, nn.Hardtanh, nn.Softsign, nn.SiLU)
        self.tail = nn.ModuleList(kind() for _ in range(250) for kind in kinds)

    def forward(self, x):
        x = super().forward(x)
        return x + sum(layer(x) for layer in self.tail) / (100 * len(self.tail))


SAME_LOOP = "Left out for its time: the loop is a plain one"


@setup(
    "1,000 leaf modules",
    without={"dead_relu": SAME_LOOP, "detached": SAME_LOOP, "uncleared": SAME_LOOP},
    is_slow=True,
)
def thousand_leaves(lab):
    lab.steps = 26
    return lab.train(lab.net(Thousand))


class Log(nn.Module):
    def forward(self, x):
        self.seen = float(x.detach().abs().mean())


class Count(nn.Module):
    def forward(self, x):
        return len(x)


class Name(nn.Module):
    def forward(self, x):
        return "named"


class Odd(Net):
    """With children that return nothing, a number and a string."""

    def __init__(self):
        super().__init__()
        self.log, self.count, self.name = Log(), Count(), Name()

    def forward(self, x):
        self.log(x)
        return super().forward(x) * (self.count(x) / len(x)) if self.name(x) == "named" else x


@setup("modules that return nothing, a number, a string")
def odd_modules(lab):
    return lab.train(lab.net(Odd))


class Quiet(Net):
    """Keeps its loss on itself and returns nothing."""

    def forward(self, x, y):
        self.loss = F.mse_loss(super().forward(x), y)


@setup("a model that returns nothing")
def silent_root(lab):
    model = lab.net(Quiet)

    def learn():
        model(*lab.batch())
        return lab.update(model.loss)

    trained = lab.train(model, learn=learn)
    del model.loss
    return trained


@setup("`nn.DataParallel` on the CPU")
def data_parallel(lab):
    model = nn.DataParallel(lab.net())
    return lab.train(lab.model, watched=model, call=model)


def lazy_net():
    model = Net()
    model.stem, model.middle = nn.LazyLinear(24), nn.LazyLinear(24)
    return model


@setup("lazy modules that have their shape when the session opens")
def lazy_modules(lab):
    model = lab.net(lazy_net)
    model(torch.zeros(1, WIDTH))
    return lab.train(model)


@setup("lazy modules that get their shape on the first step")
def lazy_modules_inside(lab):
    return lab.train(lab.net(lazy_net))


def test_modules_and_healthy(setup, healthy):
    healthy(setup)


def test_modules_and_faulty(setup, fault, faulty):
    faulty(setup, fault)


def test_a_copy_made_inside_the_block_has_no_hook(healthy):
    lab = healthy(averaged_copy)
    calls = lab.session.trace.facts.activation[:, :, ActivationStat.CALLS]
    assert (calls == 1).all()


def test_a_copy_of_a_compiled_model_has_no_hook():
    lab = Lab()
    call = torch.compile(lab.net(), backend="eager")
    with lab.watch(call):
        assert count_hooks(call) > 0
        assert count_hooks(copy.deepcopy(call)) == 0
        assert count_hooks(copy.deepcopy(lab.model)) == 0
        assert count_hooks(call) > 0


def test_a_model_saved_inside_the_block_works_without_the_session(healthy):
    lab = healthy(saved_inside)
    x = torch.randn(3, WIDTH)
    assert torch.isfinite(lab.notes["saved"][-1](x)).all()
    assert (lab.session.trace.facts.activation[:, :, ActivationStat.CALLS] == 1).all()


def test_lazy_layers_are_described_once_they_have_their_shape():
    lab = Lab()
    model = nn.Sequential(
        nn.Unflatten(1, (1, 2, 3)),
        nn.LazyConv2d(4, 2),
        nn.Flatten(),
        nn.LazyBatchNorm1d(),
        nn.LazyLinear(1),
    )
    lab.train(model)
    run = lab.session.trace.run
    assert [(each.kind, each.units, each.fan_in) for each in run.layers] == [
        ("Conv2d", 4, 4),
        ("BatchNorm1d", 8, 0),
        ("Linear", 1, 8),
    ]
    assert [each.shape for each in run.parameters[:2]] == [(4, 1, 2, 2), (4,)]
    assert all(each.initial_rms > 0 for each in run.parameters if each.name.endswith("weight"))
    assert run.warnings == ()


def test_a_lazy_layer_that_is_never_called_is_said():
    lab = Lab()
    model = Net()
    model.spare = nn.LazyLinear(3)
    lab.train(model)
    (said,) = lab.session.trace.run.warnings
    assert said.startswith("'spare' is lazy and has no shape")
    assert len(lab.session.loss_history) == lab.steps


def test_a_model_that_is_made_anew_inside_the_block_is_said():
    lab = Lab()
    lab.net()
    with lab.watch(lab.model) as dbg:
        model = Net()
        lab.optimizers = [lab.adam(model)]
        for _ in range(8):
            x, y = lab.batch()
            dbg.record_loss(lab.update(F.mse_loss(model(x), y)))
    (said,) = lab.session.trace.run.warnings
    assert "was the model made anew?" in said
    assert "from step 0 on" in said
