"""What members of both protocols do with the partitions that they own: read them, and commit."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from chaos.sim.laws.committed_offsets import CommittedOffsetsStay, OffsetChange, Place
from chaos.sim.laws.generations import Membership
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.group_client import DECIDED, GroupClient
from chaos.sim.work.log_reader import LogReader
from stele.errors import ApiError, ErrorCode


class Owners(Protocol):
    """A law that knows in whose name nobody may commit any more."""

    def has_lost(self, member: Membership, partition: PartitionName) -> bool: ...

    def accepted(self, member: Membership, what: str, *, was_over: bool) -> None: ...

    def refused(self, *, was_over: bool) -> None: ...


@dataclass(slots=True)
class Group:
    """What the members of one group share with the judge."""

    group_id: str
    topics: Mapping[str, int]
    """The topics that it reads, with the number of their partitions."""
    offsets: CommittedOffsetsStay
    owners: Owners
    deliver: Callable[[PartitionName, int, bytes], None]
    """A member has got this record."""
    report: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)
    delivered: dict[PartitionName, set[int]] = field(default_factory=dict)
    doubtful: set[PartitionName] = field(default_factory=set)
    """Partitions with a commit of unknown outcome, which may take effect after newer ones."""
    commits: Iterator[int] = field(default_factory=itertools.count)

    @property
    def partitions(self) -> list[PartitionName]:
        return [(topic, n) for topic, count in self.topics.items() for n in range(count)]

    def label(self) -> str:
        """The metadata of a commit, by which it is known again."""
        return f"commit {next(self.commits)}"

    def commit_asked(self, partition: PartitionName, offset: int, label: str) -> OffsetChange:
        place = Place(self.group_id, *partition)
        return self.offsets.commit_asked(place, f"{offset} by {label}")


@dataclass(slots=True)
class GroupReader:
    """The part of a member that reads."""

    group: Group
    client: GroupClient
    reader: LogReader
    rng: random.Random
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    positions: dict[PartitionName, int] = field(default_factory=dict)
    """The positions in the partitions that the reader owns."""
    _committed: dict[PartitionName, int] = field(default_factory=dict)
    """The highest offsets that it has committed itself."""

    async def find_positions(
        self, partitions: Iterable[PartitionName], member: Membership | None = None
    ) -> None:
        """Go on where the group has committed. ``member`` has to be a member in this epoch. Raises
        ApiError, OSError."""
        partitions = list(partitions)
        if not partitions:
            return
        began = self.group.offsets.fetch_asked()
        found = await self.client.fetch(
            partitions, require_stable=self.rng.random() < 0.5, member=member
        )
        for partition, committed in found.items():
            told = None if committed is None else f"{committed[0]} by {committed[1]}"
            self.group.offsets.fetched(Place(self.group.group_id, *partition), told, began)
            self.positions[partition] = 0 if committed is None else committed[0]
        if len(found) < len(partitions):
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def read(self) -> None:
        for partition, read in (await self.reader.read(self.positions)).items():
            known = self.group.delivered.setdefault(partition, set())
            for record in read.records:
                known.add(record.offset)
                self.group.deliver(partition, record.offset, bytes(record.value or b""))
                self._judge(partition, record.offset)
            self.positions[partition] = read.next_offset

    def _judge(self, partition: PartitionName, offset: int) -> None:
        """Nothing that a member has committed comes to it again."""
        committed = self._committed.get(partition, 0)
        if offset < committed and partition not in self.group.doubtful:
            self.group.report(
                f"group {self.group.group_id}: {partition} {offset} was delivered again to the "
                f"member that had committed {committed}"
            )

    async def commit(self, member: Membership, positions: Mapping[PartitionName, int]) -> bool:
        """Whether the member may go on, as far as it knows."""
        if not positions:
            return True
        group, label = self.group, self.group.label()
        lost = {partition: group.owners.has_lost(member, partition) for partition in positions}
        asked = {
            partition: group.commit_asked(partition, offset, label)
            for partition, offset in positions.items()
        }
        offsets = {partition: (offset, label) for partition, offset in positions.items()}
        try:
            told = await self.client.commit(offsets, member)
        except (ApiError, OSError):
            group.doubtful |= set(positions)
            raise
        for partition, error in told.items():
            if error is ErrorCode.NONE:
                asked[partition].confirmed()
                group.owners.accepted(member, "a commit", was_over=lost[partition])
                group.counts["offsets committed"] += 1
                highest = max(self._committed.get(partition, 0), positions[partition])
                self._committed[partition] = highest
            elif error in DECIDED:
                asked[partition].refused()
                group.owners.refused(was_over=lost[partition])
                group.counts["commits refused"] += 1
            else:
                group.doubtful.add(partition)
        return all(error is ErrorCode.NONE for error in told.values())

    def absence_s(self) -> float:
        """So long a member stands still that its session may end."""
        return self.rng.uniform(0.8, 2.0) * self.session_timeout_ms / 1000
