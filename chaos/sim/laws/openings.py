"""What brokers make of their logs when they start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, Self

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.methods import REGISTER_BROKER
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.law import Cadence, Law, Proof
from chaos.sim.laws.scene import Report, Scene
from chaos.sim.world.disk import Inode
from chaos.sim.world.wire import Said, Stage
from stele.ids import TopicPartition
from stele.wire.batch import HEADER_SIZE, BatchError, check_crc, read_header
from storage.checkpoints import (
    CORRUPT_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    decode_offsets,
)
from storage.cuts import CUT_FILE
from storage.directory_names import METADATA_TOPIC, parse_partition_directory
from storage.errors import UnreadableLogError
from storage.swaps import SWAP_FILE

_CHECKPOINTS: Final = (RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE, LOG_START_FILE)
_NOTES: Final = (SWAP_FILE, CUT_FILE, CORRUPT_FILE)
"""A log is not judged in which a compaction or truncation was interrupted, or which an earlier
process has found corrupt."""


class Left(NamedTuple):
    """What a process has left of a log."""

    end_offset: int  # of the whole batches that follow each other, up to the first torn one
    first_base: int  # of the first segment that stays at a start
    floor: int  # what is below was on disk, by a checkpoint
    start_offset: int


class _Start(NamedTuple):
    """A process that has not registered yet."""

    incarnation: str
    at_s: float
    logs: dict[tuple[str, TopicPartition], Left]  # by log directory and partition


class LogsOpenAsTheyWereLeft(Law):
    """A log that nobody has damaged opens with every whole batch that its files have, and is not
    called corrupt. No log opens that ends below what its checkpoints say was on disk.

    The files are read before a process starts, and compared with its logs when it registers. If it
    waits so long for a controller that retention has run, a log may have lost old segments again.
    """

    name = "logs open as they were left"
    cadence = Cadence.TOLD
    hears = (REGISTER_BROKER,)
    proof = Proof.CAMPAIGN

    def __init__(self, cluster: SimCluster, report: Report) -> None:
        self._report = report
        self._brokers = {node.host: node for node in cluster.brokers.values()}
        self._starts: dict[str, _Start] = {}  # by host
        self._simulation = cluster.simulation
        for node in cluster.brokers.values():
            node.on_start = self._on_start

    @classmethod
    def of(cls, scene: Scene) -> Self:
        return cls(scene.cluster, scene.report)

    def _on_start(self, node: SimNode) -> None:
        now_s = self._simulation.now
        self._starts[node.host] = _Start(node.incarnation, now_s, dict(_logs(node)))

    def hear(self, stage: Stage, said: Said) -> None:
        node = self._brokers.get(said.source)
        if stage is not Stage.SENT or node is None or node.broker is None:
            return
        start = self._starts.pop(said.source, None)
        if start is None or start.incarnation == node.incarnation:
            return  # it is the process before that registers
        left = start.logs
        waited_ms = (self._simulation.now - start.at_s) * 1000
        is_soon = waited_ms < node.config.log_retention_check_interval_ms
        for directory in node.broker.directories:
            path = directory.path
            for key, log in directory.logs.items():
                if (path, key) in left:
                    was = left[path, key]
                    self._look_at(node, path, key, was, log.end_offset)
                    if is_soon:
                        self._look_at_start(node, path, key, was, log.segments.bases[0])
            for key, error in directory.corrupt.items():
                if (path, key) in left and not isinstance(error, UnreadableLogError):
                    self._look_at_corrupt(node, path, key, str(error))

    def _look_at(
        self, node: SimNode, path: str, key: TopicPartition, left: Left, end_offset: int
    ) -> None:
        self.looked += left.end_offset > left.start_offset
        who = f"{key} on broker {node.id}"
        if end_offset < left.floor:
            self._report(f"{who} opens and ends at {end_offset}; {left.floor} was on disk")
        if _is_damaged(node, path, key) or left.end_offset < left.floor:
            return
        wanted = max(left.end_offset, left.start_offset)
        if end_offset != wanted:
            self._report(f"{who} opens and ends at {end_offset}; it was left with {left}")

    def _look_at_start(
        self, node: SimNode, path: str, key: TopicPartition, left: Left, first_base: int
    ) -> None:
        is_whole = left.end_offset >= max(left.floor, left.start_offset)
        if is_whole and not _is_damaged(node, path, key) and first_base != left.first_base:
            self._report(
                f"{key} on broker {node.id} opens and begins with {first_base}; it was left with "
                f"{left}"
            )

    def _look_at_corrupt(self, node: SimNode, path: str, key: TopicPartition, error: str) -> None:
        self.looked += 1
        if not _is_damaged(node, path, key):
            self._report(f"broker {node.id} calls {key} corrupt, which nobody has damaged: {error}")


def _is_damaged(node: SimNode, path: str, key: TopicPartition) -> bool:
    """Whether the storm has damaged the log or the checkpoints, or the device has lost writes."""
    disk = node.machine.disk
    return disk.failures > 0 or any(
        each.startswith(f"{path}/{key}/") or each.count("/") == 2 for each in disk.destroyed
    )


def _logs(node: SimNode) -> Iterator[tuple[tuple[str, TopicPartition], Left]]:
    for path in node.config.log_dirs:
        if not node.machine.disk.is_dead(path):
            for key, left in _logs_in(node, path):
                yield (path, key), left


def _logs_in(node: SimNode, path: str) -> Iterator[tuple[TopicPartition, Left]]:
    disk = node.machine.disk
    points, high_watermarks, starts = (_offsets(node, path, name) for name in _CHECKPOINTS)
    for name in disk.names(path):
        key = parse_partition_directory(name)
        if key is None or key.topic == METADATA_TOPIC:
            continue
        if any(disk.find(f"{path}/{name}/{file}") for file in _NOTES):
            continue
        files = disk.files(f"{path}/{name}", ".log")
        segments = [(int(file.removesuffix(".log")), inode) for file, inode in files]
        point = points.get(key, 0)
        floor = max(point, high_watermarks.get(key, 0))
        start = starts.get(key, 0)
        snapshots = disk.files(f"{path}/{name}", ".snapshot")
        known = {int(file.removesuffix(".snapshot")) for file, _ in snapshots}
        # A power loss may have left a segment below the start, and no snapshot that knows its
        # producers. Then it stays until retention has made one.
        first = max((base for base, _ in segments if base <= start and base in known), default=0)
        segments = [each for each in segments if each[0] >= first]
        if segments:
            yield key, Left(_end_of(segments, point), segments[0][0], floor, start)


def _offsets(node: SimNode, directory: str, name: str) -> Mapping[TopicPartition, int]:
    path = f"{directory}/{name}"
    found = node.machine.disk.find(path)
    return decode_offsets(found.data.decode(), path) if isinstance(found, Inode) else {}


def _end_of(segments: list[tuple[int, Inode]], point: int) -> int:
    """Where the whole batches end. Those below the recovery point are taken for sound."""
    first = max((at for at, (base, _) in enumerate(segments) if base <= point), default=0)
    end_offset = segments[first][0]
    for base, inode in segments[first:]:
        if base != end_offset:
            return end_offset
        end_offset, is_whole = _end_of_segment(bytes(inode.data), base, point)
        if not is_whole:
            return end_offset
    return end_offset


def _end_of_segment(data: bytes, base: int, point: int) -> tuple[int, bool]:
    """And whether its file ends there, too."""
    position, end_offset = 0, base
    while position + HEADER_SIZE <= len(data):
        try:
            header = read_header(data, position)
        except BatchError:
            return end_offset, False
        follows = header.base_offset >= end_offset
        if not follows or position + header.size_bytes > len(data):
            return end_offset, False
        if header.base_offset >= point and not check_crc(data, position, header):
            return end_offset, False
        position += header.size_bytes
        end_offset = header.next_offset
    return end_offset, position == len(data)
