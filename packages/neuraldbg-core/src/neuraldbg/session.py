# SPDX-License-Identifier: MIT
"""`NeuralDbg`: one watched run, and every question that can be put to it."""

from __future__ import annotations

import contextlib
import datetime as dt
import difflib
import logging
import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import torch
from pydantic import ValidationError
from torch import nn

import neuraldbg
from neuraldbg.capture import ranks
from neuraldbg.capture.layers import named_modules, plain_path, unwrap
from neuraldbg.capture.recorder import Recorder
from neuraldbg.errors import PluginError, UsageError
from neuraldbg.inquiry import Inquiry
from neuraldbg.plugins import DetectorRunner, PluginHost
from neuraldbg.schema.run import RunInfo
from neuraldbg.schema.vocabulary import Severity
from neuraldbg.settings import Settings
from neuraldbg.trace import Trace, TraceWriter

if TYPE_CHECKING:
    from types import TracebackType

    from neuraldbg.capture.quick import Quick
    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.facts import StepFacts
    from neuraldbg.schema.thinned import ThinnedSteps

logger = logging.getLogger("neuraldbg")

LARGEST_LABEL = 2**53
"""Labels are exact in a float64, and so in every file that holds them."""


class NeuralDbg(Inquiry):
    """Watches the training of a model, or of several, from inside a `with` block.

    Steps count themselves: one ends when an optimizer that owns watched parameters steps. Nothing
    is changed: the same seed gives bit-equal weights with and without it, and leaving the block
    removes every hook.

    Args:
        model: The module that is trained, or several by name, `{"G": generator, "D": critic}`.
            Paths of their layers are then prefixed `G.` and `D.`.
        trace: File to record to, None for memory. It survives a killed process.
        overhead: Share of the step time that watching may take; taps thin out beyond it.
        threshold_vanishing: L2 gradient norm that counts as VANISHING. Classifies only.
        threshold_exploding: L2 gradient norm that counts as EXPLODING. Classifies only.
        sync: Wait for the accelerator on each step, so that a failing step is re-run before its
            weights move. On the CPU nothing is waited for.
        strict_plugins: Raise `PluginError` where a plugin fails, instead of switching it off.
        frozen: Path prefixes of layers that are frozen on purpose.

    Raises:
        TypeError: `model` is neither a module nor a mapping of names to modules.
        UsageError: There is no module to watch, an option is out of its range, `frozen` names no
            layer, or the session is entered twice.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(4, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> with NeuralDbg(model) as dbg:
        ...     for _ in range(3):
        ...         loss = model(torch.ones(8, 4)).pow(2).mean()
        ...         optimizer.zero_grad()
        ...         loss.backward()
        ...         optimizer.step()
        ...         dbg.record_loss(loss)
        >>> dbg
        <NeuralDbg: 3 steps, no failure found>
    """

    def __init__(
        self,
        model: nn.Module | Mapping[str, nn.Module],
        *,
        trace: str | os.PathLike[str] | None = None,
        overhead: float = 0.05,
        threshold_vanishing: float = 1e-6,
        threshold_exploding: float = 1e3,
        sync: bool = False,
        strict_plugins: bool = False,
        frozen: tuple[str, ...] | str = (),
    ) -> None:
        settings = _settings(
            threshold_vanishing=threshold_vanishing,
            threshold_exploding=threshold_exploding,
            overhead=overhead,
            sync=sync,
            strict_plugins=strict_plugins,
            frozen=(frozen,) if isinstance(frozen, str) else tuple(frozen),
        )
        if not isinstance(trace, str | os.PathLike | None):
            message = f"trace must be a path or None, not {trace!r}"
            raise TypeError(message)
        self._settings = settings
        self._models = _by_name(model)
        _check_frozen(self._models, settings.frozen)
        self._path = trace
        self._is_open = False
        self._is_done = False
        self._recorder: Recorder | None = None
        self._quick: Quick | None = None
        self._writer: TraceWriter | None = None
        self._runner: DetectorRunner | None = None
        self._composites: list[nn.Module] = []
        host = PluginHost(is_strict=strict_plugins)
        rank, world_size = ranks.place()
        self._run = RunInfo(
            neuraldbg_version=neuraldbg.__version__,
            torch_version=torch.__version__,
            created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            rank=rank,
            world_size=world_size,
            models=tuple(self._models),
        )
        self._idle = TraceWriter.open(None, self._run, settings)
        super().__init__(self._idle.as_trace(), host)

    # -- the block ---------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._is_open or self._is_done:
            state = "still open" if self._is_open else "closed"
            message = f"this session is {state}: make a new NeuralDbg for another run"
            raise UsageError(message)
        self._is_open = True
        try:
            self._begin()
        except (PluginError, UsageError):
            self._is_open = False
            raise
        except Exception as error:  # noqa: BLE001 - promise 4: training goes on unwatched
            self._abandon(error)
        return self

    def _begin(self) -> None:
        rank, world_size = ranks.place()  # the processes may have joined since
        self._run = self._run.model_copy(update={"rank": rank, "world_size": world_size})
        recorder = Recorder(
            self._models,
            self._settings,
            self._run,
            self._on_step,
            self._on_thinned,
            self._on_failure,
        )
        self._recorder, self._quick = recorder, recorder.lean.quick
        self._writer = TraceWriter.open(self._path, recorder.run, self._settings)
        self._writer.before_reading = recorder.catch_up
        self._idle.finish(None)
        self._trace = self._writer.as_trace()
        self._runner = DetectorRunner(self.host, recorder.run, self._settings)
        self.host.run_started(recorder.run)
        recorder.attach()

    def _abandon(self, error: Exception) -> None:
        """Watch nothing: what failed while the session opened must not cost the run."""
        sentence = (
            f"NeuralDBG could not start and does not watch this run: {error!r}. "
            "Training goes on unchanged."
        )
        logger.error(sentence, exc_info=error)
        recorder, self._recorder, self._quick = self._recorder, None, None
        if recorder is not None:
            with contextlib.suppress(Exception):
                recorder.detach()
        writer = self._writer or self._idle
        with contextlib.suppress(Exception):
            writer.write_run(self._run.model_copy(update={"warnings": (sentence,)}))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        recorder, writer = self._recorder, self._writer
        self._is_open, self._is_done = False, True
        try:
            if recorder is not None:
                if isinstance(error, Exception):
                    recorder.examine_exception(error)
                recorder.finish(has_error=error is not None)
        finally:
            if recorder is not None:
                recorder.detach()
            self._recorder = self._quick = None
            if writer is not None:
                writer.before_reading = _nothing
                self._finish(writer, error)

    def _finish(self, writer: TraceWriter, error: BaseException | None) -> None:
        try:
            if self._runner is not None:
                self._publish(self._runner.on_finish(), writer)
            writer.finish(error)
            self.host.run_finished(self.trace)
        except PluginError:
            if error is None:
                raise
        except Exception:  # the user's exception, or the run's result, matters more
            logger.exception("the trace could not be completed")

    # -- what the user says --------------------------------------------------------------------

    def record_loss(self, value: Any, name: str = "loss") -> None:
        """Record the loss of the current step, before or after its optimizer stepped.

        Args:
            value: A number, a tensor with one element (on any device, with or without a graph) or
                anything that `float()` takes. NaN and Inf are recorded as such. A tensor with
                several elements counts with its mean.
            name: Of this loss, where several are recorded.

        Raises:
            TypeError: `value` is no number.
        """
        quick = self._quick
        is_plain = type(value) is float and name == "loss"
        if is_plain and quick is not None and quick.is_on and quick.record(value, name):
            return
        number, name = self._figure(value), _name(name)
        if self._recorder is not None:
            if quick is not None and quick.is_on and quick.record(number, name):
                return
            tensor = value if isinstance(value, torch.Tensor) else None
            self._recorder.record_loss(number, name, tensor)

    def record_metric(self, name: str, value: Any) -> None:
        """Record a metric of the current step, such as an accuracy; see `record_loss`."""
        number, name = self._figure(value), _name(name)
        if self._recorder is not None:
            self._recorder.record_metric(number, name)

    def _figure(self, value: Any) -> Any:
        """Return a number, or what will be one where reading it would wait for the device."""
        recorder = self._recorder
        is_plain = not isinstance(value, torch.Tensor) or value.is_complex()
        if recorder is None or is_plain or not recorder.readback.is_late or not value.numel():
            return _number(value)
        return recorder.readback.number(_whole(value.detach()))

    @property
    def step(self) -> int:
        """Label of the step that is open or has just been made; settable, counts from 0."""
        if self._recorder is not None:
            return self._recorder.current
        return self.trace.last_step or 0

    @step.setter
    def step(self, value: int) -> None:
        if abs(int(value)) > LARGEST_LABEL:
            message = f"step={value!r} is no label of a training step"
            raise UsageError(message)
        if self._recorder is not None:
            self._recorder.relabel(int(value))

    def step_iteration(self) -> None:
        """Say that an iteration is over; needed only where no optimizer of torch steps."""
        if self._recorder is not None:
            self._recorder.close()

    def register_composite_hook(self, module: nn.Module) -> None:
        """Also watch a module that the model does not register, under its class name.

        Raises:
            UsageError: The block was already entered.
        """
        if not isinstance(module, nn.Module):
            message = f"expected a torch.nn.Module, not {module!r}"
            raise TypeError(message)
        if self._is_open or self._is_done:
            message = "register_composite_hook must be called before the with block is entered"
            raise UsageError(message)
        known = {id(m) for model in self._models.values() for m in model.modules()}
        if id(module) in known:
            return
        name = type(module).__name__
        free = next(
            n for n in (name, *(f"{name}{i}" for i in range(2, 10_000))) if n not in self._models
        )
        self._models[free] = module

    # -- inside --------------------------------------------------------------------------------

    def _on_step(self, facts: StepFacts) -> bool:
        """Judge and record one closed step; return whether it raised an alarm."""
        writer, runner = self._writer, self._runner
        if writer is None or runner is None:
            return False
        writer.write_step(facts)
        return self._publish(runner.on_step(facts), writer)

    def _on_thinned(self, steps: ThinnedSteps) -> bool:
        """Judge and record steps in bulk, as `_on_step` does."""
        writer, runner = self._writer, self._runner
        if writer is None or runner is None:
            return False
        events = runner.on_thinned(steps)
        writer.write_thinned(steps, is_exact=bool(events))
        return self._publish(events, writer)

    def _publish(self, events: list[SemanticEvent], writer: TraceWriter) -> bool:
        for event in events:
            writer.write_event(event)
            self.host.event(event)
        fresh = self._runner.fresh if self._runner is not None else ()
        return any(event.severity is not Severity.INFO for event in fresh)

    def _on_failure(self, where: str, error: Exception) -> None:
        if isinstance(error, PluginError):
            raise error
        sentence = (
            f"NeuralDBG failed in {where!r} and watches no further in this run: {error!r}. "
            "Training goes on unchanged."
        )
        logger.error(sentence, exc_info=error)
        if self._writer is not None and self._recorder is not None:
            run = self._recorder.run
            self._recorder.run = run.model_copy(update={"warnings": (*run.warnings, sentence)})
            self._writer.write_run(self._recorder.run)

    def __deepcopy__(self, memo: dict[int, Any]) -> None:
        """A copied model must not bring a second session with it."""

    @property
    def trace(self) -> Trace:
        """What was recorded so far."""
        return self._trace


