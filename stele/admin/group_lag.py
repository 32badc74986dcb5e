"""The progress of a group in each partition, and the member that reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import NamedTuple

from stele.admin.groups import (
    SHARE,
    CommittedOffset,
    GroupAdmin,
    GroupDescription,
    MemberDescription,
)
from stele.consumer.offset_lookup import OffsetLookup
from stele.consumer.positions import LATEST
from stele.ids import TopicPartition


class PartitionLag(NamedTuple):
    """A partition that a group has committed an offset for, or that a member reads."""

    partition: TopicPartition
    committed: CommittedOffset | None
    log_end_offset: int | None  # None: the partition is gone, or has no leader
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """The number of offsets between the committed one and the end; None if one is missing."""
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


async def find_lags(
    groups: Sequence[GroupDescription],
    admin: GroupAdmin,
    lookup: OffsetLookup,
    led: Set[TopicPartition],
) -> dict[str, list[PartitionLag]]:
    """By group. ``led``: the partitions whose leaders can be asked for the end of the log."""
    # A share group commits no offsets.
    committed = {
        each.group_id: {} if each.type == SHARE else await admin.list_offsets(each.group_id)
        for each in groups
    }
    wanted = {name for offsets in committed.values() for name in offsets}
    for group in groups:
        wanted |= {name for member in group.members for name in member.assignment}
    found = await lookup.offsets(dict.fromkeys(sorted(wanted & led), LATEST))
    ends = {name: each.offset for name, each in found.items()}
    return {each.group_id: lags(each, committed[each.group_id], ends) for each in groups}
