"""The small text files of a log directory, in Kafka's formats.

Each file is replaced as a whole and atomically, so a crash never leaves a malformed one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from stele.ids import TopicPartition, decode_uuid, encode_uuid
from storage.errors import CorruptLogError, LogDirectoryError, UnusableDirectoryError
from storage.turns import in_slices
from world.disk import Disk

RECOVERY_POINT_FILE: Final = "recovery-point-offset-checkpoint"
HIGH_WATERMARK_FILE: Final = "replication-offset-checkpoint"
LOG_START_FILE: Final = "log-start-offset-checkpoint"
CLEANER_OFFSET_FILE: Final = "cleaner-offset-checkpoint"
DROPPED_END_FILE: Final = "cleaner-dropped-end-checkpoint"
"""Ours: see ``PartitionLog.dropped_end``."""
LEADER_EPOCH_FILE: Final = "leader-epoch-checkpoint"
PARTITION_METADATA_FILE: Final = "partition.metadata"
CORRUPT_FILE: Final = "corrupt"
"""A file of this name in a partition's directory marks the log as corrupt. It must not be used."""
META_PROPERTIES_FILE: Final = "meta.properties"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"

_VERSION: Final = "0"
_LINES_PER_TURN: Final = 1024


def _read_text(disk: Disk, path: str) -> str | None:
    if not disk.exists(path):
        return None
    try:
        return bytes(disk.read_file(path)).decode()
    except UnicodeDecodeError:
        raise _malformed(path, "it is not text") from None


def _malformed(path: str, what: str) -> LogDirectoryError:
    return UnusableDirectoryError(
        f"{path} is malformed: {what}; restore the file, or empty this log directory and let the "
        "replicas be fetched again"
    )


def _encode_lines(lines: Iterable[str]) -> bytes:
    body = list(lines)
    return "\n".join([_VERSION, str(len(body)), *body, ""]).encode()


def _decode_lines(path: str, text: str) -> list[list[str]]:
    """The fields of each entry: version line, count line, entries."""
    lines = text.splitlines()
    if len(lines) < 2 or lines[0] != _VERSION or lines[1] != str(len(lines) - 2):
        raise _malformed(path, "version or count does not fit")
    return [line.split(" ") for line in lines[2:]]


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """A checkpoint of one offset for each partition."""
    return _encode_lines(map(_offset_line, offsets.items()))


async def encode_offsets_in_slices(offsets: Mapping[TopicPartition, int]) -> bytes:
    """The same for so many partitions that one turn of the event loop would be long. ``offsets``
    must not change meanwhile."""
    return _encode_lines(await in_slices(_offset_line, offsets.items(), _LINES_PER_TURN))


def _offset_line(entry: tuple[TopicPartition, int]) -> str:
    partition, offset = entry
    return f"{partition.topic} {partition.partition} {offset}"


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """The offsets by partition; empty if the file is absent. Raises LogDirectoryError if it is
    malformed."""
    text = _read_text(disk, path)
    return {} if text is None else decode_offsets(text, path)


def decode_offsets(text: str, path: str) -> dict[TopicPartition, int]:
    """The reverse of ``encode_offsets``. Raises LogDirectoryError, which names ``path``."""
    try:
        return {
            TopicPartition(topic, int(partition)): int(offset)
            for topic, partition, offset in _decode_lines(path, text)
        }
    except ValueError:
        raise _malformed(path, "an entry is not <topic> <partition> <offset>") from None


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """A leader-epoch-checkpoint of (epoch, start offset) entries."""
    return _encode_lines(f"{epoch} {start}" for epoch, start in entries)


def read_epochs(disk: Disk, path: str) -> list[tuple[int, int]]:
    """(epoch, start offset) in the order of the file; empty if it is absent. Raises
    LogDirectoryError if it is malformed."""
    text = _read_text(disk, path)
    if text is None:
        return []
    try:
        return [(int(epoch), int(start)) for epoch, start in _decode_lines(path, text)]
    except ValueError:
        raise _malformed(path, "an entry is not <epoch> <start offset>") from None


def encode_partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}\n".encode()


def read_partition_metadata(disk: Disk, path: str) -> bytes | None:
    """The topic id. None if the file is absent or was never completely written: it is synced before
    anything in its directory counts, and a power loss before that leaves a part of it, or zeroes.
    Raises LogDirectoryError if it is malformed."""
    text = (_read_text(disk, path) or "").rstrip("\0")
    if len(text) < len(encode_partition_metadata(bytes(16)).rstrip()):  # Kafka ends no line
        return None
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        return decode_uuid(fields["topic_id"])
    except (KeyError, ValueError):
        raise _malformed(path, "no topic id in it") from None


def encode_corrupt(error: CorruptLogError) -> bytes:
    fields = ("path", error.path), ("position", error.position), ("offset", error.offset)
    lines = [f"{name}: {value}" for name, value in (*fields, ("reason", error.reason))]
    return "\n".join(["version: 0", *lines, ""]).encode()


def read_corrupt(disk: Disk, path: str) -> CorruptLogError | None:
    """The fault that the file notes. None if the file is absent. Raises LogDirectoryError if it is
    malformed."""
    text = _read_text(disk, path)
    if text is None:
        return None
    fields = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    try:
        return CorruptLogError(
            fields["path"],
            position=int(fields["position"]),
            offset=int(fields["offset"]),
            reason=fields["reason"],
        )
    except (KeyError, ValueError):
        raise _malformed(path, "it does not say what is corrupt") from None


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The owner of a directory, as in ``meta.properties`` version 1. Ids are in their text form."""

    cluster_id: str
    node_id: int
    directory_id: str

    def encode(self) -> bytes:
        return (
            f"cluster.id={self.cluster_id}\ndirectory.id={self.directory_id}\n"
            f"node.id={self.node_id}\nversion=1\n"
        ).encode()


def read_meta_properties(disk: Disk, path: str) -> MetaProperties | None:
    """The owner. None if the file is absent. Raises LogDirectoryError if it is malformed."""
    text = _read_text(disk, path)
    if text is None:
        return None
    lines = [line.strip() for line in text.splitlines()]
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    try:
        return MetaProperties(
            cluster_id=fields["cluster.id"],
            node_id=int(fields["node.id"]),
            directory_id=fields.get("directory.id", ""),
        )
    except (KeyError, ValueError):
        raise _malformed(path, "cluster.id and node.id are missing or wrong") from None


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode()


def decode_clean_shutdown(data: bytes) -> int:
    """The broker epoch that the process had at its shutdown; -1 if the file does not contain it."""
    try:
        return int(json.loads(bytes(data))["brokerEpoch"])
    except (ValueError, KeyError, TypeError):
        return -1
