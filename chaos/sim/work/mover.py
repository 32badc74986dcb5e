"""A member that changes its group protocol, as when an application is upgraded, or rolled back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from chaos.sim.laws.generations import Membership
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.consumer_member import ConsumerMember
from chaos.sim.work.group_member import Member
from stele.errors import ApiError

_LIFE_S = (1.0, 8.0)


@dataclass(slots=True)
class Mover:
    """``run`` until ``is_over``. From ``is_calm`` on it keeps the protocol that it has. In each
    life it is a new process of one protocol, which often succeeds one that was killed."""

    classic: Callable[[], Member]
    consumer: Callable[[], ConsumerMember]
    rng: random.Random
    _now: Member | ConsumerMember = field(init=False)

    def __post_init__(self) -> None:
        self._now = self._born()

    def _born(self) -> Member | ConsumerMember:
        return self.rng.choice((self.classic, self.consumer))()

    @property
    def me(self) -> Membership:
        return self._now.me

    @property
    def positions(self) -> dict[PartitionName, int]:
        return self._now.positions

    async def run(self, is_calm: Callable[[], bool], is_over: Callable[[], bool]) -> None:
        await self._live(is_calm, is_over)
        while not is_over():
            self._now = self._born()
            await self._live(is_calm, is_over)

    async def _live(self, is_calm: Callable[[], bool], is_over: Callable[[], bool]) -> None:
        now, loop = self._now, asyncio.get_running_loop()
        end = loop.time() + self.rng.uniform(*_LIFE_S)
        await now.run(is_calm, lambda: is_over() or (not is_calm() and loop.time() > end))
        if is_over():
            return
        now.group.counts["protocols drawn again"] += 1
        if self.rng.random() < 0.5:
            try:
                await now.leave()
            except (ApiError, OSError):
                now.group.counts["group requests without an answer"] += 1
