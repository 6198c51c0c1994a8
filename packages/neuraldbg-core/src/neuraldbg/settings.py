# SPDX-License-Identifier: MIT
"""Thresholds and switches of one session."""

from __future__ import annotations

from pydantic import Field

from neuraldbg.schema.run import Frozen


class Settings(Frozen):
    """What a session was asked to do; stored in the trace, so offline runs use the same."""

    threshold_vanishing: float = Field(default=1e-6, gt=0)
    """L2 gradient norm below which a state is VANISHING (public 1.x default; classifies only)."""
    threshold_exploding: float = Field(default=1e3, gt=0)
    """L2 gradient norm above which a state is EXPLODING (public 1.x default; classifies only)."""
    overhead: float = Field(default=0.05, gt=0, le=1)
    """Share of the step time that watching may take."""
    sync: bool = False
    """Whether to wait for the accelerator on each step, so that the failing step is re-run."""
    strict_plugins: bool = False
    frozen: tuple[str, ...] = ()
    """Path prefixes of layers that are frozen on purpose."""
