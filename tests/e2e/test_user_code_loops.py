# SPDX-License-Identifier: MIT
"""Whatever the shape of the loop: training is unharmed, steps are counted, all is quiet."""

from __future__ import annotations

import copy
import math
import threading
from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from neuraldbg import NeuralDbg
from neuraldbg.schema.facts import ActivationStat

N = 25


def batch(rows=16, width=6):
    x = torch.randn(rows, width)
    return x, x[:, :2].sum(1, keepdim=True) - x[:, 2:3]


def mlp(width=6, hidden=16, out=1):
    return nn.Sequential(nn.Linear(width, hidden), nn.Tanh(), nn.Linear(hidden, out))


def update(loss, optimizer):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def fit(watch, model, predict, make=batch, lr=1e-2, steps=N, kind=torch.optim.Adam):
    """Train `model` by `predict(model, x)` on a learnable task, and return it."""
    optimizer = kind(model.parameters(), lr=lr)
    with watch(model) as dbg:
        for _ in range(steps):
            x, y = make()
            loss = F.mse_loss(predict(model, x), y)
            update(loss, optimizer)
            dbg.record_loss(loss.item())
    return [model]


def activations(dbg, path):
    """Return `[T, stats]` of one layer."""
    row = [layer.path for layer in dbg.trace.run.layers].index(path)
    return dbg.trace.facts.activation[:, row]


def calls(dbg, path):
    return activations(dbg, path)[:, ActivationStat.CALLS].tolist()


class Deep(nn.Module):
    def __init__(self, *, reentrant):
        super().__init__()
        self.inp, self.head = nn.Linear(6, 24), nn.Linear(24, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(24), nn.Linear(24, 24), nn.GELU(), nn.Dropout(0.1))
            for _ in range(3)
        )
        self.reentrant = reentrant

    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=self.reentrant)
        return self.head(x)


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_recomputed_forward_is_not_a_second_one(unharmed, ledger, reentrant):
    dbg = unharmed(lambda watch: fit(watch, Deep(reentrant=reentrant), lambda m, x: m(x)), N)
    assert calls(dbg, "blocks.1.1") == [1] * N
    assert ledger(dbg, "forwards") == [1] * N
    assert ledger(dbg, "backwards") == [1] * N


@pytest.mark.parametrize("divided", ["loss", "gradients"])
def test_gradient_accumulation(unharmed, ledger, divided):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        with watch(model) as dbg:
            for _ in range(N):
                total = 0.0
                for _ in range(4):
                    x, y = batch()
                    loss = F.mse_loss(model(x), y)
                    (loss / 4 if divided == "loss" else loss).backward()
                    total += loss.item() / 4
                if divided == "gradients":
                    for p in model.parameters():
                        p.grad.div_(4)
                optimizer.step()
                optimizer.zero_grad(set_to_none=divided == "loss")
                dbg.record_loss(total)
        return [model]

    dbg = unharmed(program, N)
    assert ledger(dbg, "backwards") == [4] * N


def test_lbfgs_closure(unharmed, ledger):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.3, max_iter=5)
        x, y = batch(64)
        with watch(model) as dbg:
            for _ in range(12):

                def closure():
                    optimizer.zero_grad()
                    loss = F.mse_loss(model(x), y)
                    loss.backward()
                    return loss

                dbg.record_loss(optimizer.step(closure))
        return [model]

    dbg = unharmed(program, 12)
    assert min(ledger(dbg, "forwards")[:3]) > 1
    assert ledger(dbg, "steps") == [1] * 12


def test_closure_of_a_first_order_optimizer(unharmed, ledger):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()

                def closure(x=x, y=y):
                    optimizer.zero_grad()
                    loss = F.mse_loss(model(x), y)
                    loss.backward()
                    return loss

                dbg.record_loss(optimizer.step(closure))
        return [model]

    dbg = unharmed(program, N)
    assert ledger(dbg, "backwards") == [1] * N


def test_sparse_gradients(unharmed):
    def program(watch):
        table, head = nn.EmbeddingBag(40, 8, sparse=True, mode="mean"), nn.Linear(8, 1)
        model = nn.Sequential(OrderedDict(table=table, head=head))
        optimizers = [torch.optim.SparseAdam(table.parameters(), lr=1e-2),
                      torch.optim.Adam(head.parameters(), lr=1e-2)]  # fmt: skip
        with watch(model) as dbg:
            for _ in range(N):
                ids = torch.randint(0, 40, (32, 4))
                loss = F.mse_loss(model(ids), ids.float().mean(1, keepdim=True) / 40)
                for optimizer in optimizers:
                    optimizer.zero_grad()
                loss.backward()
                for optimizer in optimizers:
                    optimizer.step()
                dbg.record_loss(loss)
        return [model]

    unharmed(program, N)


