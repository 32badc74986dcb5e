"""The work of a run on share groups: members that share the records of a topic, and say of each
what became of it. In the end every record is done."""

from __future__ import annotations

import itertools
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from broker.coordinator.share.types import StateKey
from broker.sharing.partition import LedSharePartition
from chaos.sim.cluster.connections import Connections
from chaos.sim.laws.decided_records import DecidedRecordsStayDecided
from chaos.sim.laws.share_holders import SharedRecordsHaveOneHolder
from chaos.sim.laws.share_members import ShareMembersKeepTheirEpochs
from chaos.sim.laws.shared_records import RecordName
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.group_client import GroupClient
from chaos.sim.work.load import Part
from chaos.sim.work.share_worker import POISON, ShareGroup, ShareWorker
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from metadata.internal_topics import GROUP_TOPIC, SHARE_TOPIC
from stele.admin.descriptions import ConfigResource

JOBS: Final = "jobs"
GROUP: Final = "sharers"
_GROUP_PARTITIONS = 2  # of __consumer_offsets, if it is not there yet
_STATE_PARTITIONS = 2  # of __share_group_state
_MEMBER_PAUSE_S = 0.4
_CONVERGE_S = 90.0
"""So long a share group may take in a cluster that is whole: each poisonous record before another
one holds the start offset until its last delivery."""


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

    @classmethod
    def draw(cls, rng: random.Random) -> ShareLoad:
        """A quarter of the runs have a share group."""
        if rng.random() >= 0.25:
            return cls()
        lock_ms, limit = rng.choice([1000, 2000]), rng.choice([2, 3, 5])
        session_ms = rng.choice([1500, 3000])
        settings = {
            "group.share.record.lock.duration.ms": str(lock_ms),
            "group.share.min.record.lock.duration.ms": "1000",
            "group.share.delivery.count.limit": str(limit),
            "group.share.partition.max.record.locks": "100",
            "group.share.session.timeout.ms": str(session_ms),
            "group.share.min.session.timeout.ms": "500",
            "group.share.heartbeat.interval.ms": "400",
            "group.share.min.heartbeat.interval.ms": "100",
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
        decided = site.law(DecidedRecordsStayDecided)
        self._records = decided.records
        self._rng = site.rngs.of("shares: producer")
        self._sent: dict[bytes, float] = {}
        self._ends: dict[PartitionName, int] = {}
        self._group = ShareGroup(
            GROUP,
            JOBS,
            load.partitions,
            decided,
            site.law(SharedRecordsHaveOneHolder),
            site.law(ShareMembersKeepTheirEpochs),
            self._deliver,
            site.report,
            lambda: site.cluster.simulation.now,
            itertools.count(1),
            self.counts,
        )
        self._members = [self._member(number) for number in range(load.members)]
        self._delivered: dict[tuple[PartitionName, int], bytes] = {}
        self._is_over = False

    def _member(self, number: int) -> ShareWorker:
        name = f"sharer {number}"
        rng = self.site.rngs.of(f"shares: {name}")
        connections = Connections.of(self.site.cluster, name)
        coordinator = GroupClient(GROUP, connections, rng)
        return ShareWorker(self._group, name, coordinator, connections, rng, _MEMBER_PAUSE_S)

    def _deliver(self, place: PartitionName, offset: int, value: bytes) -> None:
        self.site.read(*place, offset, value)

    @property
    def partitions(self) -> list[PartitionName]:
        return [
            *((JOBS, number) for number in range(self._load.partitions)),
            *((SHARE_TOPIC, number) for number in range(_STATE_PARTITIONS)),
        ]

    async def prepare(self) -> None:
        """Make the topics. The one of the group coordinators may be there already."""
        cluster, load = self.site.cluster, self._load
        self._records.delivery_limits[GROUP] = load.delivery_limit
        least = str(self.site.load.min_insync)
        await cluster.client.create_topic(
            JOBS, partitions=load.partitions, configs={"min.insync.replicas": least}
        )
        states = {
            "cleanup.policy": "delete",
            "retention.ms": "-1",
            "retention.bytes": "-1",
            "min.insync.replicas": "2",
            "segment.bytes": str(load.segment_bytes),
        }
        await cluster.client.create_topic(SHARE_TOPIC, partitions=_STATE_PARTITIONS, configs=states)
        if cluster.image.topic(GROUP_TOPIC) is None:
            groups = {"cleanup.policy": "compact", "min.insync.replicas": "2"}
            await cluster.client.create_topic(
                GROUP_TOPIC, partitions=_GROUP_PARTITIONS, configs=groups
            )
        for topic, number in self.partitions:
            await cluster.until_isr(topic, 3, number)
        async with self.site.admin() as admin:
            earliest = {"share.auto.offset.reset": "earliest"}
            await admin.alter_configs({ConfigResource.group(GROUP): earliest})

    def start(self) -> list[Coroutine[Any, Any, None]]:
        """Members go on until ``finish`` ends them."""
        is_calm = self.site.is_calm
        work = [each.run(is_calm, lambda: self._is_over) for each in self._members]
        return [self._produce(), *work]

    async def _produce(self) -> None:
        site, rng, load = self.site, self._rng, self._load
        producer = site.patient_producer()
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
                self._records.of(RecordName(GROUP, place, told.offset)).born_s = sent_s
            await site.pause(rng, load.produce_pause_s)
        await producer.close()

    # ------------------------------------------------------------------------- the end

    async def finish(self) -> None:
        """Wait until every record is done, and until the members share all partitions. Raises
        AssertionError after the timeout."""
        cluster = self.site.cluster
        await cluster.until(
            self._is_done, f"share group {GROUP} is done up to {self._ends}", timeout_s=_CONVERGE_S
        )
        await cluster.until(
            self._is_shared, f"share group {GROUP} has all partitions", timeout_s=_CONVERGE_S
        )
        self._is_over = True

    def _is_done(self) -> bool:
        return all(
            led is not None and led.machine is not None and led.machine.start_offset >= end
            for (_, number), end in self._ends.items()
            for led in [self._led(number)]
        )

    def _led(self, number: int) -> LedSharePartition | None:
        """A share partition at the leader of its partition."""
        cluster = self.site.cluster
        topic = cluster.image.topic(JOBS)
        assert topic is not None
        node = cluster.brokers.get(topic.partitions[number].leader)
        if node is None or node.broker is None:
            return None
        key = StateKey(GROUP, topic.topic_id, number)
        return next((led for led in node.broker.sharing.partitions if led.key == key), None)

    def _is_shared(self) -> bool:
        """Whether the members have one epoch, each partition has a member, and the numbers of
        members of two partitions differ by one at most."""
        counts = [
            sum(number in each.assigned for each in self._members)
            for number in range(self._load.partitions)
        ]
        epochs = {each.epoch for each in self._members}
        return len(epochs) == 1 and min(counts) > 0 and max(counts) - min(counts) <= 1

    def judge(self) -> int:
        """Each record that was acknowledged to the producer was delivered at least once."""
        history = self.site.history
        promised = {place: value for place, value in history.promised.items() if place[0] == JOBS}
        for place, value in promised.items():
            if history.consumed.get(place) not in (value, None):
                self.site.report(f"{place} has {value!r}, and {history.consumed[place]!r} was read")
        return len(promised)
