"""The work of a run on consumer groups: members that share partitions, and clients that only keep
offsets. In the end the members own all partitions, and have got every acknowledged record."""

from __future__ import annotations

import itertools
import random
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final

from chaos.sim.cluster.connections import Connections
from chaos.sim.laws.committed_offsets import CommittedOffsetsStay
from chaos.sim.laws.generations import PartitionsHaveOneOwner
from chaos.sim.laws.member_epochs import MembersReconcile
from chaos.sim.partition_name import PartitionName
from chaos.sim.work.consumer_member import ConsumerMember
from chaos.sim.work.group_client import GroupClient
from chaos.sim.work.group_member import Member
from chaos.sim.work.group_reader import Group
from chaos.sim.work.load import Part
from chaos.sim.work.log_reader import LogReader
from chaos.sim.work.mover import Mover
from chaos.sim.work.offset_keepers import OffsetKeeper
from chaos.sim.work.site import EXACT, PLAIN, Site
from chaos.sim.work.wear import AGAIN, Wear
from chaos.sim.work.work import Work
from chaos.sim.world.rng import Rngs
from metadata.internal_topics import GROUP_TOPIC

_CLASSIC, _CONSUMERS, _MOVERS, _KEPT = "readers", "consumers", "movers", "keepers"
_PARTITIONS = 3  # of __consumer_offsets
_CONVERGE_S = 40.0  # so long a group may take in a cluster that is whole
_SETTINGS: Final = {
    "offsets.topic.num.partitions": str(_PARTITIONS),
    "offsets.topic.replication.factor": "3",  # the first client may come before all brokers
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": str(1 << 20),
}

_AnyMember = Member | ConsumerMember | Mover


@dataclass(frozen=True, slots=True)
class GroupLoad(Part):
    """How much work there is with groups."""

    label: ClassVar = "groups"

    members: int = 0
    static_members: int = 0  # so many of them
    consumers: int = 0  # members of the consumer protocol, in a group of their own
    static_consumers: int = 0
    movers: int = 0  # members that change their protocol, in a group of their own
    session_timeout_ms: int = 3000
    rebalance_timeout_ms: int = 3000
    keepers: int = 0
    keep_pause_s: float = 0.5
    segment_bytes: int = 4000  # of __consumer_offsets
    min_insync: int = 2
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def draw(cls, rng: random.Random) -> GroupLoad:
        """Three of ten runs have groups."""
        if rng.random() >= 0.3:
            return cls()
        members = rng.choice([0, 2, 2, 3])
        settings = {
            **_SETTINGS,
            "group.initial.rebalance.delay.ms": str(rng.choice([0, 0, 500])),
            "offsets.commit.timeout.ms": str(rng.choice([1000, 5000])),
            "log.cleaner.backoff.ms": str(rng.choice([300, 1000])),
        }
        load = cls(
            members=members,
            static_members=rng.randint(0, members),
            session_timeout_ms=rng.choice([1000, 3000]),
            rebalance_timeout_ms=rng.choice([1000, 3000]),
            keepers=rng.randint(0 if members else 1, 2),
            keep_pause_s=rng.choice([0.2, 0.5]),
            segment_bytes=rng.choice([2000, 6000, 1 << 20]),
            settings=tuple(settings.items()),
        )
        return load.with_consumers(rng)

    def with_consumers(self, rng: random.Random) -> GroupLoad:
        """Two of three runs with groups have consumers."""
        consumers = rng.choice([0, 2, 3])
        if not consumers:
            return self
        settings = self._consumer_settings()
        static_consumers = rng.randint(0, consumers)
        # One of four lets members wait for an assignment.
        interval_ms = rng.choice([0, 250, 0, 0])
        settings["group.consumer.assignment.interval.ms"] = str(interval_ms)
        return replace(
            self,
            consumers=consumers,
            static_consumers=static_consumers,
            settings=(*self.settings, *settings.items()),
        )

    def rarer(self, rngs: Rngs) -> GroupLoad:
        return self.with_movers(rngs.of("movers"))

    def with_movers(self, rng: random.Random) -> GroupLoad:
        """Two of three runs have movers, even runs that have no other work with groups."""
        movers = rng.choice([0, 2, 3])
        if not movers:
            return self
        settings = {**_SETTINGS, **self._consumer_settings(), **dict(self.settings)}
        return replace(self, movers=movers, settings=tuple(settings.items()))

    def _consumer_settings(self) -> dict[str, str]:
        return {
            "group.consumer.session.timeout.ms": str(self.session_timeout_ms),
            "group.consumer.min.session.timeout.ms": "500",
            "group.consumer.heartbeat.interval.ms": "200",
            "group.consumer.min.heartbeat.interval.ms": "100",
        }

    @property
    def is_there(self) -> bool:
        return self.members + self.consumers + self.movers + self.keepers > 0


