"""Replicas' logs on the disks of a simulated cluster, read from outside: segments come and go."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from chaos.sim.cluster.node import SimNode
from chaos.sim.world.disk import Inode
from stele.wire.batch import BatchError, BatchHeader, batches, check_crc


class Place(NamedTuple):
    """In a replica's log: a segment's file, and a position in it."""

    segment: str = ""  # the first there is
    position: int = 0

    def behind(self, header: BatchHeader) -> Place:
        """Where the batch that stands here ends."""
        return Place(self.segment, self.position + header.size_bytes)


START = Place()


def batches_from(
    node: SimNode, partition: str, place: Place = START
) -> Iterator[tuple[Place, BatchHeader]]:
    """Each batch from a place on, as processes see them. Where its segment is gone, from the next
    one on. Raises BatchError where there is something else."""
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
    """The same up to what was damaged on purpose: no process may have looked there since."""
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
    """The same up to what a power loss has torn: the node may be down."""
    try:
        yield from batches_from(node, partition, place)
    except BatchError:
        return


def whole_batches(data: bytes | bytearray, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Up to what a power loss has torn: then ``data`` is of a node that is down."""
    try:
        yield from batches(data, position)
    except BatchError:
        return


def first_base(node: SimNode, partition: str) -> int | None:
    """The base offset of the first segment; None if there is none."""
    segments = _segments(node, partition)
    return int(segments[0][0].removesuffix(".log")) if segments else None


def is_durable(node: SimNode, partition: str, value: bytes) -> bool:
    """Whether a power loss would leave it, file and all; it is near the end as a rule, and in one
    segment."""
    for inode in node.machine.disk.durable_files(f"/data/{partition}", ".log"):
        if inode.durable.rfind(value) >= 0:
            return True
    return False


def was_destroyed(node: SimNode, partition: str, value: bytes) -> bool:
    """Whether the storm took a durable record away."""
    destroyed = node.machine.disk.destroyed
    directory = f"/data/{partition}/"
    return any(path.startswith(directory) and value in data for path, data in destroyed.items())


def _segments(node: SimNode, partition: str) -> list[tuple[str, Inode]]:
    return node.machine.disk.files(f"/data/{partition}", ".log")
