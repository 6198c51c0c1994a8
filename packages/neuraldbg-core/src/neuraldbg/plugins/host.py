# SPDX-License-Identifier: MIT
"""`PluginHost`: the only place that touches pluggy. Every call of a plugin is guarded."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import pluggy

from neuraldbg import hookspecs
from neuraldbg.causes import Cause, Vocabulary, vocabulary
from neuraldbg.errors import PluginError
from neuraldbg.plugins import loading
from neuraldbg.plugins.failure import FailureLog, PluginFailure
from neuraldbg.schema.hypotheses import CausalHypothesis, Coupling
from neuraldbg.schema.vocabulary import EventType

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import click

    from neuraldbg.detector import Detector
    from neuraldbg.report.reporter import Reporter
    from neuraldbg.schema.events import SemanticEvent
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.trace import Trace

T = TypeVar("T")

DISABLE = "NEURALDBG_DISABLE_PLUGINS"
"""Environment variable: names of plugins not to load, or `all`, which spares the built-ins."""


class PluginDescription(NamedTuple):
    """One line of `neuraldbg plugins`."""

    name: str
    distribution: str
    """Name of the distribution; empty where it came without one."""
    version: str
    hooks: tuple[str, ...]
    state: str
    """`on`, `off` (it failed) or `disabled` (by the environment variable)."""
    error: str | None
    """Why it is off, or which of its detectors are."""


class PluginHost:
    """Finds plugins, calls their hooks one by one, and survives what they do.

    A plugin that fails is named once in the log of `neuraldbg`, switched off, and kept in
    `failures`; nothing it raises reaches the caller.

    Args:
        is_strict: Whether a failure raises `PluginError` instead, also while loading.
        plugins: Further plugins by name, for tests and for use without an entry point.
        discover: Whether installed plugins are looked for.
        disabled: Names not to load, comma-separated, or `all`; None: as the environment says.
    """

    def __init__(
        self,
        *,
        is_strict: bool = False,
        plugins: Mapping[str, object] | None = None,
        discover: bool = True,
        disabled: str | None = None,
    ) -> None:
        self._log = FailureLog(is_strict=is_strict)
        self._off: set[str] = set()
        self._told: set[str] = set()
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._found: dict[str, loading.Found] = {}
        self._disabled = loading.Disabled(
            os.environ.get(DISABLE, "") if disabled is None else disabled
        )
        for found in loading.find(plugins or {}, discover=discover):
            self._load(found)

    def _load(self, found: loading.Found) -> None:
        if found.name in self._found:
            first = self._found[found.name].origin
            error = ValueError(f"the name is taken by {first}; {found.origin} is not loaded")
            self._log.add(found.name, "load", error)
            return
        self._found[found.name] = found
        if self._disabled.has(found):
            return
        try:
            plugin = found.load()
            loading.register(self._manager, plugin, found.name)
        except PluginError:
            raise
        except Exception as error:  # noqa: BLE001 - the code of others may raise anything
            self._fail(found.name, "load", error)

    def _fail(self, plugin: str, place: str, error: Exception) -> None:
        self._off.add(plugin)
        self._log.add(plugin, place, error)

    def detector_failed(self, plugin: str, detector: str, place: str, error: Exception) -> None:
        """Keep and log that one detector is off; the plugin's other hooks stay on.

        Raises:
            PluginError: The host is strict.
        """
        self._log.add(plugin, place, error, detector)

    @property
    def is_strict(self) -> bool:
        """Whether a failure raises."""
        return self._log.is_strict

    @property
    def failures(self) -> tuple[PluginFailure, ...]:
        """What was switched off so far, in order."""
        return tuple(self._log.failures)

    # -- calling ---------------------------------------------------------------------------

    def _implementers(self, hook: str) -> list[str]:
        """Return the names of the plugins that implement `hook` and are on.

        In loading order, but for those that ask pluggy for `tryfirst` (last) or `trylast` (first).
        """
        caller: pluggy.HookCaller = getattr(self._manager.hook, hook)
        names = dict.fromkeys(one.plugin_name for one in caller.get_hookimpls())
        return [name for name in names if name not in self._off]

    def _call(self, plugin: str, hook: str, **arguments: object) -> Any:
        """Call one plugin's implementation; return None where it fails."""
        others = [one for name, one in self._manager.list_name_plugin() if name != plugin]
        try:
            result = self._manager.subset_hook_caller(
                hook, [one for one in others if one is not None]
            )(**arguments)
        except PluginError:
            raise
        except Exception as error:  # noqa: BLE001 - the code of others may raise anything
            self._fail(plugin, hook, error)
            return None
        if isinstance(result, list) and not _is_first_result(hook):
            return result[0] if result else None
        return result

    def _collect(self, hook: str, check: Callable[[Any], None]) -> Iterator[tuple[str, Any]]:
        """Yield (plugin, thing) for what implementations of `hook` return and `check` accepts."""
        for plugin in self._implementers(hook):
            returned = self._call(plugin, hook)
            if returned is None:
                continue
            try:
                things = list(returned)
                for thing in things:
                    check(thing)
            except Exception as error:  # noqa: BLE001 - the code of others may raise anything
                self._fail(plugin, hook, error)
                continue
            yield from ((plugin, thing) for thing in things)

    def _first(self, hook: str, kind: type[T], **arguments: object) -> list[T] | None:
        for plugin in reversed(self._implementers(hook)):
            result = self._call(plugin, hook, **arguments)
            if result is None:
                continue
            if not isinstance(result, (list, tuple)):
                error = TypeError(f"returned {_short(result)}, not a list of {kind.__name__}")
            elif wrong := [one for one in result if not isinstance(one, kind)]:
                error = TypeError(f"returned {_short(wrong[0])} as a {kind.__name__}")
            else:
                return list(result)
            self._fail(plugin, hook, error)
        return None

    def _notify(self, hook: str, **arguments: object) -> None:
        for plugin in self._implementers(hook):
            self._call(plugin, hook, **arguments)

    # -- hooks -----------------------------------------------------------------------------

    def detectors(self) -> list[type[Detector]]:
        """Return detector classes, the built-in ones first."""
        return [detector for _, detector in self.owned_detectors()]

    def owned_detectors(self) -> list[tuple[str, type[Detector]]]:
        """Return (plugin, detector class), the built-in ones first; names are unique."""
        result: list[tuple[str, type[Detector]]] = []
        names: set[str] = set()
        for plugin, detector in self._collect("neuraldbg_detectors", check_detector_class):
            if detector.name in names:
                error = ValueError("another detector has this name already")
                self.detector_failed(plugin, detector.name, "neuraldbg_detectors", error)
            else:
                names.add(detector.name)
                result.append((plugin, detector))
        return result

    def causes(self) -> list[Cause]:
        """Return the causes that plugins add."""
        known = vocabulary()
        result = []
        for plugin, cause in self._collect("neuraldbg_causes", _check_cause):
            try:
                known = known.extended([cause])
            except Exception as error:  # noqa: BLE001 - the code of others may raise anything
                self._fail(plugin, "neuraldbg_causes", error)
            else:
                result.append(cause)
        return result

    def vocabulary(self) -> Vocabulary:
        """Return the vocabulary with the causes that plugins add."""
        return vocabulary().extended(self.causes())

    def reporters(self) -> list[type[Reporter]]:
        """Return reporter classes, the built-in ones first; names are unique."""
        result: dict[str, type[Reporter]] = {}
        for plugin, reporter in self._collect("neuraldbg_reporters", _check_reporter):
            if reporter.name in result:
                error = ValueError(f"the format {reporter.name!r} exists already")
                self._fail(plugin, "neuraldbg_reporters", error)
            else:
                result[reporter.name] = reporter
        return list(result.values())

    def interventions(self) -> list[type]:
        """Return the intervention classes that plugins add."""
        return [one for _, one in self._collect("neuraldbg_interventions", _check_class)]

    def commands(self, group: click.Group) -> None:
        """Let plugins add commands to `group`, under names that are free."""
        import click

        def register(command: click.Command) -> None:
            if not isinstance(command, click.Command):
                raise TypeError(f"register takes a click.Command, not {_short(command)}")
            if command.name is None or command.name in group.commands:
                raise ValueError(f"the command name {command.name!r} is taken")
            group.add_command(command)

        self._notify("neuraldbg_commands", register=register)

    def run_started(self, run: RunInfo) -> None:
        """Tell plugins that a run is being watched."""
        self._told.clear()
        self._notify("neuraldbg_run_started", run=run)

    def event(self, event: SemanticEvent) -> None:
        """Tell plugins of an event, once: one that was seen again is not passed on."""
        if self._implementers("neuraldbg_event") and event.id not in self._told:
            self._told.add(event.id)
            self._notify("neuraldbg_event", event=event)

    def run_finished(self, trace: Trace) -> None:
        """Tell plugins that the run has ended."""
        self._notify("neuraldbg_run_finished", trace=trace)

    def reason(self, trace: Trace) -> list[CausalHypothesis] | None:
        """Return the first plugin's hypotheses; None where no plugin answers."""
        if not self._implementers("neuraldbg_reason"):
            return None
        words = self.vocabulary()
        return self._first("neuraldbg_reason", CausalHypothesis, trace=trace, vocabulary=words)

    def couplings(self, trace: Trace, window: int) -> list[Coupling] | None:
        """Return the first plugin's couplings; None where no plugin answers."""
        return self._first("neuraldbg_couplings", Coupling, trace=trace, window=window)

    def describe(self) -> list[PluginDescription]:
        """Return every plugin that was found, in loading order."""
        result = []
        for name, found in self._found.items():
            errors = [str(one) for one in self._log.failures if one.plugin == name]
            if self._disabled.has(found):
                state = "disabled"
            else:
                state = "off" if name in self._off else "on"
            plugin = self._manager.get_plugin(name)
            callers = self._manager.get_hookcallers(plugin) if plugin is not None else None
            hooks = tuple(sorted({caller.name for caller in callers or ()}))
            error = "; ".join(errors) or None
            result.append(
                PluginDescription(name, found.distribution, found.version, hooks, state, error)
            )
        return result


