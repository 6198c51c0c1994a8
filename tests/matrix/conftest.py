# SPDX-License-Identifier: MIT
"""Every set-up of a module against every fault, and what is asked of each cell.

A module of this folder holds functions marked with `@matrix_lab.setup`; its tests that take
`setup`, or `setup` and `fault`, run once per cell. A cell that cannot be is skipped with its
reason; `docs/support.py` makes the table of docs/support.md from what is collected here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from matrix_faults import FAULTS
from matrix_lab import Lab, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from matrix_faults import Fault

    from neuraldbg import NeuralDbg


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Spread the module's set-ups, and the faults, over the test."""
    if "setup" not in metafunc.fixturenames:
        return
    setups = [each for each in vars(metafunc.module).values() if hasattr(each, "without")]
    if "fault" in metafunc.fixturenames:
        cells = [_cell(each, fault) for each in setups for fault in FAULTS]
        metafunc.parametrize(("setup", "fault"), cells)
    else:
        metafunc.parametrize("setup", [_cell(each) for each in setups])


def _cell(setup: Any, fault: Fault | None = None) -> Any:
    values = (setup,) if fault is None else (setup, fault)
    name = setup.__name__ if fault is None else f"{setup.__name__}-{fault.name}"
    marks = [pytest.mark.slow] if setup.is_slow else []
    if fault is not None and fault.name in setup.without:
        marks.append(pytest.mark.skip(reason=setup.without[fault.name]))
    return pytest.param(*values, id=name, marks=marks)


@pytest.fixture(scope="session", autouse=True)
def _compiler() -> None:
    """Let the compiler put its own marks on torch before the guards look."""
    torch._dynamo.mutation_guard.install_generation_tagging_init()


def _check_warnings(dbg: NeuralDbg, parts: tuple[str, ...]) -> None:
    said = dbg.trace.run.warnings
    assert len(said) == len(parts), said
    for part, sentence in zip(parts, said, strict=True):
        assert part in sentence


@pytest.fixture
def healthy() -> Callable[..., Lab]:
    """Return a check: the watched run is the run, is quiet, and leaves no hook behind."""

    def check(setup: Callable[[Lab], Any]) -> Lab:
        plain, watched = Lab(is_watched=False), Lab()
        before, after = run(setup, plain), run(setup, watched)
        assert before.weights.keys() == after.weights.keys()
        changed = [k for k, v in before.weights.items() if not torch.equal(v, after.weights[k])]
        assert changed == []
        assert torch.equal(before.random_state, after.random_state)
        assert after.hooks == before.hooks
        assert after.graph_breaks == before.graph_breaks
        for dbg in watched.sessions:
            _check_warnings(dbg, setup.warnings)
            assert [str(h) for h in dbg.explain_failure()] == []
        assert watched.session.trace.step_count == watched.steps
        return watched

    return check


@pytest.fixture
def faulty() -> Callable[..., Lab]:
    """Return a check: the fault is told with its type, layer and step."""

    def check(setup: Callable[[Lab], Any], fault: Fault) -> Lab:
        lab = Lab(fault)
        run(setup, lab)
        truth, dbg = setup.truths.get(fault.name, fault.truth), lab.session
        found = dbg.explain_failure()
        said = [(str(h.failure_type), h.layer, h.onset) for h in found]
        assert said, dbg.summary()
        named = [one for one in said if one[0] in truth.failure_types]
        assert named, said
        _, layer, step = named[0]
        assert layer in {each and f"{setup.prefix}{each}" for each in truth.layers}, said
        assert step is not None, said
        assert truth.steps[0] - 1 <= step <= truth.steps[1] + 1, said
        assert not truth.is_leading or said[0] == named[0], said
        _check_warnings(dbg, setup.warnings)
        return lab

    return check
