"""Reads replicas' logs on the disks of a simulated cluster from outside."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from chaos.sim.cluster.node import SimNode
from chaos.sim.world.disk import Inode
from stele.wire.batch import BatchError, BatchHeader, Record, batches, check_crc, decode
from storage.checkpoints import PARTITION_METADATA_FILE
from storage.txn_index import AbortedTransaction, decode_aborted


class Place(NamedTuple):
    """A position in a segment file of a replica's log."""

    segment: str = ""  # empty: the first segment
    position: int = 0

    def behind(self, header: BatchHeader) -> Place:
        """The end of the batch that begins here."""
        return Place(self.segment, self.position + header.size_bytes)


START = Place()


def batches_from(
    node: SimNode, partition: str, place: Place = START
) -> Iterator[tuple[Place, BatchHeader]]:
    """Each batch from a place on, as processes see them. If the place's segment is gone, it begins
    with the next one. Raises BatchError at bytes that are no batch."""
    segments = _segments(node, partition)
    first = bisect_left(segments, place.segment, key=lambda segment: segment[0])
    for name, inode in segments[first:]:
        start = place.position if name == place.segment else 0
        if start < len(inode.data):
            for at, header in batches(bytes(inode.data[start:])):
                yield Place(name, start + at), header


def sound_batches_from(
    node: SimNode, partition: str, place: Place = START
) -> Iterator[tuple[Place, BatchHeader]]:
    """The same up to the first batch with a wrong CRC: faults damage bytes, and no process may have
    looked there since."""
    segments = _segments(node, partition)
    first = bisect_left(segments, place.segment, key=lambda segment: segment[0])
    for name, inode in segments[first:]:
        start = place.position if name == place.segment else 0
        data = bytes(inode.data[start:])
        for at, header in batches(data):
            if not check_crc(data, at, header):
                return
            yield Place(name, start + at), header


def readable_batches_from(
    node: SimNode, partition: str, place: Place = START
) -> Iterator[tuple[Place, BatchHeader]]:
    """The same up to the first bytes that are no batch: a power loss may have torn them while the
    node is down."""
    try:
        yield from batches_from(node, partition, place)
    except BatchError:
        return


def whole_batches(data: bytes | bytearray, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Each batch in ``data`` up to the first bytes that are no batch, such as a torn tail."""
    try:
        yield from batches(data, position)
    except BatchError:
        return


def records_at(node: SimNode, partition: str, place: Place) -> list[Record]:
    """The records of the batch at a place that ``batches_from`` has told."""
    (inode,) = (inode for name, inode in _segments(node, partition) if name == place.segment)
    return list(decode(bytes(inode.data[place.position :]), 0))


def aborted_by_index(node: SimNode, partition: str) -> list[AbortedTransaction]:
    """What the transaction indexes of a replica say, as processes see them."""
    files = node.machine.disk.files(node.replica_path(partition), ".txnindex")
    return [each for _, inode in files for each in decode_aborted(bytes(inode.data))]


def first_base(node: SimNode, partition: str) -> int | None:
    """The base offset of the first segment; None if there is none."""
    segments = _segments(node, partition)
    return int(segments[0][0].removesuffix(".log")) if segments else None


def is_durable(node: SimNode, partition: str, value: bytes) -> bool:
    """Whether the value would survive a power loss, in a file that survives as well, of a log whose
    topic id survives. The search goes backwards, since the value is usually near the end of a
    segment."""
    disk = node.machine.disk
    for path in node.kept_paths(partition):
        topic_id = f"{path}/{PARTITION_METADATA_FILE}"
        if not disk.durable_file(topic_id) and topic_id not in disk.destroyed:
            continue
        if any(inode.durable.rfind(value) >= 0 for inode in disk.durable_files(path, ".log")):
            return True
    return False


def was_destroyed(node: SimNode, partition: str, value: bytes) -> bool:
    """Whether the storm took a durable record away."""
    destroyed = node.machine.disk.destroyed
    directories = tuple(f"{directory}/{partition}/" for directory in node.config.log_dirs)
    return any(path.startswith(directories) and value in data for path, data in destroyed.items())


def _segments(node: SimNode, partition: str) -> list[tuple[str, Inode]]:
    return node.machine.disk.files(node.replica_path(partition), ".log")
