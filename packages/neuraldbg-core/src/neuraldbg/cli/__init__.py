# SPDX-License-Identifier: MIT
"""The command line: `neuraldbg explain | report | export | watch | merge | plugins | doctor`.

Exit codes: 0 done; 1 a failure was found (`explain --exit-code`) or something is wrong
(`doctor`); 2 the command was not understood, or a name does not exist; 3 a trace cannot be used;
4 anything else that a message explains, such as a file that cannot be written.
"""

from __future__ import annotations

import contextlib
import io
import sys

from neuraldbg.cli.commands import neuraldbg


def main() -> None:
    """Run the command line of this process, and exit."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that cannot show a character gets a question mark, not a traceback.
            with contextlib.suppress(ValueError, OSError):
                stream.reconfigure(errors="replace")
    neuraldbg(prog_name="neuraldbg")


__all__ = ["main", "neuraldbg"]