@pytest.mark.parametrize("unscales", [False, True])
def test_gradient_scaler(unharmed, unscales):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**12, growth_interval=8)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = F.mse_loss(model(x).float(), y)
                optimizer.zero_grad()
                scaler.scale(loss).backward()
                if unscales:
                    scaler.unscale_(optimizer)
                    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                scaler.step(optimizer)
                scaler.update()
                dbg.record_loss(loss.item())
        return [model]

    unharmed(program, N)


@pytest.mark.parametrize("style", ["norm", "value", "by hand", "foreach off"])
def test_clipping_in_any_spelling(unharmed, style):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                loss = F.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                if style == "norm":
                    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                elif style == "foreach off":
                    torch.nn.utils.clip_grad_norm_(list(model.parameters()), 1.0, foreach=False)
                elif style == "value":
                    nn.utils.clip_grad_value_(model.parameters(), 0.5)
                else:
                    total = torch.stack([p.grad.norm() for p in model.parameters()]).norm()
                    for p in model.parameters():
                        p.grad.mul_((1.0 / (total + 1e-6)).clamp(max=1.0))
                optimizer.step()
                dbg.record_loss(loss)
        return [model]

    unharmed(program, N)


def test_several_models_and_optimizers(unharmed):
    def program(watch):
        encoder, decoder, critic = mlp(6, 16, 4), mlp(4, 16, 6), mlp(4, 16, 1)
        own = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-2)
        theirs = torch.optim.Adam(critic.parameters(), lr=1e-2)
        with watch({"encoder": encoder, "decoder": decoder, "critic": critic}) as dbg:
            for _ in range(N):
                x, y = batch()
                code = encoder(x)
                reconstruction = F.mse_loss(decoder(code), x)
                update(reconstruction, own)
                prediction = F.mse_loss(critic(encoder(x).detach()), y)
                update(prediction, theirs)
                dbg.record_loss(reconstruction.item(), name="reconstruction")
                dbg.record_loss(prediction.item(), name="prediction")
        return [encoder, decoder, critic]

    dbg = unharmed(program, N)
    assert {layer.path.split(".")[0] for layer in dbg.trace.run.layers} == {
        "encoder",
        "decoder",
        "critic",
    }
    assert len(dbg.trace.run.optimizers) == 2
    assert set(dbg.trace.losses) == {"reconstruction", "prediction"}


def test_averaged_and_target_copies(unharmed):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            target = copy.deepcopy(model)
            average = torch.optim.swa_utils.AveragedModel(model)
            for _ in range(N):
                x, y = batch()
                with torch.no_grad():
                    goal = 0.9 * y + 0.1 * target(x)
                loss = F.mse_loss(model(x), goal)
                update(loss, optimizer)
                dbg.record_loss(loss)
                average.update_parameters(model)
                with torch.no_grad():
                    for slow, fast in zip(target.parameters(), model.parameters(), strict=True):
                        slow.lerp_(fast, 0.05)
        return [model, target, average]

    dbg = unharmed(program, N)
    assert calls(dbg, "0") == [1] * N


def test_functional_call_with_parameters_of_ones_own(unharmed, ledger):
    def program(watch):
        model = mlp()
        weights = {
            name: p.detach().clone().requires_grad_() for name, p in model.named_parameters()
        }
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                loss = F.mse_loss(torch.func.functional_call(model, weights, (x,)), y)
                grads = torch.autograd.grad(loss, [*weights.values()])
                weights = {
                    name: (p - 0.05 * g).detach().requires_grad_()
                    for (name, p), g in zip(weights.items(), grads, strict=True)
                }
                dbg.record_loss(loss.item())
                dbg.step_iteration()
        model.load_state_dict(weights)
        return [model]

    unharmed(program, N)


def test_functional_call_in_a_meta_learning_loop(unharmed):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for _ in range(N):
                (x, y), (x2, y2) = batch(), batch()
                fast = dict(model.named_parameters())
                inner = F.mse_loss(torch.func.functional_call(model, fast, (x,)), y)
                grads = torch.autograd.grad(inner, [*fast.values()], create_graph=True)
                fast = {k: p - 0.01 * g for (k, p), g in zip(fast.items(), grads, strict=True)}
                loss = F.mse_loss(torch.func.functional_call(model, fast, (x2,)), y2)
                update(loss, optimizer)
                dbg.record_loss(loss)
        return [model]

    unharmed(program, N)


