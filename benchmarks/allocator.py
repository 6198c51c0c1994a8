# SPDX-License-Identifier: MIT
"""What glibc's allocator is told in processes that are measured."""

from __future__ import annotations

import os
import sys

KEEP = {
    "MALLOC_TRIM_THRESHOLD_": "4000000000",
    "MALLOC_MMAP_THRESHOLD_": "4000000000",
    "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
}
"""Where time is measured. Without the first two glibc gives memory back and asks for it again on
every step, and its page faults drown everything; without the third (glibc 2.35, elsewhere it does
nothing) small pages lie where there is room, and one of two identical processes is a quarter faster
than the other."""
GIVE_BACK = {"MALLOC_ARENA_MAX": "1", "MALLOC_TRIM_THRESHOLD_": "131072"}
"""Where memory over steps is measured: the opposite is wanted."""


def begin_with(settings: dict[str, str]) -> None:
    """Start this process anew where its allocator was not told so; before torch is imported."""
    if any(os.environ.get(name) != value for name, value in settings.items()):
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | settings)  # noqa: S606
