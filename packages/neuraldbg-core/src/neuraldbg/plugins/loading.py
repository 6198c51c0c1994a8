# SPDX-License-Identifier: MIT
"""Finding plugins by their entry points, and refusing those that cannot work, by name."""

from __future__ import annotations

import contextlib
import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import neuraldbg
from neuraldbg import hookspecs
from neuraldbg.plugins.compatibility import unmet

if TYPE_CHECKING:
    import pluggy

BUILT_IN = {"builtin": "neuraldbg.detectors", "builtin_reports": "neuraldbg.report"}
"""Modules of this package that implement hooks like everybody else."""
HOOKS = sorted(name for name in vars(hookspecs) if name.startswith("neuraldbg_"))


@dataclass(frozen=True, slots=True)
class Found:
    """A plugin that is installed or given, and not loaded yet."""

    name: str
    origin: str
    """Where it comes from, in words."""
    load: Callable[[], object]
    distribution: str = ""
    version: str = ""
    is_built_in: bool = False


class Disabled:
    """Which plugins not to load: names separated by commas, or `all`."""

    def __init__(self, text: str) -> None:
        self._names = {name.strip() for name in text.split(",")} - {""}

    def has(self, found: Found) -> bool:
        """Whether `found` is not to be loaded."""
        return found.name in self._names or ("all" in self._names and not found.is_built_in)


def find(plugins: Mapping[str, object], *, discover: bool) -> Iterator[Found]:
    """Yield built-in plugins, then installed ones by name, then those in `plugins`."""
    for name, module in BUILT_IN.items():
        if find_spec(module) is not None:
            yield Found(
                name,
                f"module {module!r}",
                lambda module=module: importlib.import_module(module),  # type: ignore[misc]
                "neuraldbg",
                neuraldbg.__version__,
                is_built_in=True,
            )
    if discover:
        entries = metadata.entry_points(group=hookspecs.PROJECT)
        for entry in sorted(entries, key=lambda entry: (entry.name, entry.value)):
            yield _installed(entry)
    for name, plugin in plugins.items():
        yield Found(name, "a plugin given by the caller", lambda plugin=plugin: plugin)  # type: ignore[misc]


def _installed(entry: metadata.EntryPoint) -> Found:
    distribution, version, requirements = "", "", []
    # What a distribution says of itself is as unreliable as the rest of a plugin.
    with contextlib.suppress(Exception):
        if entry.dist is not None:
            distribution, version = entry.dist.name, entry.dist.version
            requirements = entry.dist.requires or []

    def load() -> object:
        if (requirement := unmet(requirements, neuraldbg.__version__)) is not None:
            raise ImportError(
                f"{distribution} {version} requires {requirement!r}, and this is neuraldbg "
                f"{neuraldbg.__version__}; upgrade {distribution}"
            )
        return entry.load()

    return Found(entry.name, f"entry point {entry.value!r}", load, distribution, version)


def register(manager: pluggy.PluginManager, plugin: object, name: str) -> None:
    """Register a loaded plugin, unless one of its hooks could never be called.

    Raises:
        pluggy.PluginValidationError: A hook takes an argument that does not exist.
        TypeError: A hook is misspelled, unmarked or a wrapper; the message has its name.
    """
    hash(plugin)  # pluggy keeps plugins in sets; one that cannot stand there would break the others
    for attribute in dir(plugin):
        if attribute.startswith(f"{hookspecs.PROJECT}_"):
            _check(attribute, inspect.getattr_static(plugin, attribute))
    try:
        manager.register(plugin, name=name)
    except Exception:
        with contextlib.suppress(Exception):
            manager.unregister(name=name)
        raise


def _check(name: str, implementation: Any) -> None:
    function = getattr(implementation, "__func__", implementation)
    options: dict[str, Any] | None = getattr(function, f"{hookspecs.PROJECT}_impl", None)
    if options is None:
        if name in HOOKS and callable(function):
            raise TypeError(f"{name!r} is not marked with @neuraldbg.hookimpl")
        return
    hook = options.get("specname") or name
    if hook not in HOOKS and not options.get("optionalhook"):
        near = get_close_matches(hook, HOOKS, n=1, cutoff=0.5)
        advice = f"did you mean {near[0]!r}?" if near else f"hooks are {', '.join(HOOKS)}"
        raise TypeError(f"there is no hook {hook!r}; {advice}")
    if options.get("hookwrapper") or options.get("wrapper"):
        raise TypeError(f"{name!r} is a wrapper; hooks are called one by one, without wrappers")