def test_per_sample_gradients_by_vmap_over_the_model(unharmed):
    def program(watch):
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

        def one(weights, x, y):
            out = torch.func.functional_call(model, weights, (x.unsqueeze(0),))
            return F.mse_loss(out, y.unsqueeze(0))

        per_sample = torch.func.vmap(torch.func.grad(one), in_dims=(None, 0, 0))
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                grads = per_sample({k: p.detach() for k, p in model.named_parameters()}, x, y)
                optimizer.zero_grad()
                for name, p in model.named_parameters():
                    p.grad = grads[name].clamp(-1, 1).mean(0)
                optimizer.step()
                with torch.no_grad():
                    dbg.record_loss(F.mse_loss(model(x), y))
        return [model]

    unharmed(program, N, says=("runs under a transform of torch.func",))


def test_ensemble_by_vmap(unharmed):
    def program(watch):
        model = mlp()
        members = [mlp() for _ in range(3)]
        weights, _ = torch.func.stack_module_state(members)
        optimizer = torch.optim.SGD(weights.values(), lr=0.05)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                out = torch.vmap(
                    lambda w, x: torch.func.functional_call(model, w, (x,)), (0, None)
                )(weights, x)
                loss = F.mse_loss(out, y.expand_as(out))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss)
                dbg.step_iteration()
        return [
            nn.ParameterDict(
                {k.replace(".", "_"): nn.Parameter(v.detach()) for k, v in weights.items()}
            )
        ]

    unharmed(program, says=("runs under a transform of torch.func",))


def test_gradient_penalty_through_a_graph_of_the_backward(unharmed):
    def program(watch):
        critic = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1))
        optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3, betas=(0.0, 0.9))
        with watch(critic) as dbg:
            for _ in range(N):
                real, fake = torch.randn(16, 2) + 1, torch.randn(16, 2) - 1
                mixed = torch.lerp(real, fake, torch.rand(16, 1)).requires_grad_()
                (grads,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
                loss = (critic(fake) - critic(real)).mean() + 10 * (grads.norm(dim=1) - 1).pow(
                    2
                ).mean()
                update(loss, optimizer)
                dbg.record_loss(loss.item())
        return [critic]

    unharmed(program, N)


def test_two_backwards_of_one_graph(unharmed, ledger):
    def program(watch):
        model = mlp(6, 16, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        with watch(model) as dbg:
            for _ in range(N):
                x, y = batch()
                out = model(x)
                first, second = F.mse_loss(out[:, :1], y), F.mse_loss(out[:, 1:], -y)
                optimizer.zero_grad()
                first.backward(retain_graph=True)
                second.backward()
                optimizer.step()
                dbg.record_loss(first.item() + second.item())
        return [model]

    dbg = unharmed(program, N)
    assert ledger(dbg, "backwards") == [2] * N


@pytest.mark.parametrize("per_thread", [1, 40], ids=["step", "epoch"])
def test_each_step_or_epoch_on_a_thread_of_its_own(per_thread):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    with NeuralDbg(model) as dbg:

        def train():
            for _ in range(per_thread):
                x = torch.randn(32, 8)
                if dbg.step > 500:
                    x = x * math.nan
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), x.sum(1, keepdim=True))
                loss.backward()
                optimizer.step()
                dbg.record_loss(loss.item())

        for _ in range(520 // per_thread):
            thread = threading.Thread(target=train)
            thread.start()
            thread.join()
        assert len(dbg.loss_history) >= 519  # the last one may be open
    assert dbg.trace.step_count == len(dbg.loss_history) == 520
    first = dbg.explain_failure()[0]
    assert (first.cause, first.onset) == ("nan_in_input", 502)
    assert dbg.trace.run.warnings == ()


def test_inference_on_another_thread_is_not_taken_for_training_that_moved_there():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def train():
        model.train()
        x = torch.randn(32, 8)
        update(F.mse_loss(model(x), x.sum(1, keepdim=True)), optimizer)

    def serve():  # nobody told it that it needs no gradients
        model.eval()
        model(torch.randn(4, 8))

    with NeuralDbg(model) as dbg:
        for step in range(60):
            thread = threading.Thread(target=train)
            thread.start()
            thread.join()
            if step % 10 == 5:
                serve()
    assert dbg.trace.step_count == 60
    assert dbg.explain_failure() == []
