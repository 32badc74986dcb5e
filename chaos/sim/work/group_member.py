"""A member of a group of the classic protocol, which may leave, die, or stand still."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

from chaos.sim.laws.generations import Membership
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.group_client import NO_MEMBER
from chaos.sim.work.group_reader import GroupReader, Owners
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import join_group

_NO_GENERATION: Final = -1
_ROUND_S: Final = 0.25


class Generations(Owners, Protocol):
    """A law that knows which member has each partition in each generation."""

    def asks(self) -> int: ...

    def assigned(
        self, member: Membership, partitions: Collection[PartitionName], asked: int, /
    ) -> None: ...

    def gave_up(self, member: Membership, partitions: Collection[PartitionName]) -> None: ...

    def is_over(self, member: Membership) -> bool: ...


@dataclass(slots=True)
class Member(GroupReader):
    """``run`` until ``is_over``. From ``is_calm`` on it stays in the group and reads on. It gives
    up all partitions before it joins again."""

    owners: Generations = field(kw_only=True)
    me: Membership = field(init=False)
    _changes: int = 0  # of its metadata
    _ghost: tuple[Membership, dict[PartitionName, int]] | None = None
    """A former life, or a former generation, which still may commit what it had read."""

    def __post_init__(self) -> None:
        self._forget()

    async def run(self, is_calm: Callable[[], bool], is_over: Callable[[], bool]) -> None:
        while not is_over():
            try:
                await self._live(is_calm, is_over)
            except (ApiError, OSError):
                self.group.counts["group requests without an answer"] += 1
            self.owners.gave_up(self.me, self.positions)
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
        await self.find_positions(self.positions)
        while not is_over():
            await self.read()
            if self.rng.random() < 0.4:
                await self.commit(self.me, self.positions)
            error = await self._beat(self.me)
            if error is ErrorCode.REBALANCE_IN_PROGRESS:
                await self.commit(self.me, self.positions)
            if not self._goes_on(error):
                return
            if not is_calm() and self.rng.random() < 0.25:
                acts = [self.leave, self._die, self._stand_still, self._hurry, self._hurry]
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
        asked = self.owners.asks()
        error, partitions = await self.client.sync(self.me, assignments, timeout_s)
        if not self._goes_on(error):
            return False
        self.owners.assigned(self.me, partitions, asked)
        self.positions = dict.fromkeys(partitions, 0)
        self.group.counts["assignments of groups"] += 1
        return True

    def _divided(
        self, members: list[join_group.JoinGroupResponseMember]
    ) -> dict[str, list[PartitionName]]:
        """Give each partition to one of the members."""
        shares: dict[str, list[PartitionName]] = {each.member_id: [] for each in members}
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

    # ------------------------------------------------------------------------- staying

    async def _beat(self, member: Membership) -> ErrorCode:
        was_over = self.owners.is_over(member)
        error = await self.client.beat(member)
        if error is ErrorCode.NONE:
            self.owners.accepted(member, "a heartbeat", was_over=was_over)
        else:
            self.owners.refused(was_over=was_over)
        return error

    # ------------------------------------------------------------------------- misbehaving

    async def leave(self) -> bool:
        if self.rng.random() < 0.5:
            await self.commit(self.me, self.positions)
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
        await asyncio.sleep(self.rng.choice([0.0, 0.3, self.absence_s()]))
        return True

    async def _stand_still(self) -> bool:
        """Go on after a while as if nothing had been, and commit first."""
        self.group.counts["members stood still"] += 1
        await asyncio.sleep(self.absence_s())
        await self.commit(self.me, self.positions)
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
        if not self.owners.is_over(ghost):  # it may be taken, after newer commits
            self.group.doubtful |= set(positions)
        await self.commit(ghost, positions)
        await self._beat(ghost)