def _is_first_result(hook: str) -> bool:
    options: dict[str, Any] = getattr(getattr(hookspecs, hook), f"{hookspecs.PROJECT}_spec")
    return bool(options.get("firstresult"))


def _short(thing: object) -> str:
    try:
        return repr(thing)[:80]
    except Exception:  # noqa: BLE001 - the code of others may raise anything
        return type(thing).__name__


def check_detector_class(thing: Any) -> None:
    """Refuse what does not have the shape of a detector class.

    Raises:
        TypeError: It has not; the message says what is missing.
    """
    _check_class(thing)
    name = getattr(thing, "name", None)
    if not isinstance(name, str) or not name.isidentifier() or not name.islower():
        raise TypeError(f"{thing.__name__}.name must be lower_snake_case, not {name!r}")
    types = getattr(thing, "event_types", None)
    if not isinstance(types, frozenset) or not all(isinstance(one, EventType) for one in types):
        raise TypeError(f"{thing.__name__}.event_types must be a frozenset of EventType")
    for method in ("on_step", "on_finish"):
        if not callable(getattr(thing, method, None)):
            raise TypeError(f"{thing.__name__} has no method {method!r}")


def _check_class(thing: object) -> None:
    if not isinstance(thing, type):
        raise TypeError(f"returned {_short(thing)}, not classes")


def _check_cause(thing: object) -> None:
    if not isinstance(thing, Cause):
        raise TypeError(f"returned {_short(thing)}, not causes")


def _check_reporter(thing: Any) -> None:
    _check_class(thing)
    for attribute in ("name", "suffix"):
        if not isinstance(getattr(thing, attribute, None), str):
            raise TypeError(f"{thing.__name__}.{attribute} must be a string")
    if not callable(getattr(thing, "render", None)):
        raise TypeError(f"{thing.__name__} has no method 'render'")
