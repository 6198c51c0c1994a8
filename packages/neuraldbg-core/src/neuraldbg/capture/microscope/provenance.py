# SPDX-License-Identifier: MIT
"""A dispatch mode that follows non-finite values from operation to operation during a re-run."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from neuraldbg.capture.microscope.arguments import overflow
from neuraldbg.capture.microscope.calls import (
    Call,
    address_of,
    bare,
    covers,
    in_order,
    is_half_overflow,
    is_training_norm,
    is_view,
    was_rounded_off,
    written_by,
)
from neuraldbg.capture.microscope.nodes import Paths, is_custom, read
from neuraldbg.capture.microscope.origin import Birth, Leaf, is_deliberate, is_thrown_away
from neuraldbg.capture.microscope.region import masks_above
from neuraldbg.capture.microscope.rules import judge
from neuraldbg.capture.microscope.steepness import judge_backward, judge_hidden
from neuraldbg.capture.microscope.verdict import (
    HALF,
    NAN,
    NEGATIVE,
    Verdict,
    describe_nonfinite,
    extent,
    flags,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

UNINITIALISED = frozenset({
    "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted",
    "resize_", "set_", "_efficientzerotensor",
})  # fmt: skip
"""Operations whose output holds garbage until something is written into it."""
SUMS = frozenset({"sum", "mean", "cumsum", "add", "bmm", "mm"})
EXPONENTIALS = frozenset({"exp", "exp2", "expm1"})
WINDOW = 16
"""Calls remembered to say how an offending argument was made."""


class OutOfTimeError(Exception):
    """The examination reached its time limit."""


@dataclass(slots=True)
class Growth:
    """The largest element of the gradient in one module: as it came in, and at most."""

    first: float
    most: float = 0.0
    operations: int = 0

    def add(self, largest: float) -> None:
        """Take another operation's result in."""
        self.most = max(self.most, largest)
        self.operations += 1

    @property
    def ratio(self) -> float:
        """By how much it grew."""
        return self.most / self.first

    @property
    def words(self) -> str:
        """In words."""
        return (
            f"the gradient grew from {self.first:.3g} to {self.most:.3g} in {self.operations} "
            "operations of its backward"
        )


