"""The work of a run on share groups: members that share the records of a topic, and say of each
what became of it. In the end every record is done."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from chaos.sim.laws.dead_letters import DeadLettersAreWrittenOnce
from chaos.sim.laws.shared_records import RecordName
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.lag_reader import LagReader
from chaos.sim.work.load import Part
from chaos.sim.work.share_crew import (
    LEAST_SETTINGS,
    STATE_PARTITIONS,
    ShareCrew,
    Shared,
    make_coordinators,
)
from chaos.sim.work.share_worker import POISON
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from metadata.internal_topics import SHARE_TOPIC

JOBS: Final = "jobs"
GROUP: Final = "sharers"
DEAD: Final = "dlq.jobs"
"""The topic of the group's dead letters."""
_SEND_S = 120.0  # so long a record may take in a cluster that is whole: requests time out after 30
_LAG_PAUSE_S: Final = 0.7


@dataclass(frozen=True, slots=True)
class ShareLoad(Part):
    """How much work there is with share groups."""

    label: ClassVar = "shares"

    members: int = 0
    partitions: int = 1
    batch_records: int = 3
    produce_pause_s: float = 1.0
    poison: float = 0.05  # of the records
    delivery_limit: int = 5
    segment_bytes: int = 1 << 20  # of __share_group_state
    settings: tuple[tuple[str, str], ...] = ()
    dead_partitions: int = 0  # of the topic of dead letters; 0: there is none

    @classmethod
    def draw(cls, rng: random.Random) -> ShareLoad:
        """A quarter of the runs have a share group."""
        if rng.random() >= 0.25:
            return cls()
        lock_ms, limit = rng.choice([1000, 2000]), rng.choice([2, 3, 5])
        session_ms = rng.choice([1500, 3000])
        settings = LEAST_SETTINGS | {
            "group.share.record.lock.duration.ms": str(lock_ms),
            "group.share.delivery.count.limit": str(limit),
            "group.share.partition.max.record.locks": "100",
            "group.share.session.timeout.ms": str(session_ms),
            "group.share.heartbeat.interval.ms": "400",
            "group.share.assignment.interval.ms": str(rng.choice([0, 500])),
            "share.coordinator.snapshot.update.records.per.snapshot": str(rng.choice([0, 3, 20])),
            "share.coordinator.write.timeout.ms": str(rng.choice([1000, 5000])),
        }
        return cls(
            members=rng.choice([2, 3]),
            partitions=rng.choice([1, 2]),
            batch_records=rng.choice([1, 4]),
            produce_pause_s=rng.choice([0.5, 1.5]),
            poison=rng.choice([0.0, 0.03, 0.1]),
            delivery_limit=limit,
            segment_bytes=rng.choice([2000, 1 << 20]),
            settings=tuple(settings.items()),
            dead_partitions=rng.choice([0, 1, 2]),
        )

    @property
    def is_there(self) -> bool:
        return self.members > 0


