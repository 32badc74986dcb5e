"""Consumers that read from any replica, leader or not (KIP-392)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from chaos.sim.cluster.client import SimClient
from chaos.sim.laws.members import MembersHaveEverything
from chaos.sim.laws.served_readers import ReadersAreServed
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.load import Part
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from stele.errors import ApiError

Deliver = Callable[[str, int, int, bytes], None]


@dataclass(frozen=True, slots=True)
class AnyReplicaLoad(Part):
    """How many such consumers there are."""

    label: ClassVar = "any replica"

    readers: int = 0
    pause_s: float = 0.1

    @classmethod
    def draw(cls, rng: random.Random) -> AnyReplicaLoad:
        return cls(rng.choice([0, 0, 1, 2]), rng.choice([0.05, 0.2]))

    @property
    def is_there(self) -> bool:
        return self.readers > 0


@dataclass(slots=True)
class AnyReplicaReader:
    """Reads every partition from its start, each time from a random broker.

    Whatever a replica shows, ``deliver`` gets: what a consumer has read once is committed, and
    stays in the log for ever.
    """

    client: SimClient
    rng: random.Random
    brokers: Sequence[int]
    partitions: Sequence[PartitionName]
    deliver: Deliver
    shown: Callable[[str, int, int], None]
    """A broker has shown the records of a partition below an offset."""
    refused: Callable[[str, int, int, int, float], None]
    """A broker has refused to show a partition: with this error, after so many seconds."""
    counts: Counter[str] = field(default_factory=Counter)
    _positions: dict[PartitionName, int] = field(default_factory=dict)

    async def run(self, pause_s: float, is_done: Callable[[], bool]) -> None:
        while not is_done():
            await asyncio.sleep(self.rng.uniform(0.0, 2.0) * pause_s)
            await self._read(self.rng.choice(self.partitions), self.rng.choice(self.brokers))

    async def _read(self, place: PartitionName, broker: int) -> None:
        topic, partition = place
        offset = self._positions.get(place, 0)
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        try:
            records, next_offset = await self.client.fetch_from_any(
                topic, partition, offset, broker=broker
            )
        except (ApiError, OSError) as error:
            self.counts["reads that replicas refused"] += 1
            if isinstance(error, ApiError):
                self.refused(topic, partition, broker, error.code, loop.time() - asked_at)
            return
        self.counts["reads from any replica"] += 1
        self.counts["records read from any replica"] += len(records)
        if records:
            self.shown(topic, partition, next_offset)
        for position, value in records:
            self.deliver(topic, partition, position, value)
        self._positions[place] = max(offset, next_offset)


class AnyReplicaReaders(Work):
    name = "consumers that read from any replica"
    load = AnyReplicaLoad

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._load = site.load.part(AnyReplicaLoad)
        self._readers = [
            AnyReplicaReader(
                site.client,
                site.rngs.of(f"any replica {number}"),
                sorted(site.cluster.brokers),
                site.partitions,
                site.read,
                site.law(MembersHaveEverything).shown,
                site.law(ReadersAreServed).refused,
                self.counts,
            )
            for number in range(self._load.readers)
        ]

    def start(self) -> list[Coroutine[Any, Any, None]]:
        return [each.run(self._load.pause_s, self.site.is_done) for each in self._readers]
