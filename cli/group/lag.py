"""How far a group has read each partition, and who reads it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from stele.ids import TopicPartition

if TYPE_CHECKING:
    from stele.admin.groups import CommittedOffset, GroupDescription, MemberDescription
    from stele.sync import Admin

END = -1
"""Stands for the end of a log in ``Admin.list_offsets``."""


class PartitionLag(NamedTuple):
    """A partition that a group has committed an offset for, or that a member reads."""

    partition: TopicPartition
    committed: CommittedOffset | None
    log_end_offset: int | None  # None: the partition is gone, or has no leader
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        if self.committed is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.committed.offset


def lags(
    group: GroupDescription,
    committed: Mapping[TopicPartition, CommittedOffset],
    ends: Mapping[TopicPartition, int],
) -> list[PartitionLag]:
    """In order of the partitions."""
    members = {name: member for member in group.members for name in member.assignment}
    return [
        PartitionLag(name, committed.get(name), ends.get(name), members.get(name))
        for name in sorted(committed.keys() | members.keys())
    ]


def log_ends(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The ends of the logs, without partitions that are gone or have no leader."""
    wanted = set(partitions)
    if not wanted:
        return {}
    led = {
        TopicPartition(topic.name, each.partition): END
        for topic in admin.list_topics()
        for each in topic.partitions
        if each.leader is not None
    }
    asked = {name: led[name] for name in sorted(wanted & led.keys())}
    return {name: found.offset for name, found in admin.list_offsets(asked).items()}


def assignment_text(partitions: Sequence[TopicPartition]) -> str:
    """``t:0,1;u:0``, as Kafka's tool prints it."""
    by_topic: dict[str, list[str]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(str(number))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items())
