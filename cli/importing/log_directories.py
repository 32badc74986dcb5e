"""The log directories of stopped brokers: which partitions they hold, and which replica of each is
taken.

Of the replicas of a partition the one with the newest leader epoch counts, and among equals the
longest: the replica that an election among all of them would have to choose.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cli.importing.source_log import SourceLog
from cli.output import CommandError
from runtime.real.disk import RealDisk
from stele.ids import TopicPartition, encode_uuid
from storage.checkpoints import (
    LOG_START_FILE,
    PARTITION_METADATA_FILE,
    RECOVERY_POINT_FILE,
    read_meta_properties,
    read_offsets,
    read_partition_metadata,
)
from storage.directory_names import METADATA_TOPIC, parse_partition_directory
from storage.formatted import LOCK_FILE


@dataclass(frozen=True, slots=True)
class Replica:
    """A partition's directory in a log directory, which is not read yet."""

    partition: TopicPartition
    directory: Path
    topic_id: bytes | None
    start_offset: int
    recovery_point: int

    def read(self) -> SourceLog:
        """Check it. Raises CommandError."""
        return SourceLog(self.directory, self.partition, self.start_offset, self.recovery_point)


@contextmanager
def unused(directories: Sequence[Path]) -> Iterator[None]:
    """No broker uses the directories meanwhile. Raises CommandError."""
    with ExitStack() as held:
        for directory in directories:
            _lock(directory, held)
        yield


def _lock(directory: Path, held: ExitStack) -> None:
    """Kafka locks the file by lockf, Stele by flock. A shared lock needs no right to write."""
    try:
        lock = held.enter_context((directory / LOCK_FILE).open("rb"))
    except FileNotFoundError:
        return
    try:
        fcntl.lockf(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        raise CommandError(f"a broker uses {directory}: stop it first") from None


def find_replicas(directories: Sequence[Path]) -> dict[str, dict[int, list[Replica]]]:
    """The replicas by topic and partition. Raises CommandError or LogDirectoryError."""
    found: dict[str, dict[int, list[Replica]]] = {}
    topic_ids: dict[str, tuple[bytes, Path]] = {}
    clusters: dict[str, Path] = {}
    for directory in directories:
        clusters.setdefault(_cluster_of(directory), directory)
        for replica in _replicas_in(directory):
            topic, number = replica.partition
            found.setdefault(topic, {}).setdefault(number, []).append(replica)
            if replica.topic_id is not None:
                _check_same_topic(replica, topic_ids)
    if len(clusters) > 1:
        (one, first), (other, second), *_ = clusters.items()
        raise CommandError(
            f"{first} is of the cluster {one} and {second} of {other}: import one after the other"
        )
    return {topic: found[topic] for topic in sorted(found)}


def _check_same_topic(replica: Replica, topic_ids: dict[str, tuple[bytes, Path]]) -> None:
    """A topic that was deleted and made again may have left directories of the first one."""
    assert replica.topic_id is not None
    known, where = topic_ids.setdefault(
        replica.partition.topic, (replica.topic_id, replica.directory)
    )
    if known != replica.topic_id:
        raise CommandError(
            f"{replica.directory} is of topic id {encode_uuid(replica.topic_id)} and {where} of "
            f"{encode_uuid(known)}: one of them is left from a topic that was deleted. Leave the "
            "older one out"
        )


def _cluster_of(directory: Path) -> str:
    properties = read_meta_properties(RealDisk(), str(directory / "meta.properties"))
    if properties is None:
        raise CommandError(
            f"{directory} is no log directory of a broker: it has no meta.properties. Name the "
            "directories of log.dirs"
        )
    return properties.cluster_id


def _replicas_in(directory: Path) -> Iterator[Replica]:
    disk = RealDisk()
    starts = _checkpoint(directory / LOG_START_FILE)
    recovery_points = _checkpoint(directory / RECOVERY_POINT_FILE)
    for path in sorted(directory.iterdir()):
        partition = parse_partition_directory(path.name)
        if partition is None or partition.topic == METADATA_TOPIC or not path.is_dir():
            continue
        yield Replica(
            partition,
            path,
            read_partition_metadata(disk, str(path / PARTITION_METADATA_FILE)),
            starts.get(partition, 0),
            recovery_points.get(partition, 0),
        )


def _checkpoint(path: Path) -> dict[TopicPartition, int]:
    """Kafka makes the file empty when it starts, and writes it a minute later. Raises
    LogDirectoryError."""
    if not path.exists() or path.stat().st_size == 0:
        return {}
    return read_offsets(RealDisk(), str(path))


def best_logs(topic: str, replicas: dict[int, list[Replica]]) -> list[SourceLog]:
    """The log of each partition of a topic, in their order. Raises CommandError."""
    missing = [number for number in range(max(replicas) + 1) if number not in replicas]
    if missing:
        raise CommandError(
            f"partition {missing[0]} of topic {topic!r} is in none of the directories: name the "
            "log directories of all brokers"
        )
    return [
        max((each.read() for each in replicas[number]), key=_rank) for number in sorted(replicas)
    ]


def _rank(log: SourceLog) -> tuple[int, int]:
    return log.summary.leader_epoch, log.summary.end_offset
