"""Topics that brokers keep their own state in, and the coordinators that are found by them."""

from __future__ import annotations

from typing import Final

GROUP_TOPIC: Final = "__consumer_offsets"
"""Consumer groups and the offsets that they have committed."""

TRANSACTION_TOPIC: Final = "__transaction_state"
"""Transactional ids and their transactions."""

INTERNAL_TOPICS: Final = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC})
"""Clients may read them, and may not write to them: each record is a decision of a coordinator."""


def coordinating_partition(key: str, partitions: int) -> int:
    """The partition of an internal topic whose leader coordinates what is called ``key``.

    Kafka's rule, so that Kafka's tools look in the right place: Java's hash of the string, without
    its sign.
    """
    units = key.encode("utf-16-be")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    if value >= 1 << 31:
        value -= 1 << 32
    return (0 if value == -(1 << 31) else abs(value)) % partitions
