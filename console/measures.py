"""Offsets and sizes of the partitions that a page shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stele.admin.descriptions import PartitionDescription
from stele.aio import Admin
from stele.errors import SteleError
from stele.ids import TopicPartition
from stele.world import RpcError

END, START = -1, -2
"""Stand for the ends of a log in ``Admin.list_offsets``."""


@dataclass(frozen=True, slots=True)
class Measures:
    """What is missing in a dictionary is not known; ``troubles`` says why."""

    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]
    sizes_bytes: dict[TopicPartition, int]
    """The size of the leader's replica."""
    troubles: tuple[SteleError | RpcError, ...]

    @property
    def offsets_held(self) -> int:
        """The offsets between start and end of all partitions."""
        return sum(end - self.starts.get(name, end) for name, end in self.ends.items())


async def measure(admin: Admin, topic: str, partitions: Sequence[PartitionDescription]) -> Measures:
    """Partitions without a leader have no offsets."""
    troubles: list[SteleError | RpcError] = []
    led = {
        TopicPartition(topic, each.partition): each.leader
        for each in partitions
        if each.leader is not None
    }
    starts: dict[TopicPartition, int] = {}
    ends: dict[TopicPartition, int] = {}
    try:
        starts = await offsets_at(admin, list(led), START)
        ends = await offsets_at(admin, list(led), END)
    except (SteleError, RpcError) as error:
        troubles.append(error)
    sizes: dict[TopicPartition, int] = {}
    try:
        sizes = await leader_sizes(admin, led)
    except (SteleError, RpcError) as error:
        troubles.append(error)
    return Measures(starts, ends, sizes, tuple(troubles))


async def offsets_at(
    admin: Admin, partitions: Sequence[TopicPartition], place: int
) -> dict[TopicPartition, int]:
    """Raises SteleError."""
    if not partitions:
        return {}
    found = await admin.list_offsets(dict.fromkeys(partitions, place))
    return {name: each.offset for name, each in found.items()}


async def leader_sizes(admin: Admin, led: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
    """By partition, for the leader of each. Raises SteleError."""
    if not led:
        return {}
    return {
        each.partition: each.size_bytes
        for directory in await admin.describe_log_dirs(sorted(set(led.values())), sorted(led))
        for each in directory.replicas
        if led.get(each.partition) == directory.broker_id
        and not each.is_future
        and each.size_bytes >= 0
    }
