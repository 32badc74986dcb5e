"""Topics that brokers keep their own state in, and the coordinators that are found by them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from metadata.topic_config import TopicConfig
from stele.errors import ApiError, ErrorCode

GROUP_TOPIC: Final = "__consumer_offsets"
"""Consumer groups and the offsets that they have committed."""

TRANSACTION_TOPIC: Final = "__transaction_state"
"""Transactional ids and their transactions."""

SHARE_TOPIC: Final = "__share_group_state"
"""What became of the records that share groups read."""

INTERNAL_TOPICS: Final = frozenset({GROUP_TOPIC, TRANSACTION_TOPIC, SHARE_TOPIC})
"""Clients may read them, and may not write to them: each record is a decision of a coordinator."""

_SHORT_KEY: Final = 100  # characters
_REMEMBERED_KEYS: Final = 4096

_CLEANUP_POLICY: Final = TopicConfig.cleanup_policy.key.name
_COMPACTED: Final = {_CLEANUP_POLICY: "compact"}

CLEANUP: Final[Mapping[str, Mapping[str, str]]] = {
    GROUP_TOPIC: _COMPACTED,
    TRANSACTION_TOPIC: _COMPACTED,
    # A state is a snapshot and the updates after it. Compaction would keep the last update only, so
    # the coordinator deletes the records that it does not need any more.
    SHARE_TOPIC: {
        _CLEANUP_POLICY: "delete",
        TopicConfig.retention_ms.key.name: "-1",
        TopicConfig.retention_bytes.key.name: "-1",
    },
}
"""The configs by which an internal topic loses no record that its coordinators need."""


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
            "of its partitions decides where each group, transactional id or share partition has "
            "its state",
        )


def check_cleanup(topic: str, configs: Mapping[str, str]) -> None:
    """Check all values that an internal topic would have. Raises ApiError INVALID_CONFIG.

    Retention would delete the last values of keys, which no coordinator writes again.
    """
    for name, needed in CLEANUP.get(topic, {}).items():
        if configs.get(name, "").strip() != needed:
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"topic {topic} needs {name}={needed}: otherwise records would be deleted that "
                "coordinators need",
            )


def coordinating_partition(key: str, partitions: int) -> int:
    """The partition of an internal topic whose leader coordinates the group or id ``key``.

    Kafka's rule, so that Kafka's tools look in the right place: Java's hash of the string, without
    its sign. Each request of a group asks, so the hashes of short keys are remembered.
    """
    hash_of = _short_key_hash if len(key) <= _SHORT_KEY else _hash
    return hash_of(key) % partitions


def _hash(key: str) -> int:
    units = key.encode("utf-16-be")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    if value >= 1 << 31:
        value -= 1 << 32
    return 0 if value == -(1 << 31) else abs(value)


_short_key_hash = lru_cache(_REMEMBERED_KEYS)(_hash)
