# SPDX-License-Identifier: MIT
"""pytest fixtures for authors of plugins. None is autouse, and loading this costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from neuraldbg.plugins import PluginHost
    from neuraldbg.schema.run import RunInfo
    from neuraldbg.trace import Trace


@pytest.fixture
def neuraldbg_run() -> RunInfo:
    """Return the description of a small run: `neuraldbg.testing.make_run()`."""
    from neuraldbg.testing import make_run

    return make_run()


@pytest.fixture
def neuraldbg_recorded() -> Callable[[str], Trace]:
    """Return `neuraldbg.testing.recorded_run`: the trace of a named run."""
    from neuraldbg.testing import recorded_run

    return recorded_run


@pytest.fixture
def neuraldbg_host() -> Callable[..., PluginHost]:
    """Return what makes a strict host of the plugins given by name, and of no installed one."""
    from neuraldbg.plugins import PluginHost

    def make(**plugins: object) -> PluginHost:
        return PluginHost(is_strict=True, plugins=plugins, discover=False, disabled="")

    return make
