"""A client that uses a group only to keep offsets: it commits without being a member, goes back as
well as forward, and deletes offsets and the whole group."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from chaos.sim.laws.committed_offsets import CommittedOffsetsStay, Place
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.group_client import DECIDED, GroupClient
from stele.errors import ApiError, ErrorCode

_HIGHEST = 1 << 40


@dataclass(slots=True)
class OffsetKeeper:
    """Several keepers may share a group."""

    name: str
    client: GroupClient
    places: list[PartitionName]
    rng: random.Random
    offsets: CommittedOffsetsStay
    counts: Counter[str] = field(default_factory=Counter)
    fetched: int = 0
    _commits: int = 0

    async def run(self, pause_s: float, is_done: Callable[[], bool]) -> None:
        acts = [self._commit] * 8 + [self._fetch] * 8 + [self._delete_offsets, self._delete_group]
        while not is_done():
            try:
                await self.rng.choice(acts)()
            except (ApiError, OSError):
                self.counts["group requests without an answer"] += 1
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause_s)
        self.client.connections.close()

    def _some(self) -> list[PartitionName]:
        return self.rng.sample(self.places, self.rng.randint(1, min(3, len(self.places))))

    def _place(self, partition: PartitionName) -> Place:
        return Place(self.client.group_id, *partition)

    async def _commit(self) -> None:
        self._commits += 1
        label = f"{self.name} {self._commits}"
        wanted = {each: (self.rng.randrange(_HIGHEST), label) for each in self._some()}
        asked = {
            each: self.offsets.commit_asked(self._place(each), f"{offset} by {label}")
            for each, (offset, _) in wanted.items()
        }
        for partition, error in (await self.client.commit(wanted)).items():
            if error is ErrorCode.NONE:
                asked[partition].confirmed()
                self.counts["offsets committed"] += 1
            elif error in DECIDED:
                asked[partition].refused()

    async def _fetch(self) -> None:
        partitions = self._some()
        began = self.offsets.fetch_asked()
        found = await self.client.fetch(partitions, require_stable=self.rng.random() < 0.3)
        for partition, committed in found.items():
            told = None if committed is None else f"{committed[0]} by {committed[1]}"
            self.offsets.fetched(self._place(partition), told, began)
            self.fetched += 1

    async def _delete_offsets(self) -> None:
        partitions = self._some()
        asked = {each: self.offsets.removal_asked(self._place(each)) for each in partitions}
        for partition, error in (await self.client.delete_offsets(partitions)).items():
            if error is ErrorCode.NONE:
                asked[partition].confirmed()
                self.counts["offsets deleted"] += 1
            elif error in DECIDED:
                asked[partition].refused()

    async def _delete_group(self) -> None:
        asked = [self.offsets.removal_asked(self._place(each)) for each in self.places]
        error = await self.client.delete_group()
        for each in asked:
            if error is ErrorCode.NONE:
                each.confirmed()
            elif error in DECIDED:
                each.refused()
        self.counts["groups deleted"] += error is ErrorCode.NONE
