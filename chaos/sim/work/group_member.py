"""A member of a group of the classic protocol, which may leave, die, or stand still."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from chaos.sim.laws.committed_offsets import Change, CommittedOffsetsStay, Place
from chaos.sim.laws.generations import Membership, Partition, PartitionsHaveOneOwner
from chaos.sim.work.group_client import DECIDED, NO_MEMBER, GroupClient
from chaos.sim.work.log_reader import LogReader
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import join_group

_NO_GENERATION: Final = -1
_ROUND_S: Final = 0.25


@dataclass(slots=True)
class Group:
    """What the members of one group share with the judge."""

    group_id: str
    topics: Mapping[str, int]
    """The topics that it reads, with the number of their partitions."""
    offsets: CommittedOffsetsStay
    owners: PartitionsHaveOneOwner
    deliver: Callable[[Partition, int, bytes], None]
    """A member has got this record."""
    report: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)
    delivered: dict[Partition, set[int]] = field(default_factory=dict)
    doubtful: set[Partition] = field(default_factory=set)
    """Partitions with a commit of unknown outcome, which may take effect after newer ones."""
    commits: Iterator[int] = field(default_factory=itertools.count)

    @property
    def partitions(self) -> list[Partition]:
        return [(topic, n) for topic, count in self.topics.items() for n in range(count)]

    def label(self) -> str:
        """The metadata of a commit, by which it is known again."""
        return f"commit {next(self.commits)}"

    def commit_asked(self, partition: Partition, offset: int, label: str) -> Change:
        place = Place(self.group_id, *partition)
        return self.offsets.commit_asked(place, f"{offset} by {label}")


@dataclass(slots=True)
class Member:
    """``run`` until ``is_over``. From ``is_calm`` on it stays in the group and reads on."""

    group: Group
    client: GroupClient
    reader: LogReader
    rng: random.Random
    instance_id: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int
    positions: dict[Partition, int] = field(default_factory=dict)
    """Of the partitions that it owns."""
    me: Membership = field(init=False)
    _committed: dict[Partition, int] = field(default_factory=dict)
    """The highest offsets that it has committed itself."""
    _changes: int = 0  # of its metadata
    _ghost: tuple[Membership, dict[Partition, int]] | None = None
    """A former life, or a former generation, which still may commit what it had read."""

    def __post_init__(self) -> None:
        self._forget()

    async def run(self, is_calm: Callable[[], bool], is_over: Callable[[], bool]) -> None:
        while not is_over():
            try:
                await self._live(is_calm, is_over)
            except (ApiError, OSError):
                self.group.counts["group requests without an answer"] += 1
            self.positions = {}
            await asyncio.sleep(self.rng.uniform(0.1, 0.4))
        self.client.connections.close()

    def _forget(self) -> None:
        """Be a new process: the next join is one of nobody known."""
        self.me = Membership(self.group.group_id, _NO_GENERATION, NO_MEMBER, self.instance_id)

    async def _live(self, is_calm: Callable[[], bool], is_over: Callable[[], bool]) -> None:
        """One generation, from joining to the end of it."""
        if not await self._join():
            return
        await self._find_positions()
        while not is_over():
            await self._read()
            if self.rng.random() < 0.4:
                await self._commit(self.me, self.positions)
            error = await self._beat(self.me)
            if error is ErrorCode.REBALANCE_IN_PROGRESS:
                await self._commit(self.me, self.positions)
            if not self._goes_on(error):
                return
            if not is_calm() and self.rng.random() < 0.25:
                acts = [self._leave, self._die, self._stand_still, self._hurry, self._hurry]
                if await self.rng.choice(acts)():
                    return
            if self._ghost is not None and self.rng.random() < 0.5:
                await self._haunt()
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * _ROUND_S)

    # ------------------------------------------------------------------------- joining

    async def _join(self) -> bool:
        """Become a member of a generation, with its assignment."""
        answer = await self.client.join(
            self.me.member_id,
            self.instance_id,
            self.group.topics,
            self._changes,
            session_timeout_ms=self.session_timeout_ms,
            rebalance_timeout_ms=self.rebalance_timeout_ms,
        )
        error = ErrorCode(answer.error_code)
        if error in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.me = self.me._replace(member_id=answer.member_id, generation=answer.generation_id)
        elif error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self._forget()
        if error is not ErrorCode.NONE:
            return False
        is_leader = answer.leader == answer.member_id and not answer.skip_assignment
        assignments = self._divided(answer.members) if is_leader else {}
        timeout_s = 2 * self.rebalance_timeout_ms / 1000
        error, partitions = await self.client.sync(self.me, assignments, timeout_s)
        if not self._goes_on(error):
            return False
        self.group.owners.assigned(self.me, partitions)
        self.positions = dict.fromkeys(partitions, 0)
        self.group.counts["assignments of groups"] += 1
        return True

    def _divided(
        self, members: list[join_group.JoinGroupResponseMember]
    ) -> dict[str, list[Partition]]:
        """Give each partition to one of the members."""
        shares: dict[str, list[Partition]] = {each.member_id: [] for each in members}
        names = list(shares)
        self.rng.shuffle(names)
        for number, partition in enumerate(self.group.partitions):
            shares[names[number % len(names)]].append(partition)
        return shares

    def _goes_on(self, error: ErrorCode) -> bool:
        """Whether the member can go on in its generation."""
        if error in (
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.FENCED_INSTANCE_ID,
        ):
            self._forget()
        return error is ErrorCode.NONE

    async def _find_positions(self) -> None:
        if not self.positions:
            return
        began = self.group.offsets.fetch_asked()
        found = await self.client.fetch(self.positions, require_stable=self.rng.random() < 0.5)
        for partition, committed in found.items():
            told = None if committed is None else f"{committed[0]} by {committed[1]}"
            self.group.offsets.fetched(Place(self.group.group_id, *partition), told, began)
            self.positions[partition] = 0 if committed is None else committed[0]
        if len(found) < len(self.positions):
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # ------------------------------------------------------------------------- reading

    async def _read(self) -> None:
        for partition, read in (await self.reader.read(self.positions)).items():
            known = self.group.delivered.setdefault(partition, set())
            for record in read.records:
                known.add(record.offset)
                self.group.deliver(partition, record.offset, bytes(record.value or b""))
                self._judge(partition, record.offset)
            self.positions[partition] = read.next_offset

    def _judge(self, partition: Partition, offset: int) -> None:
        """Nothing that a member has committed comes to it again."""
        committed = self._committed.get(partition, 0)
        if offset < committed and partition not in self.group.doubtful:
            self.group.report(
                f"group {self.group.group_id}: {partition} {offset} was delivered again to the "
                f"member that had committed {committed}"
            )

    async def _commit(self, member: Membership, positions: Mapping[Partition, int]) -> bool:
        """Whether the member may go on, as far as it knows."""
        if not positions:
            return True
        group, label = self.group, self.group.label()
        was_over = group.owners.is_over(member)
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
                group.owners.accepted(member, "a commit", was_over=was_over)
                group.counts["offsets committed"] += 1
                highest = max(self._committed.get(partition, 0), positions[partition])
                self._committed[partition] = highest
            elif error in DECIDED:
                asked[partition].refused()
                group.owners.refused(was_over=was_over)
                group.counts["commits refused"] += 1
            else:
                group.doubtful.add(partition)
        return all(error is ErrorCode.NONE for error in told.values())

    async def _beat(self, member: Membership) -> ErrorCode:
        was_over = self.group.owners.is_over(member)
        error = await self.client.beat(member)
        if error is ErrorCode.NONE:
            self.group.owners.accepted(member, "a heartbeat", was_over=was_over)
        else:
            self.group.owners.refused(was_over=was_over)
        return error

    # ------------------------------------------------------------------------- misbehaving

    async def _leave(self) -> bool:
        if self.rng.random() < 0.5:
            await self._commit(self.me, self.positions)
        await self.client.leave(self.me)
        self.group.counts["members left"] += 1
        self._forget()
        await asyncio.sleep(self.rng.uniform(0.0, 2.0))
        return True

    async def _die(self) -> bool:
        """The coordinator has to find out. Sometimes a commit is still under way."""
        self.group.counts["members died"] += 1
        if self.rng.random() < 0.5:
            self._ghost = self.me, dict(self.positions)
        self._forget()
        self.client.connections.close()
        await asyncio.sleep(self.rng.choice([0.0, 0.3, self._absence_s()]))
        return True

    async def _stand_still(self) -> bool:
        """Go on after a while as if nothing had been, and commit first."""
        self.group.counts["members stood still"] += 1
        await asyncio.sleep(self._absence_s())
        await self._commit(self.me, self.positions)
        return False

    async def _hurry(self) -> bool:
        """Join again with other metadata, so that there is another generation. A commit of this one
        may come late."""
        self._changes += 1
        self._ghost = self.me, dict(self.positions)
        return True

    async def _haunt(self) -> None:
        assert self._ghost is not None
        (ghost, positions), self._ghost = self._ghost, None
        if not self.group.owners.is_over(ghost):  # it may be taken, after newer commits
            self.group.doubtful |= set(positions)
        await self._commit(ghost, positions)
        await self._beat(ghost)

    def _absence_s(self) -> float:
        return self.rng.uniform(0.8, 2.0) * self.session_timeout_ms / 1000
