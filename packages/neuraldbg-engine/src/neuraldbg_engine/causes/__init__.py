# SPDX-License-Identifier: LicenseRef-Proprietary
"""The causes that the engine knows: a declarative card each, in `cards/`, and those of plugins."""

from __future__ import annotations

from neuraldbg_engine.causes.card import Card, Strength
from neuraldbg_engine.causes.deck import Deck, deck

__all__ = ["Card", "Deck", "Strength", "deck"]
