# SPDX-License-Identifier: MIT
"""Custom autograd functions against finite differences: once, on an input of the run.

The first audited graph shows which `torch.autograd.Function`s the user wrote. During the next step
their `forward` notes what it receives; after that step's forward the note is taken off again and
the function's backward is compared with central differences, in float64, in fixed directions: no
random number is drawn, arguments are copies, and the random state is put back.

Deliberate gradients are told apart by what the forward does: one that is piecewise constant
(rounding, spikes), one that is the identity (reversal, gradient clipping), and one whose gradient
only fills in where the true one is zero (straight-through clamps) are left alone.
"""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.autograd.function import BackwardCFunction, Function

from neuraldbg.schema.facts import Observation

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.capture.objective.tape import Tape
    from neuraldbg.capture.objective.view import View

MOST = 4
"""Functions that are tested."""
SIZE_LIMIT = 1 << 18
"""Elements of an argument above which no test runs. Heuristic: about 50 ms in float64."""
STEPS = 3
"""Steps for which arguments are waited for."""
DIRECTIONS = 4
FAR = 0.2
"""Disagreement that is told: root of the squared gaps over that of both sides. Heuristic: half a
factor of two; a right backward reaches 1e-6, one in single precision 1e-2."""
ROUGH = 0.02
"""Disagreement of two step widths above which the function is too rough to judge."""


class Disagreement(NamedTuple):
    """How the gradient of one argument differs from central differences."""

    argument: int
    error: float
    """Root of the squared gaps over that of both sides."""
    ratio: float
    """Own gradient / true one, by projection."""
    opposed: float
    """Share of an elementwise function's values at which the two point opposite ways; else 0."""


class CustomFunctions:
    """Finds the custom functions of a run and tests each one once."""

    def __init__(self) -> None:
        self._layers: dict[type[Function], str | None] = {}
        self._arguments: dict[type[Function], tuple[Any, ...]] = {}
        self._undo: list[Callable[[], None]] = []
        self._tested: set[type[Function]] = set()
        self._waited = 0

    def note(self, view: View) -> None:
        """Remember the custom functions in an audited graph, and the layers they are in."""
        for place, cls in _custom(view.tape):
            if len(self._layers) < MOST and cls not in self._layers:
                self._layers[cls] = view.layer_of(place)

    def arm(self) -> None:
        """Let the functions that were found note their arguments during the next step."""
        waiting = [cls for cls in self._layers if cls not in self._tested]
        if self._undo or not waiting or self._waited >= STEPS:
            return
        self._waited += 1
        for cls in waiting:
            self._undo.append(_wrap(cls, self._arguments))

    def disarm(self) -> None:
        """Give the functions their own `forward` back."""
        for undo in self._undo:
            undo()
        self._undo = []

    def close(self) -> None:
        """Leave nothing behind."""
        self.disarm()
        self._arguments = {}

    def test(self, label: int) -> list[Observation]:
        """Compare each function that noted its arguments with finite differences."""
        self.disarm()
        found = []
        for cls, arguments in self._arguments.items():
            self._tested.add(cls)
            verdict = _verdict(cls, arguments)
            if verdict is not None:
                figures = {name: float(value) for name, value in verdict._asdict().items()}
                words = {"cause": "custom_backward_wrong", "function": cls.__name__}
                layer = self._layers.get(cls)
                found.append(Observation("custom_gradient", label, layer, figures, words))
        self._arguments = {}
        return found


def _verdict(cls: type[Function], arguments: tuple[Any, ...]) -> Disagreement | None:
    """Run the test with the random state put back; None where the function does not let it."""
    try:
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")
            with torch.autocast("cpu", enabled=False):
                return _compare(cls, arguments)
    except Exception:  # noqa: BLE001 - a function that does not run in float64 is not judged
        return None


def _custom(tape: Tape) -> list[tuple[int, type[Function]]]:
    """Return (place, class) of the nodes whose function the user's own code defines."""
    found = []
    for place, node in enumerate(tape.nodes):
        if not isinstance(node, BackwardCFunction):
            continue
        cls = getattr(type(node), "_forward_cls", None)
        if isinstance(cls, type) and cls.__module__.partition(".")[0] not in {"torch", "neuraldbg"}:
            found.append((place, cls))
    return found


def _wrap(cls: type[Function], store: dict[type[Function], tuple[Any, ...]]) -> Callable[[], None]:
    """Make `cls.forward` note its first arguments; return what undoes it."""
    own = cls.__dict__.get("forward")
    original = cls.forward
    has_context = cls.setup_context is Function.setup_context

    def forward(*args: Any, **kwargs: Any) -> Any:
        given = args[1:] if has_context else args
        if cls not in store and not kwargs:
            store[cls] = tuple(
                (a.detach().clone(), a.requires_grad) if isinstance(a, torch.Tensor) else (a, False)
                for a in given
            )
        return original(*args, **kwargs)

    cls.forward = staticmethod(forward)  # type: ignore[method-assign]

    def undo() -> None:
        if own is None:
            del cls.forward
        else:
            cls.forward = own  # type: ignore[method-assign]

    return undo


