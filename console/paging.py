"""One page of a list."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

Item = TypeVar("Item")

PAGE_SIZE: Final = 50


@dataclass(frozen=True, slots=True)
class Paged(Generic[Item]):
    """``number`` counts from 1. A number beyond the list stands for its last page."""

    items: Sequence[Item]
    number: int
    count: int
    """The number of pages, at least 1."""
    total: int
    first: int
    """The place of the first item in the list, from 0."""

    @classmethod
    def of(cls, items: Sequence[Item], number: int, size: int = PAGE_SIZE) -> Paged[Item]:
        count = max(1, -(-len(items) // size))
        number = min(max(1, number), count)
        first = (number - 1) * size
        return cls(items[first : first + size], number, count, len(items), first)
