"""The topics that a consumer says it subscribes to, in the metadata of its protocols."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

_VERSION_AND_COUNT: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")

TOPICS_MAX: Final = 10_000
"""Topics of one member. They are all read in one turn of the event loop."""

TOPICS_READ_MAX: Final = 100_000
"""Topics that the members of a group subscribe to, counted for each member. They are read in one
turn of the event loop. If there are more, the group's subscriptions are not known."""


def subscribed_topics(metadata: bytes) -> frozenset[str]:
    """Raises ValueError: the metadata are not those of a consumer.

    Every version of ConsumerProtocolSubscription begins with the topics.
    """
    try:
        version, count = _VERSION_AND_COUNT.unpack_from(metadata)
        position = _VERSION_AND_COUNT.size
        if version < 0 or not 0 <= count <= TOPICS_MAX:
            raise ValueError(f"a subscription of version {version} to {count} topics")
        topics = set()
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or position + length > len(metadata):
                raise ValueError("a subscription that ends early")
            topics.add(metadata[position : position + length].decode())
            position += length
    except struct.error:
        raise ValueError("a subscription that ends early") from None
    return frozenset(topics)


def all_subscribed_topics(told: Iterable[tuple[str, bytes]]) -> frozenset[str]:
    """The subscriptions of all members, from their ids and metadata. Raises ValueError, which names
    the member, if its metadata are not those of a consumer, or if there are too many topics."""
    topics: set[str] = set()
    named = 0
    for member_id, metadata in told:
        try:
            of_member = subscribed_topics(metadata)
        except ValueError as error:
            raise ValueError(f"{member_id}: {error}") from error
        topics |= of_member
        named += len(of_member)
        if named > TOPICS_READ_MAX:
            raise ValueError(f"{member_id}: the members name more than {TOPICS_READ_MAX}")
    return frozenset(topics)
