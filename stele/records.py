"""The records that consumers hand out, the metadata that producers give back, and the offsets that
groups commit."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple

Headers = tuple[tuple[str, bytes | None], ...]


class TimestampType(enum.IntEnum):
    """The clock that gave a record its timestamp: the producer's or the leader's
    (``message.timestamp.type``).
    """

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class ProducerRecord(NamedTuple):
    """A record for ``Producer.send_all``, with the arguments of ``send``. ``timestamp_ms`` None:
    the time at which it is accepted.
    """

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class RecordMetadata(NamedTuple):
    """Where a record was written.

    ``offset`` is -1 where the broker did not tell it: with ``acks=0``, or for a repeated batch that
    the broker recognised as written but too long ago to know its offset. ``timestamp_ms`` is the
    record's time, in milliseconds since 1970.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ConsumerRecord(NamedTuple):
    """A record that a consumer returned.

    ``value`` None is a tombstone. ``timestamp_ms`` is in milliseconds since 1970. ``headers`` are
    pairs of a name and bytes. ``leader_epoch`` is the epoch of the leader that wrote the record:
    store it with the offset if you store offsets yourself (``Consumer.seek``).
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int


class AcknowledgeType(enum.IntEnum):
    """What became of a record of a share group, with Kafka's numbers.

    ``ACCEPT``: it is done. ``RELEASE``: it could not be processed now and is delivered again, until
    ``share.delivery.count.limit`` deliveries. ``REJECT``: it can never be processed, and is not
    delivered again. ``RENEW``: its lock begins anew, since its processing takes longer. It is to be
    acknowledged later.
    """

    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class ShareRecord(NamedTuple):
    """A record that a share consumer returned.

    The fields are those of ConsumerRecord, and ``delivery_count``: how often the record was
    delivered to members of the group, this time included. A count above 1 means that an earlier
    member has released the record, was too slow, or has died.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: Headers
    leader_epoch: int
    delivery_count: int


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the offset of the next record to read.

    ``leader_epoch`` is that of the last record that was read; -1 if it is not known. ``metadata``
    is a text of the application. ``topic_id`` is the topic that was read: the offset is never
    committed for another topic of that name. If it is empty, the offset is committed for whichever
    topic has the name.
    """

    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    topic_id: bytes = b""


class GroupMetadata(NamedTuple):
    """A consumer's identity in its group, for ``Producer.send_group_offsets``."""

    group_id: str
    generation_id: int  # -1: it is no member
    member_id: str
    group_instance_id: str | None


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time: its offset, its time and its leader epoch."""

    offset: int
    timestamp_ms: int
    leader_epoch: int
