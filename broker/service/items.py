"""The items of one request about many partitions.

A plane translates a request to items: an entry for each valid item, a finished result for each
other one. Answers come back in the order of the items.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

E = TypeVar("E")
R = TypeVar("R")


def merge(items: Sequence[E | R], entry_type: type[E], results: Sequence[R]) -> list[R]:
    """Put the results of the entries between the results that were there before."""
    answered = iter(results)
    return [next(answered) if isinstance(item, entry_type) else item for item in items]  # type: ignore[misc]
