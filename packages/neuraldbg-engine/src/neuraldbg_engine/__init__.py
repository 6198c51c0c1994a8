# SPDX-License-Identifier: LicenseRef-Proprietary
"""The causal engine of NeuralDBG: found by `neuraldbg` through its entry point."""

__all__ = ["__version__"]

__version__ = "2.0.0"
