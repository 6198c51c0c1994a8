# SPDX-License-Identifier: MIT
"""Plugins: found by entry points, called under guard, and survived."""

from __future__ import annotations

from neuraldbg.plugins.failure import PluginFailure
from neuraldbg.plugins.host import PluginDescription, PluginHost
from neuraldbg.plugins.runner import DetectorRunner

__all__ = ["DetectorRunner", "PluginDescription", "PluginFailure", "PluginHost"]
