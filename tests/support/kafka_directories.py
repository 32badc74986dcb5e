"""Log directories as a stopped Kafka broker leaves them, made file by file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from broker.coordinator.group.records import CommittedOffset, OffsetKey, offset_record
from stele.ids import TopicPartition, encode_uuid
from stele.wire.batch import BatchBuilder, Record
from stele.wire.compression import Compression
from stele.wire.control_records import end_marker_batch
from stele.wire.kafka.primitives import encode_uvarint

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = bytes(range(16))


class KafkaDirectory:
    """One entry of a broker's ``log.dirs``."""

    def __init__(self, path: Path, *, node_id: int = 1, cluster_id: str = CLUSTER_ID) -> None:
        self.path = path
        path.mkdir(parents=True)
        properties = f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\n"
        (path / "meta.properties").write_text(f"#\n#Sat Nov 28 22:00:00 UTC 2026\n{properties}")

    def partition(self, name: str, number: int = 0, topic_id: bytes = TOPIC_ID) -> Path:
        directory = self.path / f"{name}-{number}"
        directory.mkdir(exist_ok=True)
        (directory / "partition.metadata").write_text(
            f"version: 0\ntopic_id: {encode_uuid(topic_id)}"
        )
        (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
        return directory

    def segment(
        self, name: str, number: int, base_offset: int, batches: Iterable[bytes | bytearray]
    ) -> Path:
        path = self.partition(name, number) / f"{base_offset:020d}.log"
        path.write_bytes(b"".join(batches))
        return path

    def checkpoint(self, file: str, offsets: dict[TopicPartition, int]) -> None:
        lines = [f"{topic} {number} {offset}" for (topic, number), offset in offsets.items()]
        text = "\n".join(["0", str(len(lines)), *lines, ""])
        (self.path / file).write_text(text)

    def metadata(
        self,
        changes: Iterable[bytes],
        *,
        base_offset: int = 0,
        snapshot: bool = False,
        leader_epoch: int = 0,
    ) -> None:
        """A part of this broker's copy of the metadata log, by ``named``, ``configured`` and
        ``removed``: a segment, or the snapshot before ``base_offset``."""
        builder = BatchBuilder(0 if snapshot else base_offset)
        for each in changes:
            builder.append(None, each, timestamp_ms=1_000)
        name = f"{base_offset:020d}-{leader_epoch:010d}.checkpoint"
        path = self.partition("__cluster_metadata") / (
            name if snapshot else f"{base_offset:020d}.log"
        )
        path.write_bytes(builder.build(leader_epoch=leader_epoch))

    def commits(self, committed: Sequence[tuple[str, TopicPartition, int | None]]) -> None:
        """``__consumer_offsets`` of one partition. None: the offset was deleted."""
        builder = BatchBuilder()
        for group, partition, offset in committed:
            value = None if offset is None else CommittedOffset(offset, 0, "", 1_000)
            key, encoded = offset_record(OffsetKey(group, partition), value)
            builder.append(key, encoded, timestamp_ms=1_000)
        self.segment("__consumer_offsets", 0, 0, [builder.build()])


def _text(value: str | None) -> bytes:
    return b"\0" if value is None else encode_uvarint(len(value) + 1) + value.encode()


def named(topic: str, topic_id: bytes = TOPIC_ID) -> bytes:
    """A TopicRecord."""
    return b"\x01\x02\x00" + _text(topic) + topic_id + b"\0"


def configured(resource: str, name: str, value: str | None, *, kind: int = 2) -> bytes:
    """A ConfigRecord. ``kind``: of the resource; 2 is a topic, 4 a broker."""
    return b"\x01\x04\x00" + bytes([kind]) + _text(resource) + _text(name) + _text(value) + b"\0"


def removed(topic_id: bytes = TOPIC_ID) -> bytes:
    """A RemoveTopicRecord."""
    return b"\x01\x09\x00" + topic_id + b"\0"


def batch(
    offsets: Iterable[int],
    *,
    producer_id: int = -1,
    is_transactional: bool = False,
    leader_epoch: int = 0,
    compression: Compression = Compression.NONE,
    timestamp_ms: int = 1_000_000,
    last_offset: int | None = None,
) -> bytearray:
    """Records at these offsets, whose values name them. ``last_offset``: of a record that
    compaction has removed."""
    some = list(offsets)
    builder = BatchBuilder(some[0])
    for offset in some:
        builder.append_record(record_at(offset, timestamp_ms))
    made = builder.build(
        compression,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=0 if producer_id >= 0 else -1,
        leader_epoch=leader_epoch,
        is_transactional=is_transactional,
    )
    if last_offset is not None:
        made[23:27] = (last_offset - some[0]).to_bytes(4, "big")
        resealed(made)
    return made


def resealed(made: bytearray) -> None:
    from stele.wire.batch import compute_crc

    made[17:21] = compute_crc(made, 0, len(made)).to_bytes(4, "big")


def record_at(offset: int, timestamp_ms: int = 1_000_000) -> Record:
    headers = (("number", b"%d" % offset), ("nothing", None))
    value = None if offset % 7 == 3 else b"value %d" % offset
    return Record(offset, timestamp_ms + offset, b"key %d" % (offset % 5), value, headers)


def marker(offset: int, producer_id: int, *, commit: bool) -> bytearray:
    made = end_marker_batch(
        producer_id, 0, commit=commit, coordinator_epoch=0, timestamp_ms=2_000_000
    )
    made[0:8] = offset.to_bytes(8, "big")
    return made
