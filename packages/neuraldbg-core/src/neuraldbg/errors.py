# SPDX-License-Identifier: MIT
"""The exceptions that a caller can act on."""

from __future__ import annotations


class NeuralDbgError(Exception):
    """Base of every error that NeuralDBG raises on purpose."""


class UnknownNameError(NeuralDbgError, ValueError):
    """A failure type, event type, state or layer that does not exist; names the nearest ones."""


class TraceError(NeuralDbgError):
    """A trace file cannot be used: missing, foreign, newer or damaged."""


class PluginError(NeuralDbgError):
    """A plugin failed and `strict_plugins=True` was asked for."""


class UsageError(NeuralDbgError):
    """A call that cannot work, such as entering a closed session."""