class GroupWork(Work):
    name = "groups"
    load = GroupLoad
    outlasts = True

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._cluster = site.cluster
        load = self._load = site.load.part(GroupLoad)
        topics = dict.fromkeys((PLAIN, EXACT), site.load.partitions)
        law = site.law
        offsets, owners = law(CommittedOffsetsStay), law(PartitionsHaveOneOwner)
        epochs = law(MembersReconcile)
        told = self._deliver, site.report, self.counts
        self._classic = Group(_CLASSIC, topics, offsets, owners, *told)
        self._consumers = Group(_CONSUMERS, topics, offsets, epochs, *told)
        self._moving = Group(_MOVERS, topics, offsets, epochs, *told)
        epochs.may_restart(_MOVERS)
        self.members = [self._member(number, owners) for number in range(load.members)]
        self.consumers = [self._consumer(number, epochs) for number in range(load.consumers)]
        self.movers = [self._mover(number, epochs) for number in range(load.movers)]
        kept = [(topic, n) for topic, count in topics.items() for n in range(count)]
        if site.load.part(Wear).remake_pause_s:
            offsets.may_vanish(AGAIN)
            kept.append((AGAIN, 0))
        self.keepers = [self._keeper(number, kept, offsets) for number in range(load.keepers)]
        self._is_over = False

    def _deliver(self, place: PartitionName, offset: int, value: bytes) -> None:
        self.site.read(*place, offset, value)

    def _member(self, number: int, owners: PartitionsHaveOneOwner) -> Member:
        load, name = self._load, f"member {number}"
        return Member(
            *self._reader(self._classic, name),
            name if number < load.static_members else None,
            load.session_timeout_ms,
            load.rebalance_timeout_ms,
            owners=owners,
        )

    def _consumer(self, number: int, owners: MembersReconcile) -> ConsumerMember:
        load, name = self._load, f"consumer {number}"
        return ConsumerMember(
            *self._reader(self._consumers, name),
            name if number < load.static_consumers else None,
            load.session_timeout_ms,
            load.rebalance_timeout_ms,
            owners=owners,
            name=name,
        )

    def _mover(self, number: int, owners: MembersReconcile) -> Mover:
        """The first one is static."""
        load, name = self._load, f"mover {number}"
        reader = self._reader(self._moving, name, tells_coordinators=True)
        told = (
            name if number == 0 else None,
            load.session_timeout_ms,
            load.rebalance_timeout_ms,
        )
        lives = itertools.count(1)
        return Mover(
            lambda: Member(*reader, *told, owners=owners),
            lambda: ConsumerMember(
                *reader, *told, owners=owners, name=f"{name}, process {next(lives)}"
            ),
            reader[-1],
        )

    def _reader(
        self, group: Group, name: str, *, tells_coordinators: bool = False
    ) -> tuple[Group, GroupClient, LogReader, random.Random]:
        rng = self._cluster.simulation.rngs.of(f"group {name}")
        connections = Connections.of(self._cluster, name)
        client = GroupClient(group.group_id, connections, rng, tells_coordinators)
        return group, client, LogReader(connections, group.topics, rng), rng

    def _keeper(
        self, number: int, places: list[PartitionName], offsets: CommittedOffsetsStay
    ) -> OffsetKeeper:
        name = f"keeper {number}"
        rng = self._cluster.simulation.rngs.of(f"group {name}")
        client = GroupClient(_KEPT, Connections.of(self._cluster, name), rng)
        return OffsetKeeper(name, client, places, rng, offsets, self.counts)

    @property
    def partitions(self) -> list[PartitionName]:
        """The coordinators' partitions."""
        return [(GROUP_TOPIC, number) for number in range(_PARTITIONS)]

    async def prepare(self) -> None:
        """Make ``__consumer_offsets`` with small segments, which are soon compacted."""
        configs = {
            "cleanup.policy": "compact",
            "segment.bytes": str(self._load.segment_bytes),
            "min.insync.replicas": str(self._load.min_insync),
            "min.cleanable.dirty.ratio": "0.1",
        }
        await self._cluster.client.create_topic(
            GROUP_TOPIC, partitions=_PARTITIONS, configs=configs
        )
        for topic, number in self.partitions:
            await self._cluster.until_isr(topic, 3, number)

    def start(self) -> list[Coroutine[Any, Any, None]]:
        """Members read on until ``finish`` ends them."""
        is_calm = self.site.is_calm
        work = [each.run(is_calm, lambda: self._is_over) for each in self.members]
        work += [each.run(is_calm, lambda: self._is_over) for each in self.consumers]
        work += [each.run(is_calm, lambda: self._is_over) for each in self.movers]
        work += [each.run(self._load.keep_pause_s, is_calm) for each in self.keepers]
        return work

    async def finish(self) -> None:
        """Wait until the members own all partitions and have read all acknowledged records, and
        share them evenly where the coordinator assigns. Raises AssertionError after the timeout."""
        ends = self.site.history.ends()
        for group, members in self._groups:
            await self._cluster.until(
                partial(self._has_read, group, members, ends),
                f"the members of group {group.group_id} own {group.partitions} and read to {ends}",
                timeout_s=_CONVERGE_S,
            )
        # A member that joined last may own nothing while another one still has to give up.
        await self._cluster.until(
            lambda: max(self._shares, default=0) <= min(self._shares, default=0) + 1,
            f"the partitions of group {_CONSUMERS} are shared evenly",
            timeout_s=_CONVERGE_S,
        )
        self._is_over = True

    @property
    def _shares(self) -> list[int]:
        """How many partitions each member of the consumer protocol owns."""
        return [len(each.positions) for each in self.consumers]

    @property
    def _groups(self) -> list[tuple[Group, Sequence[_AnyMember]]]:
        """The groups with members."""
        groups: list[tuple[Group, Sequence[_AnyMember]]] = [
            (self._classic, self.members),
            (self._consumers, self.consumers),
            (self._moving, self.movers),
        ]
        return [(group, members) for group, members in groups if members]

    def _has_read(
        self,
        group: Group,
        members: Sequence[_AnyMember],
        ends: Mapping[PartitionName, int],
    ) -> bool:
        owning = [each for each in members if each.positions]
        if len({each.me.generation for each in owning}) != 1:
            return False
        owned = sorted(partition for each in owning for partition in each.positions)
        return owned == sorted(group.partitions) and all(
            position >= ends.get(partition, 0)
            for each in owning
            for partition, position in each.positions.items()
        )

    def judge(self) -> int:
        """Members had to get every acknowledged record that retention has left."""
        places = [
            ((topic, partition), offset)
            for topic, partition, offset in self.site.history.promised
            if topic in (PLAIN, EXACT) and offset >= self.site.start_of(topic, partition)
        ]
        for group, _ in self._groups:
            for partition, offset in places:
                if offset not in group.delivered.get(partition, ()):
                    self.site.report(f"group {group.group_id} was never given {partition} {offset}")
        return 0
