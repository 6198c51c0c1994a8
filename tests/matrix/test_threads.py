# SPDX-License-Identifier: MIT
"""Threads, processes and sessions."""

from __future__ import annotations

import contextlib
import threading

import torch
import torch.nn.functional as F
from matrix_lab import WIDTH, Lab, setup
from torch import nn
from torch.utils.data import DataLoader, Dataset

from neuraldbg.schema.facts import ActivationStat


class Rows(Dataset):
    """Rows that are drawn in the worker, the same for the same index."""

    def __len__(self):
        return 16 * 44

    def __getitem__(self, index):
        return torch.randn(WIDTH, generator=torch.Generator().manual_seed(index))


def from_workers(lab, context):
    model = lab.net()
    rows = DataLoader(Rows(), 16, num_workers=1, multiprocessing_context=context)
    # Made before the session opens, or inside it: a worker that is forked holds a copy of it.
    batches = None

    def learn():
        nonlocal batches
        if batches is None:
            batches = iter(rows)
        x = next(batches)
        y = x[:, :2].sum(1, keepdim=True) - x[:, 2:3]
        return lab.update(F.mse_loss(model(lab.fault.inputs(lab, x)), y))

    trained = lab.train(model, learn=learn)
    del batches
    return trained


SAME_LOOP = "Left out for its time: the loop is the same as with workers that are forked"


@setup("a `DataLoader` with a forked worker")
def loader_forked(lab):
    return from_workers(lab, "fork")


@setup(
    "a `DataLoader` with a spawned worker",
    without={"dead_relu": SAME_LOOP, "detached": SAME_LOOP, "uncleared": SAME_LOOP},
    is_slow=True,
)
def loader_spawned(lab):
    return from_workers(lab, "spawn")


@contextlib.contextmanager
def in_background(work):
    """Repeat `work()` on another thread until the block ends; its error is raised here."""
    stop, errors, started = threading.Event(), [], threading.Event()

    def loop():
        try:
            while not stop.is_set():
                work()
                started.set()
        except Exception as error:  # noqa: BLE001 - raised again by the thread that waits
            errors.append(error)
            started.set()

    thread = threading.Thread(target=loop)
    thread.start()
    started.wait(30)
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if errors:
        raise errors[0]


@setup("a second thread that runs inference on the same model")
def inference_elsewhere(lab):
    model = lab.net()
    x = torch.full((4, WIDTH), 1e6)

    def infer():
        with torch.no_grad():
            model(x)

    with in_background(infer):
        return lab.train(model)


@setup("a second thread that runs the same model with gradients on")
def forward_elsewhere(lab):
    model = lab.net()
    x = torch.full((4, WIDTH), 1e6)
    with in_background(lambda: model(x)):
        return lab.train(model)


@setup("training on another thread than the one that opened the session")
def trained_elsewhere(lab):
    model = lab.net()

    def learn():
        found = []

        def work():
            x, y = lab.batch()
            found.append(lab.update(F.mse_loss(model(x), y)).detach())

        pool.append(work)
        turn.set()
        done.wait(30)
        done.clear()
        return found[0]

    pool, turn, done = [], threading.Event(), threading.Event()

    def worker():
        while True:
            turn.wait()
            turn.clear()
            if not pool:
                return
            pool.pop()()
            done.set()

    thread = threading.Thread(target=worker)
    thread.start()
    try:
        return lab.train(model, learn=learn)
    finally:
        turn.set()
        thread.join()


@setup("nested sessions on one model")
def nested_sessions(lab):
    model = lab.net()

    def learn():
        x, y = lab.batch()
        loss = lab.update(F.mse_loss(model(x), y))
        lab.notes["inner"].record_loss(loss)
        return loss

    with contextlib.ExitStack() as stack:

        def enter(_):
            lab.notes["inner"] = stack.enter_context(lab.watch(model))

        return lab.train(model, entered=enter, learn=learn)


@setup("two sessions on two models")
def two_sessions(lab):
    model, other = lab.net(), nn.Sequential(nn.Linear(WIDTH, 8), nn.Tanh(), nn.Linear(8, 1))
    second = lab.sgd(other)

    def learn():
        x, y = lab.batch()
        lab.clear()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        lab.optimizers[0].step()
        second.zero_grad()
        theirs = F.mse_loss(other(x.nan_to_num()), -y)
        theirs.backward()
        second.step()
        lab.notes["second"].record_loss(theirs)
        return loss

    with contextlib.ExitStack() as stack:

        def enter(_):
            lab.notes["second"] = stack.enter_context(lab.watch(other))

        trained = lab.train(model, entered=enter, learn=learn)
    return [*trained, other]


def test_threads_and_healthy(setup, healthy):
    healthy(setup)


def test_threads_and_faulty(setup, fault, faulty):
    faulty(setup, fault)


def test_calls_of_another_thread_are_not_counted(healthy):
    for program in (inference_elsewhere, forward_elsewhere):
        facts = healthy(program).session.trace.facts
        assert (facts.activation[:, :, ActivationStat.CALLS] == 1).all()
        assert facts.activation[:, 0, ActivationStat.MAX].max() < 1e3


def test_asking_from_another_thread_while_it_trains():
    lab = Lab()
    model, answers = lab.net(), []

    def ask():
        dbg = lab.session
        answers.append((dbg.events, dbg.explain_failure(), dbg.loss_history, dbg.summary()))
        assert dbg.step <= lab.steps

    with contextlib.ExitStack() as stack:
        lab.train(model, entered=lambda _: stack.enter_context(in_background(ask)) and None)
    assert len(answers) > 1
    assert all(found == [] for _, found, _, _ in answers)
    assert lab.session.trace.step_count == lab.steps
    assert lab.session.trace.run.warnings == ()
