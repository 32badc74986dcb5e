"""The place of a transactional producer in the group whose offsets it commits (KIP-447)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

from chaos.sim.laws.generations import Membership, PartitionsHaveOneOwner
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.group_client import NO_MEMBER, GroupClient
from stele.errors import ErrorCode
from stele.wire.kafka.messages import join_group

_NO_GENERATION: Final = -1
_SESSION_MS: Final = 1500
_REBALANCE_MS: Final = 2000


@dataclass(slots=True)
class Seat:
    """A member of the classic protocol. Its offsets are refused once another generation has
    begun."""

    client: GroupClient
    shared: list[PartitionName]
    """What all members share."""
    owners: PartitionsHaveOneOwner
    rng: random.Random
    partitions: list[PartitionName] = field(default_factory=list)
    """What it owns in its generation."""
    me: Membership = field(init=False)

    def __post_init__(self) -> None:
        self.leave()

    def leave(self) -> None:
        """Be a new process, which nobody knows. The coordinator has to find out."""
        self.me = Membership(self.client.group_id, _NO_GENERATION, NO_MEMBER, None)
        self.partitions = []

    async def keep(self) -> bool:
        """Join, or stay. Whether the seat is the one of before. Raises ApiError, OSError."""
        if self.me.generation == _NO_GENERATION or not await self._beat():
            await self._join()
            return False
        return True

    async def _beat(self) -> bool:
        was_over = self.is_over
        error = await self.client.beat(self.me)
        self.told(error, "a heartbeat", was_over=was_over)
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.leave()
        return error is ErrorCode.NONE

    async def _join(self) -> None:
        self.partitions = []
        answer = await self.client.join(
            self.me.member_id,
            None,
            sorted({topic for topic, _ in self.shared}),
            0,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_REBALANCE_MS,
        )
        error = ErrorCode(answer.error_code)
        if error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.leave()
        elif error is ErrorCode.MEMBER_ID_REQUIRED:
            self.me = self.me._replace(member_id=answer.member_id)
        if error is not ErrorCode.NONE:
            return
        me = self.me._replace(member_id=answer.member_id, generation=answer.generation_id)
        is_leader = answer.leader == answer.member_id and not answer.skip_assignment
        assignments = self._divided(answer.members) if is_leader else {}
        asked = self.owners.asks()
        error, partitions = await self.client.sync(me, assignments, 2 * _REBALANCE_MS / 1000)
        if error is ErrorCode.NONE:
            self.owners.assigned(me, partitions, asked)
            self.me, self.partitions = me, partitions
        elif error is ErrorCode.UNKNOWN_MEMBER_ID:
            self.leave()

    def _divided(
        self, members: list[join_group.JoinGroupResponseMember]
    ) -> dict[str, list[PartitionName]]:
        shares: dict[str, list[PartitionName]] = {each.member_id: [] for each in members}
        names = list(shares)
        self.rng.shuffle(names)
        for number, partition in enumerate(self.shared):
            shares[names[number % len(names)]].append(partition)
        return shares

    @property
    def is_over(self) -> bool:
        return self.owners.is_over(self.me)

    def told(self, error: ErrorCode, what: str, *, was_over: bool) -> None:
        """The coordinator's answer to a request of this member."""
        if error is ErrorCode.NONE:
            self.owners.accepted(self.me, what, was_over=was_over)
        else:
            self.owners.refused(was_over=was_over)