def _compare(cls: type[Function], arguments: tuple[Any, ...]) -> Disagreement | None:
    """Judge the worst argument; None where all are right."""
    values = [_double(value) for value, _ in arguments]
    places = [
        i
        for i, (value, needs) in enumerate(arguments)
        if needs and isinstance(value, torch.Tensor) and value.is_floating_point()
    ]
    tensors = [values[i] for i in places]
    if not places or any(
        t.device.type != "cpu" or t.numel() > SIZE_LIMIT or not bool(torch.isfinite(t).all())
        for t in tensors
    ):
        return None

    def run(place: int, value: torch.Tensor) -> torch.Tensor:
        given = [v.clone() if isinstance(v, torch.Tensor) else v for v in values]
        given[place] = value
        output = cls.apply(*given)  # type: ignore[no-untyped-call]
        first: torch.Tensor = output[0] if isinstance(output, tuple) else output
        return first.double()

    verdicts = [v for i in places if (v := _judge(run, i, values[i])) is not None]
    return max(verdicts, key=lambda v: v.error) if verdicts else None


def _double(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return value


def _direction(like: torch.Tensor, which: int) -> torch.Tensor:
    """Return a fixed direction without pattern that an axis shares, `[like.shape]`, order 1."""
    place = torch.arange(like.numel(), dtype=torch.float64)
    wave = torch.sin(place * (1.6180339887 + 0.7548776662 * which) + 0.5698402910 * (which + 1))
    return (wave + 0.25 * torch.sign(wave)).reshape(like.shape)


def _judge(
    run: Callable[[int, torch.Tensor], torch.Tensor], place: int, value: torch.Tensor
) -> Disagreement | None:
    """Compare the gradient of one argument; None where it is right, deliberate, or too rough."""
    with torch.no_grad():
        base = run(place, value.clone())
        again = run(place, value.clone())
    if not torch.equal(base, again) or not bool(torch.isfinite(base).all()):
        return None
    if base.numel() == value.numel() and torch.equal(base.reshape(-1), value.reshape(-1)):
        return None
    pairs = [_pair(run, place, value, base, which) for which in range(DIRECTIONS)]
    if any(pair is None for pair in pairs):
        return None
    own = [pair[0] for pair in pairs if pair is not None]
    true = [pair[1] for pair in pairs if pair is not None]
    size = math.hypot(*own, *true)
    gap = math.hypot(*(a - b for a, b in zip(own, true, strict=True)))
    if size == 0 or math.hypot(*true) < 1e-9 * size:
        return None  # piecewise constant: any gradient is meant
    error = gap / size
    if error < FAR:
        return None
    ratio = sum(a * b for a, b in zip(own, true, strict=True)) / sum(b * b for b in true)
    is_meant, opposed = _elementwise(run, place, value)
    return None if is_meant else Disagreement(place, error, ratio, opposed)


def _pair(
    run: Callable[[int, torch.Tensor], torch.Tensor],
    place: int,
    value: torch.Tensor,
    base: torch.Tensor,
    which: int,
) -> tuple[float, float] | None:
    """Return (by the backward, by central differences) of one directional derivative."""
    along, weight = _direction(value, which), _direction(base, which + DIRECTIONS)
    scale = float(value.abs().mean()) or 1.0
    with torch.no_grad():
        slopes = [
            float((_slope(run, place, value, along, width) * weight).sum())
            for width in (1e-5 * scale, 5e-6 * scale)
        ]
    asked = value.clone().requires_grad_()
    (gradient,) = torch.autograd.grad((run(place, asked) * weight).sum(), asked)
    own = float((gradient.double() * along).sum())
    if not all(map(math.isfinite, (*slopes, own))):
        return None
    if abs(slopes[0] - slopes[1]) > ROUGH * max(abs(slopes[0]), abs(slopes[1]), abs(own)):
        return None
    return own, slopes[1]


def _elementwise(
    run: Callable[[int, torch.Tensor], torch.Tensor], place: int, value: torch.Tensor
) -> tuple[bool, float]:
    """Return whether an elementwise gradient only fills in, and the share that is opposed."""
    asked = value.clone().requires_grad_()
    output = run(place, asked)
    if output.shape != value.shape:
        return False, 0.0
    (gradient,) = torch.autograd.grad(output.sum(), asked)
    along = torch.sign(_direction(value, DIRECTIONS))
    width = 1e-5 * (float(value.abs().mean()) or 1.0)
    with torch.no_grad():
        true = _slope(run, place, value, torch.ones_like(value), width)
        other = _slope(run, place, value, along, width) * along
    # Each result hangs on its own value alone where its neighbours may move either way.
    is_alone = torch.allclose(other, true, rtol=1e-3, atol=1e-3 * float(true.abs().max()))
    return _fills_in(gradient, true), _opposed(gradient, true) if is_alone else 0.0


def _slope(
    run: Callable[[int, torch.Tensor], torch.Tensor],
    place: int,
    value: torch.Tensor,
    along: torch.Tensor,
    width: float,
) -> torch.Tensor:
    """Return the slope of each result along a direction, by central differences."""
    up, down = run(place, value + width * along), run(place, value - width * along)
    return (up - down) / (2 * width)


def _fills_in(gradient: torch.Tensor, true: torch.Tensor) -> bool:
    """Whether an elementwise gradient is right wherever the true one is not zero."""
    live = true.abs() > 1e-6 * true.abs().max()
    if bool(live.all()):
        return False
    gap = torch.linalg.vector_norm((gradient - true)[live])
    return bool(gap < 0.02 * torch.linalg.vector_norm(true[live]))


def _opposed(gradient: torch.Tensor, true: torch.Tensor) -> float:
    """Return the share of values at which both are there and point opposite ways."""
    live = true.abs() > 1e-3 * true.abs().max()
    return float((gradient * true < 0)[live].double().mean())
