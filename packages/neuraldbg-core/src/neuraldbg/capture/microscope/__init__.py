# SPDX-License-Identifier: MIT
"""The numerics microscope: names the operation in which a NaN or Inf was born, on that very step.

A session drives it: `begin_forward` / `end_forward` around each outermost training forward,
`before_backward` when the loss is known, `examine_gradients` when a gradient is not finite and the
weights have not moved yet, `after_step` when an optimizer stepped, `examine_exception` when the
user's code raised, `end_step` when the step is over. Every method returns what was found; none
raises, and all of them return at once on a healthy step.
"""

from __future__ import annotations

from neuraldbg.capture.microscope.session import Microscope

__all__ = ["Microscope"]
