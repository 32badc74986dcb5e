"""The names of the entries of a log directory, which are Kafka's."""

from __future__ import annotations

import re
from typing import Final

from stele import topic_names
from stele.ids import TopicPartition
from world.disk import Disk

METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_PARTITION: Final = 0
DELETED_SUFFIX: Final = "-delete"
CORRUPT_SUFFIX: Final = "-corrupt"
_NAME_MAX_BYTES: Final = 255  # the longest name that file systems allow
_PARTITION_DIRECTORY = re.compile(rf"(?P<topic>{topic_names.PATTERN})-(?P<partition>\d{{1,10}})")


def parse_partition_directory(name: str) -> TopicPartition | None:
    """The partition that a directory belongs to by its name; None for any other name."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or len(match["topic"]) > topic_names.LENGTH_MAX:
        return None
    return TopicPartition(match["topic"], int(match["partition"]))


def unused_path(
    disk: Disk, path: str, key: TopicPartition, topic_id: bytes | None, suffix: str
) -> str:
    """A free path within ``path`` to which a log's directory can be renamed to set it aside."""
    label = topic_id.hex() if topic_id else "0" * 32
    target = f"{path}/{_aside_name(key, label, suffix)}"
    number = 0
    while disk.exists(target):
        number += 1
        target = f"{path}/{_aside_name(key, f'{label}{number}', suffix)}"
    return target


def _aside_name(key: TopicPartition, label: str, suffix: str) -> str:
    """Kafka's form, ``<topic>-<partition>.<label><suffix>``. The topic name is cut if it is too
    long."""
    rest = f"-{key.partition}.{label}{suffix}"
    return key.topic[: _NAME_MAX_BYTES - len(rest)] + rest
