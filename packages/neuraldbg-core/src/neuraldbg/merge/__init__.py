# SPDX-License-Identifier: MIT
"""The traces of several ranks as one ordinary trace."""

from __future__ import annotations

from neuraldbg.merge.files import merge_files
from neuraldbg.merge.notes import with_ranks

__all__ = ["merge_files", "with_ranks"]