def _nothing() -> None:
    """There is nothing to hand over any more."""


def _settings(**options: Any) -> Settings:
    try:
        return Settings(**options)
    except ValidationError as error:
        wrong = error.errors()[0]
        name = ".".join(str(part) for part in wrong["loc"])
        message = f"{name}={wrong['input']!r} cannot be used: {wrong['msg'].lower()}"
        raise UsageError(message) from None


def _check_frozen(models: Mapping[str, nn.Module], frozen: tuple[str, ...]) -> None:
    """Refuse a path that names no module and no parameter: a typing error would hide a fault."""
    known = [
        ".".join(part for part in (name, path) if part)
        for name, model in models.items()
        for path in _paths(unwrap(model))
    ]
    for path in frozen:
        if path not in known:
            near = difflib.get_close_matches(path, known, n=3)
            hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else ""
            message = f"frozen={path!r} names no layer of the watched models{hint}"
            raise UsageError(message)


def _paths(model: nn.Module) -> list[str]:
    """Return the paths of every module and parameter, with and without those of wrappers."""
    found = [path for path, _ in [*model.named_modules(), *model.named_parameters()]]
    found += map(plain_path, list(found))
    return list(dict.fromkeys([*found, *(path for path, _ in named_modules(model))]))


def _by_name(model: Any) -> dict[str, nn.Module]:
    if isinstance(model, nn.Module):
        return {"": model}
    members = list(model.values()) if isinstance(model, Mapping) else [model]
    if not all(isinstance(member, nn.Module) for member in members):
        message = f"expected a torch.nn.Module or a mapping of names to modules, not {model!r}"
        raise TypeError(message)
    if not model:
        message = "there is no model to watch: the mapping is empty"
        raise UsageError(message)
    return {str(name): module for name, module in model.items()}


def _name(name: str) -> str:
    """Return the name of a loss or metric as text that any file can hold."""
    if not isinstance(name, str):
        message = f"the name of a loss or metric is a string, not {name!r}"
        raise TypeError(message)
    return name.encode("utf-8", "backslashreplace").decode()


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with one element: this one, or its mean."""
    return tensor if tensor.numel() == 1 else tensor.float().mean()


def _number(value: Any) -> float:
    """Return what was recorded as a number; say what could have been recorded where it is none."""
    try:
        if not isinstance(value, torch.Tensor):
            return float(value.item() if getattr(value, "size", None) == 1 else value)
        if value.numel() == 1:
            return float(value.item())
        return float(_whole(value.detach())) if value.numel() else math.nan
    except (TypeError, ValueError, RuntimeError):
        hint = ": does the function that computes it return it?" if value is None else ""
        message = f"a loss or metric is a number or a real tensor, not {value!r}{hint}"
        raise TypeError(message) from None
