# SPDX-License-Identifier: MIT
"""Capture: the only floor that touches torch. It measures a run without changing it."""
