"""Guards on every test: whatever it did, it leaves nothing behind."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
import torch
import torch.nn.modules.module
import torch.utils.checkpoint

if TYPE_CHECKING:
    from collections.abc import Iterator

# Property tests draw the same examples everywhere; `--hypothesis-profile=default` explores.
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")

THREAD_GRACE_S = 2.0
OPEN_FILES = Path("/proc/self/fd")
HOOK_TABLES = (sys.modules["torch.nn.modules.module"], sys.modules["torch.optim.optimizer"])
# Whose functions and methods must be the originals after each test. The `step` of single
# optimizer classes is not among them: torch wraps it itself, for its profiler.
PATCHABLE = (
    torch.autograd,
    torch.autograd.graph,
    torch.nn.functional,
    torch.nn.init,
    torch.nn.utils,
    torch.nn.utils.clip_grad,
    torch.utils.checkpoint,
    torch.Tensor,
    torch.nn.Module,
    torch.optim.Optimizer,
    torch.optim.lr_scheduler.LRScheduler,
    torch.amp.GradScaler,
)
# What pytest and the compiler of torch write there themselves.
FOREIGN_VARIABLES = ("PYTEST_CURRENT_TEST", "TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_")


@pytest.fixture(scope="session", autouse=True)
def _plain_process() -> None:
    """One thread, here and in the programs that tests start, and no setting of the user's."""
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in [name for name in os.environ if name.startswith("NEURALDBG_")]:
        del os.environ[name]


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Every test trains on the same numbers, whatever ran before it."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _leaves_nothing_behind(
    _plain_process: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Compare the process before and after the test, which runs in an empty folder."""
    # Not through monkeypatch: it would be undone only after this comparison.
    came_from = Path.cwd()
    folder = tmp_path_factory.mktemp("cwd")
    temporary = str(tmp_path_factory.getbasetemp())
    os.chdir(folder)
    state, threads, files = _state(), _threads(), _open_files(temporary)
    yield
    left = [key for key, value in _state().items() if state.get(key, value) != value]
    left += [key for key in _environment() if key not in state]
    left += [key for key in state if key.startswith("variable ") and key not in _environment()]
    left += [f"thread {thread.name}" for thread in _lasting(_threads() - threads)]
    left += [f"open file {path}" for path in _still_open(files, temporary)]
    os.chdir(came_from)
    left += [
        f"file {path.relative_to(folder)}"
        for path in folder.rglob("*")
        if ".hypothesis" not in path.parts
    ]
    if left:
        pytest.fail("the test left behind: " + ", ".join(sorted(left)), pytrace=False)


def _state() -> dict[str, object]:
    """Return what must be equal before and after, by a name that a person understands."""
    return _environment() | _hooks() | _originals() | _modes()


def _environment() -> dict[str, object]:
    return {
        f"variable {name}": value
        for name, value in os.environ.items()
        if not name.startswith(FOREIGN_VARIABLES)
    }


def _hooks() -> dict[str, object]:
    return {
        f"hook in {table.__name__}.{name}": tuple(hooks)
        for table in HOOK_TABLES
        for name, hooks in vars(table).items()
        if name.startswith("_global_") and isinstance(hooks, dict)
    }


def _originals() -> dict[str, object]:
    return {
        f"patched name {owner.__name__}.{name}": value
        for owner in PATCHABLE
        for name, value in vars(owner).items()
        if callable(value) or isinstance(value, (property, staticmethod, classmethod))
    }


def _modes() -> dict[str, object]:
    return {
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "grad mode": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "anomaly mode": torch.is_anomaly_enabled(),
        "autocast": (torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
        "number of torch threads": torch.get_num_threads(),
        "kind of backward hooks": vars(HOOK_TABLES[0])["_global_is_full_backward_hook"],
        "sys.excepthook": sys.excepthook,
        "threading.excepthook": threading.excepthook,
        "sys.displayhook": sys.displayhook,
        "SIGINT handler": signal.getsignal(signal.SIGINT),
        "SIGTERM handler": signal.getsignal(signal.SIGTERM),
    }


def _threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def _lasting(threads: set[threading.Thread]) -> set[threading.Thread]:
    """Return those that are still alive after a moment to end in."""
    deadline = time.monotonic() + THREAD_GRACE_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return {thread for thread in threads if thread.is_alive()}


def _open_files(under: str) -> set[str]:
    """Return the open files below a folder; empty where the system does not tell."""
    if not OPEN_FILES.exists():
        return set()
    links = set()
    for descriptor in os.listdir(OPEN_FILES):  # noqa: PTH208 - names only, before they close
        try:
            links.add(os.readlink(OPEN_FILES / descriptor))  # noqa: PTH115 - as above
        except OSError:
            continue
    return {link for link in links if link.startswith(under)}


def _still_open(before: set[str], under: str) -> set[str]:
    if _open_files(under) - before:
        gc.collect()
    return _open_files(under) - before
