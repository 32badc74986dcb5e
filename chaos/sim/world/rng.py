"""Randomness of a simulation: one seeded generator per concern."""

from __future__ import annotations

import random


class Rngs:
    """Random number generators by label, all derived from one seed.

    One generator per concern keeps runs comparable: one more draw on a link does not shift the
    draws of another link or a node. Labels are hashed by SHA-512, so PYTHONHASHSEED has no
    influence.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._rngs: dict[str, random.Random] = {}

    def of(self, label: str) -> random.Random:
        """The generator of that label: the same object every time, which goes on drawing."""
        rng = self._rngs.get(label)
        if rng is None:
            rng = self._rngs[label] = random.Random(f"{self.seed}/{label}")
        return rng
