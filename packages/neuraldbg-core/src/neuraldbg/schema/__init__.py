# SPDX-License-Identifier: MIT
"""The data contract: what a run, its facts, its events and its explanations are made of."""
