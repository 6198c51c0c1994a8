# SPDX-License-Identifier: LicenseRef-Proprietary
"""The engine's hook implementations, registered under the entry point `engine`.

The reasoning of this edition arrives in a later release. Until then every hook
returns None, which leaves the answer to the next implementation: the heuristics
of the core package.
"""

from __future__ import annotations

import pluggy

hookimpl = pluggy.HookimplMarker("neuraldbg")


@hookimpl
def neuraldbg_reason(trace: object) -> None:
    """Leave the ranking of hypotheses for `trace` to core's heuristics."""


@hookimpl
def neuraldbg_couplings(trace: object, window: int) -> None:
    """Leave the pairing of failures in `trace`, `window` steps apart, to core's heuristics."""
