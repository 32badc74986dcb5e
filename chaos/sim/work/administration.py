"""The administrator of a run: topics come and go, configs change, leaders move."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from chaos.sim.laws.deletions import DeletedRecordsStayDeleted
from chaos.sim.laws.metadata_history import CONFIG, UNSET, MetadataChange, MetadataHistory
from chaos.sim.work.site import TOPICS, Site
from chaos.sim.work.work import Work
from stele.admin.admin import Admin
from stele.admin.descriptions import ConfigResource, NewTopic
from stele.errors import ApiError, ErrorCode, OutcomeUnknownError, SteleError
from stele.topic_names import LENGTH_MAX


@dataclass(slots=True)
class Administration:
    """Call ``run``. It records what it asks for and is told in the history, which judges reads."""

    admin: Admin
    rng: random.Random
    history: MetadataHistory
    # Topics under writers, and the min.insync.replicas that each gets back after it was raised.
    insync: Mapping[str, int] = field(default_factory=dict)
    # For own topics: ``write`` writes a batch of so many records with acks=all and returns its
    # offset; ``deleted`` is told of confirmed deletions of records.
    write: Callable[[str, int, int], Awaitable[int]] | None = None
    deleted: Callable[[str, int, int], None] = lambda topic, partition, offset: None
    counts: Counter[str] = field(default_factory=Counter)
    _asked: list[str] = field(default_factory=list)  # every topic that it ever asked for
    _raised: str = ""  # the topic whose min.insync.replicas is raised now
    _present: list[str] = field(default_factory=list)  # topics that surely exist
    _partitions: dict[str, int] = field(default_factory=dict)  # how many these have at least

    async def run(self, pause_s: float, is_done: Callable[[], bool]) -> None:
        acts = [self._create, self._create, self._delete, self._configure, self._elect]
        acts += [self._grow, self._elect_some, self._delete_records]
        if self.insync:
            acts.append(self._raise_and_lower)
        while not is_done():
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause_s)
            try:
                if self._raised:
                    await self._lower()  # the last attempt failed
                await self.rng.choice(acts)()
            except SteleError:  # refused, or of unknown outcome
                self.counts["administration failed"] += 1
        await self.admin.close()

    async def _outcome(self, change: MetadataChange, call: Awaitable[object]) -> None:
        """Record the outcome. After any error but OutcomeUnknownError the change has no effect and
        never will (``stele.admin``)."""
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
        # With a minimum of 2 its replicas may be damaged: see chaos/sim/faults/damage.py.
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
        """A new topic name. Some names are about as long as allowed."""
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
        """Raise a topic's min.insync.replicas by one for a while."""
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
        """Elect leaders of own topics, also uncleanly: no writer depends on records in them."""
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
        """Read without ``linearizable`` right after a change. A client sees its own changes even
        then."""
        found = {each.name: each for each in await self.admin.list_topics(linearizable=False)}
        for name in self._asked:
            topic = found.get(name)
            config = UNSET if topic is None else topic.configs.get(CONFIG, UNSET)
            self.history.own_read(
                "the administrator", name, is_there=topic is not None, config=config
            )
        self.counts["own changes read"] += 1


class Administrators(Work):
    name = "administration"

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._administration = Administration(
            site.admin(),
            site.rngs.of("administration"),
            site.metadata,
            insync=self._raisable(),
            write=self._write_extra,
            deleted=site.law(DeletedRecordsStayDeleted).deleted,
            counts=self.counts,
        )

    def start(self) -> list[Coroutine[Any, Any, None]]:
        pause_s = self.site.load.admin_pause_s
        return [self._administration.run(pause_s, self.site.is_done)] if pause_s else []

    def _raisable(self) -> dict[str, int]:
        """The topics whose minimum administrators may raise, to 3 of 3 replicas, and lower again.
        They never lower it below the minimum that acknowledgements have promised."""
        least = self.site.load.min_insync
        return dict.fromkeys(TOPICS, least) if least == 2 else {}

    async def _write_extra(self, topic: str, partition: int, times: int) -> int:
        """Write a batch that will be deleted soon, and return its offset. Raises ApiError if no
        broker acknowledges it."""
        client = self.site.client
        try:
            leader = await client.find_leader(topic, partition)
            return await client.produce(
                topic, b"x", broker=leader, partition=partition, times=times
            )
        except OSError as error:
            raise ApiError(ErrorCode.NETWORK_EXCEPTION, str(error)) from error
