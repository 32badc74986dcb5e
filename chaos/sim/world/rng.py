"""Randomness of a simulation: one seeded stream per concern."""

from __future__ import annotations

import random


class Streams:
    """Random streams by label, all derived from one seed.

    One stream per concern keeps runs comparable: one more draw on a link does not shift the draws
    of another link or a node. Labels are hashed by SHA-512, so PYTHONHASHSEED has no influence.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._streams: dict[str, random.Random] = {}

    def stream(self, label: str) -> random.Random:
        """The stream of that label. Every call returns the same object, which goes on drawing."""
        stream = self._streams.get(label)
        if stream is None:
            stream = self._streams[label] = random.Random(f"{self.seed}/{label}")
        return stream
