"""The input and the result of an assignor of the consumer protocol (KIP-848)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

Partitions = Mapping[bytes, frozenset[int]]
"""Partition numbers by topic id. No set is empty."""

NO_PARTITIONS: Final[Partitions] = {}


class Subscriber(NamedTuple):
    """A member of a group, as an assignor sees it."""

    topic_ids: frozenset[bytes]
    """The topics that it subscribes to. Each of them exists."""
    assigned: Partitions
    """What the assignor gave it the last time."""
    instance_id: str | None = None


Assignor = Callable[[Mapping[str, Subscriber], Mapping[bytes, int]], dict[str, Partitions]]
"""From the members by id, and the number of partitions by topic id, to the partitions of each
member. Every partition with a subscriber gets one owner, which subscribes to its topic. Equal
arguments have equal results. Racks have no influence, as in Kafka 4.1."""
