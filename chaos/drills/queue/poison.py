"""The records of a queue that no worker can process."""

from __future__ import annotations

from typing import Final

_ONE_OF: Final = 100


def is_poison(number: int) -> bool:
    """Whether the record with this number of its producer is poison: one of a hundred is."""
    return number % _ONE_OF == _ONE_OF // 2
