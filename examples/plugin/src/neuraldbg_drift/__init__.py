# SPDX-License-Identifier: MIT
"""A NeuralDBG plugin that watches how far weights drift from where they began."""
