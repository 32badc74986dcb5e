"""The records that consumers hand out, the metadata that producers give back, and the offsets that
groups commit."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class TimestampType(enum.IntEnum):
    """Whose clock a record's timestamp is: the producer's or the leader's."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ProducerRecord(NamedTuple):
    """A record for ``send_all``. ``timestamp_ms`` None: the time at which it is accepted."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class RecordMetadata(NamedTuple):
    """Where a record was written.

    ``offset`` is -1 where the broker did not tell it: ``acks=0``, or a repeated batch that the
    broker recognised as written but too long ago to know its offset.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ConsumerRecord(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int


class OffsetAndMetadata(NamedTuple):
    """A committed offset: that of the next record to read.

    ``leader_epoch`` is that of the last record that was read; -1 if it is not known. ``topic_id``
    is the topic that was read: the offset is never committed for another topic of that name. If it
    is empty, the offset is committed for whichever topic has the name.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: bytes = b""


class GroupMetadata(NamedTuple):
    """As whom a consumer speaks to its group."""

    group_id: str
    generation_id: int  # -1: it is no member
    member_id: str
    group_instance_id: str | None


class OffsetAndTimestamp(NamedTuple):
    """An answer of ``offsets_for_times``: the first record at or after the time asked for."""

    offset: int
    timestamp_ms: int
    leader_epoch: int
