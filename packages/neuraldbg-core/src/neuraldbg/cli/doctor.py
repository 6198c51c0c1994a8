# SPDX-License-Identifier: MIT
"""What `neuraldbg doctor` looks at: versions, plugins, and hooks left in torch."""

from __future__ import annotations

import os
import platform
import sqlite3
import sys
from dataclasses import dataclass, field
from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from neuraldbg import __version__
from neuraldbg.plugins import PluginDescription, PluginHost

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PACKAGES = ("neuraldbg-engine", "torch", "numpy", "pydantic", "pluggy", "rich")
HOOK_TABLES = {
    "torch.nn.modules.module": (
        "_global_forward_hooks",
        "_global_forward_pre_hooks",
        "_global_backward_hooks",
        "_global_backward_pre_hooks",
        "_global_module_registration_hooks",
        "_global_parameter_registration_hooks",
        "_global_buffer_registration_hooks",
    ),
    "torch.optim.optimizer": ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"),
}
"""Where torch keeps hooks that act on every module or optimizer of the process."""


@dataclass
class Findings:
    """What was looked at, and what is wrong with it."""

    versions: dict[str, str | None] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    plugins: list[PluginDescription] = field(default_factory=list)
    hooks: dict[str, int] = field(default_factory=dict)
    devices: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return vars(self) | {"plugins": [each._asdict() for each in self.plugins]}

    def lines(self) -> Iterator[str]:
        """Yield everything, one fact per line, problems last."""
        for name, version in self.versions.items():
            yield f"{name:<17} {version or 'not installed'}"
        yield f"{'devices':<17} {', '.join(self.devices) or 'not known'}"
        for name, value in self.variables.items():
            yield f"{name} = {value!r}"
        yield "plugins:"
        yield from (f"  {line}" for line in plugin_lines(self.plugins))
        live = {name: count for name, count in self.hooks.items() if count}
        yield f"global torch hooks in this process: {live or 'none'}"
        yield from (f"PROBLEM: {problem}" for problem in self.problems)
        if not self.problems:
            yield "no problem found"


def examine() -> Findings:
    """Look at this installation. Loads plugins and torch, as a watched run would."""
    findings = Findings()
    findings.versions = {"python": platform.python_version(), "neuraldbg": __version__}
    findings.versions |= {name: _version(name) for name in PACKAGES}
    findings.versions["sqlite"] = sqlite3.sqlite_version
    findings.variables = {
        name: value for name, value in os.environ.items() if name.startswith("NEURALDBG_")
    }
    findings.plugins = PluginHost().describe()
    findings.problems += [
        f"plugin {each.name!r} is off: {each.error}"
        for each in findings.plugins
        if each.state == "off"
    ]
    try:
        _look_into_torch(findings)
    except Exception as error:  # noqa: BLE001  # a broken torch is a finding, not a crash
        findings.problems.append(f"torch cannot be imported: {error!r}")
    return findings


def plugin_lines(found: Sequence[PluginDescription]) -> list[str]:
    """Return a line for each plugin: name, state, where it comes from, hooks, error."""
    width = max((len(each.name) for each in found), default=0)
    lines = []
    for each in found:
        origin = f"{each.distribution} {each.version}".strip() or "no distribution"
        error = f": {' '.join(each.error.split())}" if each.error else ""
        hooks = ", ".join(hook.removeprefix("neuraldbg_") for hook in each.hooks) or "no hooks"
        lines.append(f"{each.name:<{width}}  {each.state:<8}  {origin} ({hooks}){error}")
    return lines or ["none found"]


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _look_into_torch(findings: Findings) -> None:
    torch = import_module("torch")
    findings.versions["torch"] = str(torch.__version__)
    if torch.cuda.is_available():
        count = torch.cuda.device_count()
        findings.devices = [torch.cuda.get_device_name(index) for index in range(count)]
    else:
        findings.devices = ["cpu"]
    for module, names in HOOK_TABLES.items():
        home = sys.modules.get(module) or import_module(module)
        for name in names:
            table = getattr(home, name, None)
            if table is not None:
                findings.hooks[name.removeprefix("_global_")] = len(table)
    left = sum(findings.hooks.values())
    if left:
        findings.problems.append(
            f"{left} global torch hooks are live although no run is being watched: a plugin that "
            "was loaded, or torch itself, has set them"
        )
