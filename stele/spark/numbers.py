"""A set of the numbers of batches, which mostly follow each other. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

MOST_RANGES = 1_000


@dataclass(frozen=True, slots=True)
class Numbers:
    """Example: 0 to 57 and 60 are ``((0, 57), (60, 60))``. Its size depends on the gaps alone.

    Beyond ``MOST_RANGES`` ranges the lowest are forgotten, and ``floor`` rises.
    """

    ranges: tuple[tuple[int, int], ...] = ()
    """The first and the last number of each range, rising. Between two ranges there is a gap."""
    floor: int = 0
    """Nothing is known of the numbers below."""

    def __contains__(self, number: int) -> bool:
        return any(first <= number <= last for first, last in self.ranges)

    def with_number(self, number: int) -> Numbers:
        return self.union(Numbers(((number, number),)))

    def union(self, other: Numbers) -> Numbers:
        ranges = _merged(sorted((*self.ranges, *other.ranges)))
        floor = max(self.floor, other.floor)
        if len(ranges) > MOST_RANGES:
            forgotten, ranges = ranges[:-MOST_RANGES], ranges[-MOST_RANGES:]
            floor = max(floor, forgotten[-1][1] + 1)
        return Numbers(tuple(ranges), floor)


def _merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for first, last in ranges:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], last))
        else:
            merged.append((first, last))
    return merged
