# SPDX-License-Identifier: MIT
"""Promise 4 in one decorator: what fails inside is reported, switched off, and never raised."""

from __future__ import annotations

import functools
import signal
import threading
import traceback
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.capture.closing import Steps

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound="Steps")


def contained(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], R | None]:
    """Keep every failure inside: report it, switch the recorder off, never raise into training."""

    @functools.wraps(method)
    def guarded(self: S, *args: P.args, **kwargs: P.kwargs) -> R | None:
        if self.is_off or self.microscope.is_examining:
            return None
        try:
            if self.lean.quick.is_on and threading.get_ident() == self.thread:
                self.lean.quick.spill()
            return method(self, *args, **kwargs)
        except Exception as error:  # promise 4: nothing of ours breaks training
            if is_of_signal(error):
                raise
            switch_off(self, method.__name__, error)
            return None

    return cast("Callable[Concatenate[S, P], R | None]", guarded)


def is_of_signal(error: BaseException) -> bool:
    """Whether it was raised by the user's handler of a signal, which came while ours was running.

    It is meant for the user's loop: a time limit, a request to stop.
    """
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    codes = {getattr(handler, "__code__", None) for handler in handlers} - {None}
    frames = traceback.walk_tb(error.__traceback__)
    return any(frame.f_code in codes for frame, _ in frames)


def switch_off(steps: Steps, where: str, error: Exception) -> None:
    """Hear nothing any more, as `where` failed, and say so."""
    steps.is_off = True
    steps.board.is_on = False
    steps.on_failure(where, error)