class ShareWork(Work):
    name = "share groups"
    load = ShareLoad
    outlasts = True

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        load = self._load = site.load.part(ShareLoad)
        self._rng = site.rngs.of("shares: producer")
        self._ends: dict[PartitionName, int] = {}
        self._has_produced = False  # every record is acknowledged, and there will be no more
        shared = Shared(GROUP, JOBS, load.partitions, load.delivery_limit)
        self._crew = ShareCrew(site, shared, load.members, "sharer", self.counts, self._deliver)
        self._law = site.law(DeadLettersAreWrittenOnce)
        self._letters: list[bytes] = []  # their values, which name the records
        self._lags = LagReader.of(site, shared, self.counts)

    def _deliver(self, place: PartitionName, offset: int, value: bytes) -> None:
        self.site.read(*place, offset, value)

    @property
    def partitions(self) -> list[PartitionName]:
        return [
            *self._crew.places,
            *self._dead_places,
            *((SHARE_TOPIC, number) for number in range(STATE_PARTITIONS)),
        ]

    @property
    def _dead_places(self) -> list[PartitionName]:
        return [(DEAD, number) for number in range(self._load.dead_partitions)]

    async def prepare(self) -> None:
        """Make the topics. The coordinators' topics may be there already."""
        cluster, load = self.site.cluster, self._load
        least = str(self.site.load.min_insync)
        await cluster.client.create_topic(
            JOBS, partitions=load.partitions, configs={"min.insync.replicas": least}
        )
        configs = {}
        if load.dead_partitions:
            takes = {"min.insync.replicas": least, "errors.deadletterqueue.group.enable": "true"}
            await cluster.client.create_topic(DEAD, partitions=load.dead_partitions, configs=takes)
            configs["errors_deadletterqueue_topic_name"] = DEAD
        await make_coordinators(self.site, load.segment_bytes)
        for topic, number in self.partitions:
            await cluster.until_isr(topic, 3, number)
        await self._crew.configure(**configs)

    def start(self) -> list[Coroutine[Any, Any, None]]:
        """Members go on until ``finish`` ends them."""
        return [self._produce(), self._lags.run(_LAG_PAUSE_S), *self._crew.start()]

    async def _produce(self) -> None:
        site, rng, load = self.site, self._rng, self._load
        producer = site.patient_producer()
        records = self._crew.records
        number = 0
        while not site.is_done():
            partition = rng.randrange(load.partitions)
            sent = []
            for _ in range(load.batch_records):
                number += 1
                kind = POISON if rng.random() < load.poison else b"<job"
                value = b"%b-%d>" % (kind, number)
                sent_s = site.cluster.simulation.now
                delivery = await producer.send(JOBS, value, partition=partition)
                sent.append((value, sent_s, delivery))
            for value, sent_s, delivery in sent:
                told = await delivery
                site.promise(JOBS, told.partition, told.offset, value)
                place = JOBS, told.partition
                self._ends[place] = max(self._ends.get(place, 0), told.offset + 1)
                records.of(RecordName(GROUP, place, told.offset)).born_s = sent_s
            await site.pause(rng, load.produce_pause_s)
        await producer.close()
        self._has_produced = True

    # ------------------------------------------------------------------------- the end

    async def finish(self) -> None:
        """Wait until every record is done, and until the members share all partitions. Raises
        AssertionError after the timeout."""
        await self.site.cluster.until(
            lambda: self._has_produced,
            "every job is acknowledged to its producer",
            timeout_s=_SEND_S,
        )
        await self._crew.finish(lambda: self._ends)

    async def read_back(self) -> None:
        for place in self._dead_places:
            self._letters += [value for _, value in await self.site.client.read_back(*place)]
        self.counts["dead letters"] += len(self._letters)

    def judge(self) -> int:
        """Each record that was acknowledged to the producer was delivered at least once. Those that
        were given up have dead letters."""
        judged = self._judge_deliveries()
        return judged + (self._judge_letters() if self._load.dead_partitions else 0)

    def _judge_letters(self) -> int:
        history = self.site.history
        known = {
            value: RecordName(GROUP, (topic, number), offset)
            for (topic, number, offset), value in (history.promised | history.consumed).items()
            if topic == JOBS
        }
        for value in self._letters:
            if value not in known:
                self.site.report(f"a dead letter has {value!r}, and no record has it")
        done = [each for each in known.values() if each.offset < self._ends.get(each.place, 0)]
        self._law.read(done, [known[each] for each in self._letters if each in known])
        return len(self._letters)

    def _judge_deliveries(self) -> int:
        history = self.site.history
        promised = {place: value for place, value in history.promised.items() if place[0] == JOBS}
        for place, value in promised.items():
            if history.consumed.get(place) not in (value, None):
                self.site.report(f"{place} has {value!r}, and {history.consumed[place]!r} was read")
        return len(promised)
