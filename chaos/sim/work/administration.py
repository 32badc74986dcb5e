"""Administration as a part of a run's work: topics come and go, configs change, leaders move."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from chaos.sim.laws.metadata_history import CONFIG, UNSET, Change, MetadataHistory
from stele.admin.admin import Admin, ConfigResource, NewTopic
from stele.errors import OutcomeUnknownError, SteleError
from stele.topic_names import LENGTH_MAX


@dataclass(slots=True)
class Administration:
    """``run``; what it asks for and is told goes into the history, which judges what is read."""

    admin: Admin
    rng: random.Random
    history: MetadataHistory
    # Topics under writers, with the min.insync.replicas that is restored after it was raised.
    insync: Mapping[str, int] = field(default_factory=dict)
    # Of one's own topics: a batch of so many records, acknowledged by all, and its offset; and what
    # is told of deletions.
    write: Callable[[str, int, int], Awaitable[int]] | None = None
    deleted: Callable[[str, int, int], None] = lambda topic, partition, offset: None
    counts: Counter[str] = field(default_factory=Counter)
    _asked: list[str] = field(default_factory=list)  # every topic there ever was to be
    _raised: str = ""  # the topic of which more replicas are required than at rest
    _present: list[str] = field(default_factory=list)  # those of them that are for sure
    _partitions: dict[str, int] = field(default_factory=dict)  # how many those have for sure

    async def run(self, pause_s: float, is_done: Callable[[], bool]) -> None:
        acts = [self._create, self._create, self._delete, self._configure, self._elect]
        acts += [self._grow, self._elect_some, self._delete_records]
        if self.insync:
            acts.append(self._raise_and_lower)
        while not is_done():
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause_s)
            try:
                if self._raised:
                    await self._lower()  # it failed before
                await self.rng.choice(acts)()
            except SteleError:  # refused, or nobody knows what came of it
                self.counts["administration failed"] += 1
        await self.admin.close()

    async def _outcome(self, change: Change, call: Awaitable[object]) -> None:
        """Only what is said to be unknown may be done although it failed (``stele.admin``)."""
        try:
            await call
        except OutcomeUnknownError:
            raise
        except SteleError:
            change.refused()
            raise
        change.confirmed()

    # ----------------------------------------------------------------------------------- acts

    async def _create(self) -> None:
        name = self._new_name()
        self._asked.append(name)
        # With two its replicas may be damaged: see chaos/sim/faults/damage.py.
        configs = {"min.insync.replicas": str(self.rng.choice([1, 2]))}
        topic = NewTopic(name, partitions=1, replication_factor=3, configs=configs)
        change = self.history.creation_asked(name)
        self.history.partitions_asked(name, 1)
        await self._outcome(change, self.admin.create_topics([topic]))
        self._present.append(name)
        self._partitions[name] = 1
        self.counts["topics created"] += 1
        await self._look_at_own()
        await self.rng.choice([self._grow, self._delete_records])()

    def _new_name(self) -> str:
        """Some are as long as they may be, or nearly."""
        name = f"extra-{len(self._asked) + 1}"
        if self.rng.random() < 0.3:
            name = name.ljust(self.rng.randint(LENGTH_MAX - 40, LENGTH_MAX), "x")
        return name

    async def _delete(self) -> None:
        if self._present:
            name = self._present.pop(self.rng.randrange(len(self._present)))
            await self._outcome(self.history.deletion_asked(name), self.admin.delete_topics([name]))
            self.counts["topics deleted"] += 1
            await self._look_at_own()

    async def _configure(self) -> None:
        if self._present:
            name, value = self.rng.choice(self._present), self._new_value()
            while self.history.was_configured(name, value):
                value = self._new_value()
            change = {ConfigResource.topic(name): {CONFIG: value}}
            await self._outcome(
                self.history.config_asked(name, value), self.admin.alter_configs(change)
            )
            self.counts["configs changed"] += 1
            await self._look_at_own()

    def _new_value(self) -> str:
        return str(self.rng.randint(100_000, 999_999))

    async def _raise_and_lower(self) -> None:
        """Require one replica more of a topic, for a while."""
        topic = self.rng.choice(sorted(self.insync))
        self._raised = topic
        await self._require(topic, self.insync[topic] + 1)
        await asyncio.sleep(self.rng.uniform(0.1, 3.0))
        await self._lower()
        self.counts["min.insync.replicas raised and lowered"] += 1

    async def _lower(self) -> None:
        await self._require(self._raised, self.insync[self._raised])
        self._raised = ""

    async def _require(self, topic: str, replicas: int) -> None:
        change = {"min.insync.replicas": str(replicas)}
        await self.admin.alter_configs({ConfigResource.topic(topic): change})

    async def _elect(self) -> None:
        await self.admin.elect_leaders()
        self.counts["elections of preferred leaders"] += 1

    async def _grow(self) -> None:
        if self._present:
            name = self.rng.choice(self._present)
            count = self._partitions[name] + self.rng.randint(1, 2)
            self.history.partitions_asked(name, count)
            await self.admin.create_partitions({name: count})
            self._partitions[name] = count
            self.history.partitions_confirmed(name, count)
            self.counts["partitions added"] += 1
            (topic,) = await self.admin.describe_topics([name], linearizable=False)
            self.history.own_count_read("the administrator", topic)

    async def _elect_some(self) -> None:
        """Of one's own topics, also uncleanly: nobody writes to them who could lose records."""
        if self._present:
            name = self.rng.choice(self._present)
            places = [(name, number) for number in range(self._partitions[name])]
            await self.admin.elect_leaders(places, unclean=self.rng.random() < 0.3)
            self.counts["elections of some leaders"] += 1

    async def _delete_records(self) -> None:
        if self._present and self.write is not None:
            name = self.rng.choice(self._present)
            partition = self.rng.randrange(self._partitions[name])
            written = -1
            for _ in range(self.rng.randint(1, 3)):
                count = self.rng.randint(1, 4)
                base = await self.write(name, partition, count)
                written = base + self.rng.randint(0, count)  # perhaps within the batch
            place = name, partition
            offset = -1 if self.rng.random() < 0.4 else written
            starts = await self.admin.delete_records({place: offset})
            for start in starts.values():
                self.deleted(name, partition, start)
            self.counts["deletions of records"] += 1

    async def _look_at_own(self) -> None:
        """Right after a change, not linearizably: even then a client sees what it has changed."""
        found = {each.name: each for each in await self.admin.list_topics(linearizable=False)}
        for name in self._asked:
            topic = found.get(name)
            config = UNSET if topic is None else topic.configs.get(CONFIG, UNSET)
            self.history.own_read(
                "the administrator", name, is_there=topic is not None, config=config
            )
        self.counts["own changes read"] += 1