class Provenance(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records every operation whose output is not finite, with where its operands came from.

    Args:
        leaves: Storage address of the tensors that entered, with kind and name.
        layer: Returns the path of the module that is running.
        node_layer: Maps a node's sequence number to the module that made it.
        guarded: Storage addresses of tensors that must be unchanged afterwards.
        deadline: `time.monotonic()` at which to give up.
    """

    def __init__(
        self,
        leaves: Mapping[int, tuple[str, str]],
        layer: Callable[[], str],
        node_layer: Callable[[int], str],
        guarded: Mapping[int, Tensor],
        deadline: float,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.births: list[Birth] = []
        self.phase = "forward"
        self.failure: str | None = None
        """The first error of the microscope itself, with the operation it was looking at."""
        self.roots: list[Any] = []
        """Graph nodes from which backward starts, for looking up masks."""
        self.growth: dict[str, Growth] = {}
        """How the gradient's size changed within each module, in backward."""
        self._by_storage: dict[int, Birth] = {}
        self._stands_for: dict[int, int] = {}
        self._leaves = leaves
        self._layer = layer
        self._node_layer = node_layer
        self._guarded = guarded
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}
        self._window: deque[Call] = deque(maxlen=WINDOW)
        self._deadline = deadline
        self._index = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Run the operation and look at its output."""
        kwargs = kwargs or {}
        if time.monotonic() > self._deadline:
            raise OutOfTimeError
        self._index += 1
        schema = func._schema  # noqa: SLF001
        name = schema.name.partition("::")[2]
        written = written_by(schema, args, kwargs) if schema.is_mutable else []
        before = args
        self._stands_for.clear()
        with torch._C._DisableAutocast(), torch.no_grad():  # noqa: SLF001
            if written:
                self._guard(written)
                before = self._copied(args, written)
        out = func(*args, **kwargs)
        if name in UNINITIALISED:
            return out
        try:
            with torch._C._DisableAutocast(), torch.no_grad():  # noqa: SLF001
                self._look(func, name, before, kwargs, out, written)
        except Exception as error:  # noqa: BLE001
            self.failure = self.failure or f"{name}: {error!r}"
        return out

    def restore(self) -> None:
        """Put guarded tensors that an operation wrote into back as they were."""
        for tensor, copy in self._copies.values():
            with torch.no_grad():
                tensor.data.copy_(copy)
        self._copies.clear()

    def source(self, tensor: Tensor, found: int) -> Birth | Leaf:
        """Return where a non-finite tensor came from."""
        address = address_of(tensor)
        address = self._stands_for.get(address, address)
        kind, name = self._leaves.get(address, ("constant", ""))
        if address in self._by_storage and kind != "parameter":
            return self._by_storage[address]
        return Leaf(kind, name, found, tensor)

    def _look(
        self,
        func: Any,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Any,
        written: list[Tensor],
    ) -> None:
        outputs = [
            t for t in (out if isinstance(out, (tuple, list)) else (out,)) if isinstance(t, Tensor)
        ]
        bad = None
        for tensor in (*outputs, *written):
            found = flags(tensor)
            if found:
                bad = bad or (tensor, found)
            elif address_of(tensor) in self._by_storage and covers(tensor):
                del self._by_storage[address_of(tensor)]
        if self.phase == "backward" and outputs:
            self._grow(outputs[0])
        if bad is None:
            if outputs and outputs[0].is_floating_point():
                self._window.append(Call(func, name, args, kwargs, outputs[0]))
            return
        self._record(func, name, args, kwargs, bad)
        for tensor in (*outputs, *written):
            if flags(tensor):
                self._by_storage[address_of(tensor)] = self.births[-1]

    def _grow(self, gradient: Tensor) -> None:
        """Follow the largest element of the gradient through the module that is in backward."""
        node: Any = torch._C._current_autograd_node()  # noqa: SLF001
        if node is None or not gradient.is_floating_point() or not gradient.numel():
            return
        largest = float(gradient.abs().nan_to_num(0.0, 0.0, 0.0).amax())
        if largest:
            layer = self._node_layer(node._sequence_nr())  # noqa: SLF001
            self.growth.setdefault(layer, Growth(largest)).add(largest)

    def _record(
        self,
        func: Any,
        name: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        bad: tuple[Tensor, int],
    ) -> None:
        tensor, found = bad
        operands = [a for a in tree_leaves((args, kwargs)) if isinstance(a, Tensor)]
        parents = [(self.source(o, state), state) for o in operands if (state := flags(o))]
        if is_training_norm(name, args):
            parents = [p for p in parents if not (isinstance(p[0], Leaf) and p[0].kind == "buffer")]
        if len(parents) == 1 and is_view(func) and isinstance(parents[0][0], Birth):
            self.births.append(parents[0][0])
            return
        node, layer = None, self._layer()
        if self.phase == "backward":
            node = torch._C._current_autograd_node()  # noqa: SLF001
        if node is not None:
            layer = self._node_layer(node._sequence_nr())  # noqa: SLF001
        birth = Birth(
            self._index,
            bare(name),
            layer,
            self.phase,
            found,
            parents,
            keepalive=tensor.untyped_storage() if tensor.layout is torch.strided else tensor,
        )
        known = 0
        for parent, state in parents:
            if not is_thrown_away(birth, parent):
                known |= state
        # Of -Inf (a mask) exponentials make 0, never Inf.
        known &= ~NEGATIVE if birth.operation in EXPONENTIALS else ~0
        if (found & NAN and not known & NAN) or not known:
            scalars = [a for a in tree_leaves((args, kwargs)) if isinstance(a, float)]
            birth.is_deliberate = not found & NAN and any(
                s in (torch.inf, -torch.inf) for s in scalars
            )
            if not birth.is_deliberate:
                birth.verdict = self._judge(func, birth, args, kwargs, tensor, node)
        elif not found & NAN:
            birth.is_deliberate = all(is_deliberate(p, birth.operation) for p, _ in parents)
        self.births.append(birth)

    def _judge(
        self,
        func: Any,
        birth: Birth,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        out: Tensor,
        node: Any,
    ) -> Verdict | None:
        if node is not None:
            return self._judge_node(birth.operation, node, in_order(args, kwargs), out)
        arguments = in_order(args, kwargs)
        if is_half_overflow(func, args, kwargs, out) and birth.operation not in {
            "div",
            "reciprocal",
            "rsqrt",
        }:
            verdict = judge(birth.operation, arguments, out)
            if verdict is None or verdict.mechanism not in {"exp_overflow", "half_overflow"}:
                verdict = overflow(birth.operation, arguments, out)
            return self._refine(verdict, arguments)
        verdict = judge(birth.operation, arguments, out)
        if verdict is None:
            state = 0
            for a in arguments:
                state |= flags(a) if isinstance(a, Tensor) else 0
            verdict = (
                _meeting(birth.operation, out)
                if state
                else overflow(birth.operation, arguments, out)
            )
        return self._refine(verdict, arguments)

    def _judge_node(
        self, name: str, node: Any, arguments: list[Any], out: Tensor
    ) -> Verdict | None:
        if is_custom(node):
            name = node._forward_cls.__name__  # noqa: SLF001
            made = describe_nonfinite(out)[0]
            words = f"the backward of custom function {name} made {made} of a finite gradient"
            return Verdict(
                name, "custom_backward", words, "custom_backward_wrong", 0.8, extent(out)
            )
        one = read(node, self._paths(node))
        verdict = judge_backward(one) or judge_hidden(one, judge(name, arguments, out))
        return verdict or overflow(f"{one.operation} (backward)", arguments, out)

    def _paths(self, node: Any) -> Paths:
        return tuple(path for root in self.roots for path in masks_above(root, node))

    def _refine(self, verdict: Verdict | None, arguments: Sequence[Any]) -> Verdict | None:
        """Look at how an offending 0 was made: rounded off in half, or a standard deviation."""
        if verdict is not None and verdict.mechanism in {"overflow", "half_overflow"} and arguments:
            return self._refine_overflow(verdict, arguments[0])
        if verdict is None or verdict.cause not in {"division_by_zero", "log_of_nonpositive"}:
            return verdict
        place = 1 if verdict.operation == "div" else 0
        if place >= len(arguments) or not isinstance(arguments[place], Tensor):
            return verdict
        chain = self._chain(arguments[place])
        if any(call.out.dtype in HALF and was_rounded_off(call) for call in chain):
            words = f"{verdict.argument}: too small for {str(chain[0].out.dtype)[6:]}, rounded to 0"
            return Verdict(
                verdict.operation,
                "half_underflow",
                words,
                "half_precision_underflow",
                0.8,
                verdict.figures,
            )
        deviation = next(
            (c for c in chain if c.name in {"std", "var", "std_mean", "var_mean"}), None
        )
        if deviation is not None and verdict.operation == "div":
            words = f"{verdict.argument}: a standard deviation of 0, the feature is constant"
            return Verdict(
                "div", verdict.mechanism, words, "zero_variance_feature", 0.7, verdict.figures
            )
        return verdict

    def _refine_overflow(self, verdict: Verdict, argument: Any) -> Verdict:
        """Tell a sum of exponentials that overflows from other overflows."""
        chain = (
            self._chain(argument)
            if isinstance(argument, Tensor) and verdict.operation in SUMS
            else []
        )
        if not any(call.name in {"exp", "exp_", "exp2"} for call in chain):
            return verdict
        words = f"{verdict.argument} (a sum of exponentials)"
        if verdict.mechanism == "half_overflow":
            return Verdict(
                "exp", "exp_overflow", words, "half_precision_overflow", 0.7, verdict.figures
            )
        return Verdict("exp", "exp_overflow", words, "exp_overflow", 0.9, verdict.figures)

    def _chain(self, tensor: Tensor) -> list[Call]:
        chain, address = [], address_of(tensor)
        for call in reversed(self._window):
            if address_of(call.out) == address:
                chain.append(call)
                sources = [a for a in call.args if isinstance(a, Tensor)]
                if not sources:
                    break
                address = address_of(sources[0])
        return chain

    def _copied(self, args: tuple[Any, ...], written: Sequence[Tensor]) -> tuple[Any, ...]:
        """Copy what the operation will overwrite; remember which tensor each copy stands for."""
        ids = {id(t) for t in written}
        copies = []
        for value in args:
            is_written = isinstance(value, Tensor) and id(value) in ids
            copy = value.detach().clone() if is_written else value
            if is_written and value.layout is torch.strided:
                self._stands_for[address_of(copy)] = address_of(value)
            copies.append(copy)
        return tuple(copies)

    def _guard(self, written: Sequence[Tensor]) -> None:
        for tensor in written:
            address = address_of(tensor)
            if address in self._guarded and address not in self._copies:
                whole = self._guarded[address]
                self._copies[address] = (whole, whole.detach().clone())


def _meeting(name: str, out: Tensor) -> Verdict:
    words = f"{name} met infinities it cannot combine (inf - inf, 0 * inf or inf / inf)"
    return Verdict(name, "infinities_meet", words, None, 0.5, describe_nonfinite(out)[1])


@contextlib.contextmanager
def watching(mode: Provenance) -> Iterator[Provenance]:
    """Run a block under the mode and restore what it guards, whatever happens."""
    try:
        with mode:
            yield mode
    finally:
        mode.restore()
