"""Topics that brokers keep their own state in, and the coordinators that are found by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from metadata.topic_config import TopicConfig
from stele.errors import ApiError, ErrorCode

GROUP_TOPIC: Final = "__consumer_offsets"
"""Consumer groups and the offsets that they have committed."""

TRANSACTION_TOPIC: Final = "__transaction_state"
"""Transactional ids and their transactions."""

INTERNAL_TOPICS: Final = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC})
"""Clients may read them, and may not write to them: each record is a decision of a coordinator."""

_CLEANUP_POLICY: Final = TopicConfig.cleanup_policy.key.name


def check_stays(topic: str, change: str) -> None:
    """Refuse ``change`` ("be deleted") of an internal topic. Raises ApiError
    INVALID_TOPIC_EXCEPTION.

    The name of a group decides its partition together with their number. With another number of
    partitions, coordinators would look for committed offsets where none were written.
    """
    if topic in INTERNAL_TOPICS:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {topic} cannot {change}: coordinators keep their state in it, and the number "
            "of its partitions decides where each group or transactional id has its state",
        )


def check_cleanup_policy(topic: str, configs: Mapping[str, str]) -> None:
    """Check all values that an internal topic would have. Raises ApiError INVALID_CONFIG.

    Retention would delete the last values of keys, which no coordinator writes again.
    """
    if topic in INTERNAL_TOPICS and configs.get(_CLEANUP_POLICY, "").strip() != "compact":
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"topic {topic} needs cleanup.policy=compact: retention would delete what coordinators "
            "keep in it",
        )


def coordinating_partition(key: str, partitions: int) -> int:
    """The partition of an internal topic whose leader coordinates the group or id ``key``.

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
