# SPDX-License-Identifier: MIT
"""`python -m neuraldbg` is `neuraldbg`."""

from neuraldbg.cli import main

if __name__ == "__main__":
    main()
