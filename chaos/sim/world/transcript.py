"""The transcript of a simulation: what happened, in order, in virtual time."""

from __future__ import annotations

import hashlib
from collections import Counter


class Transcript:
    """Ordered text lines and their hash. One seed has one transcript, in every process."""

    def __init__(self, *, keep: bool = False) -> None:
        self._hash = hashlib.sha256()
        self._keep = keep
        self.lines: list[str] = []
        self.counts: Counter[str] = Counter()

    def add(self, now: float, where: str, kind: str, text: str = "") -> None:
        """Note an event; ``kind`` is one word and is counted."""
        line = f"{now:.9f} {where} {kind} {text}\n"
        self.counts[kind] += 1
        self._hash.update(line.encode())
        if self._keep:
            self.lines.append(line[:-1])

    def digest(self) -> str:
        """The hash of everything up to now, in hexadecimal."""
        return self._hash.hexdigest()
