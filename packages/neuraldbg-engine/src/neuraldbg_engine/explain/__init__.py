# SPDX-License-Identifier: LicenseRef-Proprietary
"""A trace in, ranked and calibrated hypotheses out, in the words of the user's own layers."""

from __future__ import annotations

from neuraldbg_engine.explain.verdict import Verdict, explain

__all__ = ["Verdict", "explain"]
