"""A training program runs twice, with and without NeuralDBG, and is compared."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import torch
from torch import nn
from unwatched import Unwatched

from neuraldbg import NeuralDbg
from neuraldbg.trace import LEDGER_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from neuraldbg import CausalHypothesis


class Outcome(NamedTuple):
    """What a program left behind."""

    weights: dict[str, torch.Tensor]
    random_state: torch.Tensor
    sessions: list[Any]

    @property
    def session(self) -> NeuralDbg:
        """The session that was opened last."""
        return self.sessions[-1]


def run(program: Callable[[Any], Iterable[nn.Module]], kind: type) -> Outcome:
    """Run `program(watch)`, which returns the modules that it trained."""
    sessions: list[Any] = []

    def watch(*args: Any, **kwargs: Any) -> Any:
        sessions.append(kind(*args, **kwargs))
        return sessions[-1]

    torch.manual_seed(7)
    models = program(watch)
    weights = {
        f"{i}.{name}": value.detach().clone()
        for i, model in enumerate(models)
        for name, value in model.state_dict().items()
    }
    return Outcome(weights, torch.get_rng_state(), sessions)


@pytest.fixture
def unharmed() -> Callable[..., NeuralDbg]:
    """Return a check: runs a program twice, compares, and hands back its (last) session."""

    def check(
        program: Callable[[Any], Iterable[nn.Module]],
        steps: int | None = None,
        *,
        is_quiet: bool = True,
        says: tuple[str, ...] = (),
    ) -> NeuralDbg:
        plain, watched = run(program, Unwatched), run(program, NeuralDbg)
        assert plain.weights.keys() == watched.weights.keys()
        changed = [k for k, v in plain.weights.items() if not torch.equal(v, watched.weights[k])]
        assert changed == []
        assert torch.equal(plain.random_state, watched.random_state)
        for dbg in watched.sessions:
            warnings = dbg.trace.run.warnings
            assert len(warnings) == len(says), warnings
            assert all(part in said for part, said in zip(says, warnings, strict=True))
            assert not is_quiet or dbg.explain_failure() == []
        if steps is not None:
            assert watched.session.trace.step_count == steps
            assert all(math.isfinite(value) for value in watched.session.loss_history)
        return watched.session

    return check


class Failure:
    """What a session says of one failure, as a test asks for it."""

    def __init__(self, dbg: NeuralDbg, question: str) -> None:
        self.all = dbg.explain_failure()
        self.asked = dbg.explain_failure(question)
        assert self.all, f"nothing was found: {dbg.summary()}"
        assert self.asked, f"no {question} among {[str(h) for h in self.all]}"

    def check(
        self,
        failure_type: str | tuple[str, ...],
        layer: str | tuple[str | None, ...] | None,
        step: int | tuple[int, int] | None,
        *,
        is_leading: bool = True,
    ) -> CausalHypothesis:
        """Compare the first hypothesis with the truth.

        Args:
            failure_type: The truth; several where either is a fair answer.
            layer: The one to blame; several where either is a fair answer.
            step: Of the first harm, met within one; a range where it builds up; None: not asked.
            is_leading: Whether it must also come first among all hypotheses.
        """
        first = self.asked[0]
        found = (str(first.failure_type), first.layer, first.onset)
        assert found[0] in _several(failure_type), found
        assert found[1] in _several(layer), found
        if step is not None:
            low, high = step if isinstance(step, tuple) else (step - 1, step + 1)
            assert found[2] is not None, found
            assert low <= found[2] <= high, found
        if is_leading:
            leading = self.all[0]
            assert (str(leading.failure_type), leading.layer) == found[:2], str(leading)
        return first


def _several(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


@pytest.fixture(params=[0, 1], ids=["seed0", "seed1"])
def seed(request: pytest.FixtureRequest) -> int:
    """Seed torch, and run the test once per seed: what holds for one seed only is luck."""
    torch.manual_seed(request.param)
    return request.param


@pytest.fixture
def explained() -> Callable[[NeuralDbg, str], Failure]:
    """Return what asks a session about a failure."""
    return Failure


@pytest.fixture
def ledger() -> Callable[[NeuralDbg, str], list[float]]:
    """Return what reads one column of the ledger of a session."""

    def column(dbg: NeuralDbg, name: str) -> list[float]:
        return dbg.trace.facts.ledger[:, LEDGER_FIELDS.index(name)].tolist()

    return column
