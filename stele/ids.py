"""Ids of 16 bytes (directories, clusters, topics) in Kafka's text form, and ids of partitions."""

from __future__ import annotations

import base64
from typing import NamedTuple


class PartitionId(NamedTuple):
    """The identity of a partition. A topic that is deleted and created again has another id."""

    topic_id: bytes
    partition: int


class TopicPartition(NamedTuple):
    """A partition by name, as users, directories and checkpoint files identify it."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def encode_uuid(value: bytes) -> str:
    """Kafka's text form of a 16-byte id: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def decode_uuid(text: str) -> bytes:
    """The reverse of ``encode_uuid``. Raises ValueError."""
    value = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(value) != 16:
        raise ValueError(f"{text} is not the text of a 16-byte id")
    return value
