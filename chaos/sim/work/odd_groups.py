"""Members of a group that do what no client does. They must not harm other members."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.connections import Connections
from chaos.sim.work.group_client import ELSEWHERE, GroupClient
from metadata.internal_topics import GROUP_TOPIC
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_GROUP: Final = "odd"
_JOINS, _LEAVES = 0, -1  # member epochs
_REBALANCE_MS: Final = 5_000
_LARGE_EVERY: Final = 10  # acts
_LARGE_SESSION_MS: Final = 60_000  # longer than a session of the consumer protocol
_LARGE_MEMBERS: Final = 10
_LARGE_BYTES: Final = 110_000
"""A record of ``_LARGE_MEMBERS`` subscriptions of this size fits into no batch."""


@dataclass(slots=True)
class OddGroup:
    """Call ``run``. It has a group of its own, as far as there are groups in the run."""

    cluster: SimCluster
    rng: random.Random
    topic: str
    report: Callable[[str], None]
    counts: Counter[str] = field(default_factory=Counter)
    _numbers: int = 0

    async def run(self, pause_s: float, is_done: Callable[[], bool]) -> None:
        client = GroupClient(_GROUP, Connections.of(self.cluster, "odd group"), self.rng)
        while not is_done():
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause_s)
            if self.cluster.image.topic(GROUP_TOPIC) is None:
                continue  # it would be made for this group alone
            self._numbers += 1
            try:
                await self._change_instance(client, self._numbers)
                if self._numbers % _LARGE_EVERY == 1:
                    await self._leave_large_members(self._numbers)
            except (ApiError, OSError):
                self.counts["odd group requests without an answer"] += 1
        client.connections.close()

    async def _leave_large_members(self, number: int) -> None:
        """The only member of the consumer protocol falls silent in a group of classic members whose
        subscriptions are large. The group cannot become a classic one."""
        large = GroupClient(f"large-{number}", Connections.of(self.cluster, "odd group"), self.rng)
        try:
            error = await self._beat(large, "silent", _JOINS, None)
            if error is not ErrorCode.NONE:
                return
            for change in range(_LARGE_MEMBERS):
                if not await self._join_large(large, change):
                    return
            self.counts["groups with large members"] += 1
        finally:
            large.connections.close()

    async def _change_instance(self, client: GroupClient, number: int) -> None:
        """A member exchanges its instance id for another one, and leaves. The first id is free."""
        first, second = f"first-{number}", f"second-{number}"
        one, other = f"one-{number}", f"other-{number}"
        for member_id, epoch, instance_id in (
            (one, _JOINS, first),
            (one, _JOINS, second),
            (one, _LEAVES, second),
            (other, _JOINS, first),
        ):
            error = await self._beat(client, member_id, epoch, instance_id)
            if error is ErrorCode.UNKNOWN_MEMBER_ID and epoch == _LEAVES:
                continue  # its session is over
            if error in ELSEWHERE:
                return
            if error is not ErrorCode.NONE:
                self.report(f"{member_id} comes as {instance_id} and is told {error.name}")
                return
        self.counts["instance ids exchanged"] += 1
        await self._beat(client, other, _LEAVES, first)

    async def _join_large(self, client: GroupClient, change: int) -> bool:
        """Whether a classic member with a large subscription has joined."""
        answer, error = None, ErrorCode.MEMBER_ID_REQUIRED
        while error is ErrorCode.MEMBER_ID_REQUIRED:
            answer = await client.join(
                "" if answer is None else answer.member_id,
                None,
                [self.topic],
                change,
                session_timeout_ms=_LARGE_SESSION_MS,
                rebalance_timeout_ms=_REBALANCE_MS,
                padding=_LARGE_BYTES,
            )
            error = ErrorCode(answer.error_code)
        return error is ErrorCode.NONE

    async def _beat(
        self, client: GroupClient, member_id: str, epoch: int, instance_id: str | None
    ) -> ErrorCode:
        joins = epoch == _JOINS
        request = ConsumerGroupHeartbeatRequest(
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance_id,
            rebalance_timeout_ms=_REBALANCE_MS if joins else -1,
            subscribed_topic_names=[self.topic] if joins else None,
            topic_partitions=[] if joins else None,
        )
        return ErrorCode((await client.consumer_beat(request)).error_code)
