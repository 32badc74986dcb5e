"""The work of a run on a share group that begins behind: more records than it may have in flight
wait for it, and the first of them is poison."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from chaos.sim.partition_name import PartitionName
from chaos.sim.work.lag_reader import LagReader
from chaos.sim.work.load import Part
from chaos.sim.work.share_crew import LEAST_SETTINGS, ShareCrew, Shared, make_coordinators
from chaos.sim.work.share_worker import POISON
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work

BACKLOG: Final = "backlog"
CATCHERS: Final = "catchers-up"
_LOCKS: Final = 100
_LAG_PAUSE_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class BacklogLoad(Part):
    """How much waits for the group."""

    label: ClassVar = "backlog"

    members: int = 0
    batches: int = 6
    batch_records: int = 40
    delivery_limit: int = 5
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def draw(cls, rng: random.Random) -> BacklogLoad:
        """A fifth of the runs have it."""
        if rng.random() >= 0.2:
            return cls()
        return cls(
            members=rng.choice([2, 3]),
            batch_records=rng.choice([30, 70]),
            delivery_limit=rng.choice([3, 5]),
            settings=tuple(LEAST_SETTINGS.items()),
        )

    @property
    def is_there(self) -> bool:
        return self.members > 0


class BacklogWork(Work):
    """While the first record is delivered again and again, the window is full."""

    name = "backlog"
    load = BacklogLoad
    outlasts = True

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        load = self._load = site.load.part(BacklogLoad)
        shared = Shared(CATCHERS, BACKLOG, 1, load.delivery_limit)
        self._crew = ShareCrew(site, shared, load.members, "catcher", self.counts, self._deliver)
        self._lags = LagReader.of(site, shared, self.counts)
        self._end = 0

    def _deliver(self, place: PartitionName, offset: int, value: bytes) -> None:
        self.counts["shared records of a backlog"] += 1
        self.site.read(*place, offset, value)

    @property
    def partitions(self) -> list[PartitionName]:
        return self._crew.places

    async def prepare(self) -> None:
        """Write all records, before anybody reads."""
        site, load = self.site, self._load
        least = {"min.insync.replicas": str(site.load.min_insync)}
        await site.cluster.client.create_topic(BACKLOG, partitions=1, configs=least)
        await make_coordinators(site, 1 << 20)
        await site.cluster.until_isr(BACKLOG, 3)
        await self._crew.configure(
            share_partition_max_record_locks=str(_LOCKS),
            share_record_lock_duration_ms="1000",
            share_session_timeout_ms="3000",
            share_heartbeat_interval_ms="400",
            share_delivery_count_limit=str(load.delivery_limit),
        )
        producer = site.patient_producer(linger_ms=50)
        for batch in range(load.batches):
            sent = []
            for number in range(load.batch_records):
                kind = b"<job" if batch or number else POISON
                value = b"%b-%d-%d>" % (kind, batch, number)
                sent.append((value, await producer.send(BACKLOG, value, partition=0)))
            for value, delivery in sent:
                told = await delivery
                site.promise(BACKLOG, told.partition, told.offset, value)
                self._end = max(self._end, told.offset + 1)
        await producer.close()

    def start(self) -> list[Coroutine[Any, Any, None]]:
        return [self._lags.run(_LAG_PAUSE_S), *self._crew.start()]

    async def finish(self) -> None:
        await self._crew.finish(lambda: {(BACKLOG, 0): self._end})
