"""A topic that is deleted and made anew under its name while clients write to it and read it."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from chaos.sim.cluster.client import SimClient
from chaos.sim.laws.log_memory import LogsRememberWhatTheyHold
from chaos.sim.work.site import Site
from chaos.sim.work.wear import AGAIN, Wear
from chaos.sim.work.work import Work
from stele.aio import Consumer, Producer
from stele.errors import ApiError, ErrorCode, SteleError
from stele.ids import TopicPartition
from stele.world import RpcError

_PLACE = TopicPartition(AGAIN, 0)
_PATIENCE_S = 120.0
_BURST, _LARGE_BYTES = 8, 500
_SLOW_SYNC_S = 0.1
_LATEST_S = 40.0
"""No request takes effect later than this after it was sent."""

Report = Callable[[str], None]


@dataclass(slots=True)
class Remade:
    """Call ``prepare``, run the work until ``is_done``, then ``judge`` the records.

    Each promise is of one topic id. A deleted topic is gone with all its records. The last topic
    must have all records that were acknowledged for it, and none that were written to another one.
    """

    client: SimClient
    rng: random.Random
    report: Report
    configs: Mapping[str, str]
    slow_disks: Callable[[], AbstractContextManager[None]]
    """While it is entered, the brokers' syncs are slow, so that a checkpoint is nearly always under
    way."""
    counts: Counter[str] = field(default_factory=Counter)
    _promised: dict[tuple[bytes, int], bytes] = field(default_factory=dict)
    _may_come_late: bool = False  # a deletion got no answer, and may be carried out late

    async def prepare(self) -> None:
        await self.client.create_topic(AGAIN, configs=self.configs)

    # ----------------------------------------------------------------------------- making

    async def make_anew(self, pause_s: float, is_done: Callable[[], bool]) -> None:
        """Delete the topic and make it anew, usually at once, so that requests and files of the old
        topic may meet the new one."""
        while not is_done():
            await asyncio.sleep(self.rng.uniform(0.2, 2.0) * pause_s)
            if is_done():
                break
            with self.slow_disks() if self.rng.random() < 0.5 else nullcontext():
                await asyncio.sleep(self.rng.uniform(0.0, 0.3))
                try:
                    await self.client.delete_topic(AGAIN)
                except (ApiError, RpcError, OSError):
                    self._may_come_late = True
                else:
                    self.counts["topics remade"] += 1
                await asyncio.sleep(self.rng.choice([0.0, 0.0, 0.0, 0.02, 0.5]))
                await self._create()
                await asyncio.sleep(self.rng.uniform(0.0, 0.3))
        if self._may_come_late:
            await asyncio.sleep(_LATEST_S)
            await self._create()

    async def _create(self) -> None:
        """Try until the topic exists, whoever has made it."""
        while True:
            try:
                await self.client.create_topic(AGAIN, configs=self.configs)
            except ApiError as error:
                if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    return
            except (RpcError, OSError):
                pass
            else:
                return
            await asyncio.sleep(0.1)

    # ---------------------------------------------------------------------------- writing

    async def write(self, writer: int, pause_s: float, is_done: Callable[[], bool]) -> None:
        """Write one record after another, or several large ones at once, each in its own batch, to
        the topic id in the metadata. Large batches roll small segments repeatedly within one
        sync."""
        number = 0
        while not is_done():
            number += 1
            if self.rng.random() < 0.2:
                padding = b"." * _LARGE_BYTES
                large = [b"<a%d-%d/%d>" % (writer, number, each) for each in range(_BURST)]
                await asyncio.gather(*(self._write_one(value + padding) for value in large))
            else:
                await self._write_one(b"<a%d-%d>" % (writer, number))
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause_s)

    async def _write_one(self, value: bytes) -> None:
        try:
            leader, topic_id = await self.client.find_place(AGAIN)
            offset = await self.client.produce(
                AGAIN, value, broker=leader, topic_id=topic_id, timeout_s=3.0
            )
        except (ApiError, OSError):
            await asyncio.sleep(0.05)
            return
        self.counts["acknowledged under a name that came again"] += 1
        earlier = self._promised.setdefault((topic_id, offset), value)
        if earlier != value:
            self.report(
                f"offset {offset} of {AGAIN} {topic_id.hex()[:8]} was promised to {earlier!r} and "
                f"to {value!r}"
            )

    async def stream(self, producer: Producer, is_done: Callable[[], bool]) -> None:
        """Write like a program that only knows the topic's name. Any record may fail or get lost
        with the topic, but the producer must go on."""
        number = 0
        while not is_done():
            number += 1
            await self._send(producer, b"<s-%d>" % number)
            await asyncio.sleep(self.rng.uniform(0.0, 0.4))
        async with asyncio.timeout(_PATIENCE_S):
            # Each try has a value of its own: one that failed may have been written all the same.
            tries = itertools.count(1)
            while not await self._send(producer, b"<s-end-%d>" % next(tries)):
                await asyncio.sleep(0.1)
        await producer.abort()  # each failed record was reported already

    async def _send(self, producer: Producer, value: bytes) -> bool:
        try:
            await (await producer.send(AGAIN, value, partition=0))
        except SteleError:
            self.counts["sends to a name that came again failed"] += 1
            return False
        return True

    # ---------------------------------------------------------------------------- reading

    async def read(self, consumer: Consumer, is_done: Callable[[], bool]) -> None:
        """Read on while the topic changes. Reach its end once it is deleted no more."""
        consumer.assign([_PLACE])
        position = 0
        while not is_done():
            position = await self._poll(consumer, position)
        async with asyncio.timeout(_PATIENCE_S):
            while not await self._has_all(consumer, position):
                position = await self._poll(consumer, position)
        await consumer.close()

    async def _has_all(self, consumer: Consumer, position: int) -> bool:
        """Retention may delete the last records before the consumer reads them."""
        try:
            end = (await consumer.end_offsets([_PLACE]))[_PLACE]
            return position >= end or (await consumer.beginning_offsets([_PLACE]))[_PLACE] >= end
        except SteleError:
            return False

    async def _poll(self, consumer: Consumer, position: int) -> int:
        try:
            records = await consumer.poll(timeout_ms=300)
        except SteleError:
            await asyncio.sleep(0.1)
            return position
        for record in records:
            self.counts["read under a name that came again"] += 1
            position = record.offset + 1
        return position

    # ---------------------------------------------------------------------------- judging

    def judge_absence(self) -> None:
        """The topic may be missing only if a deletion got no answer, for that one may be carried
        out late."""
        if not self._may_come_late:
            self.report(f"{AGAIN} is gone, and each deletion was answered before it was made anew")

    def judge(self, topic_id: bytes, records: list[tuple[int, bytes]], start_offset: int) -> None:
        """``records``: all records that were read. ``start_offset``: retention has deleted the
        records below it."""
        found = dict(records)
        if len(set(found.values())) != len(records):
            self.report(f"{AGAIN}: a record is there twice")
        for (promised_to, offset), value in self._promised.items():
            there = found.get(offset)
            if promised_to == topic_id and offset >= start_offset and there != value:
                self.report(f"{AGAIN}: {value!r} at {offset} was acknowledged; there is {there!r}")
            elif promised_to != topic_id and value in found.values():
                self.report(f"{AGAIN}: {value!r} was written to a topic that was deleted")


class RemadeWork(Work):
    name = "a topic that is made anew"
    load = Wear
    encloses = True

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._pause_s = site.load.part(Wear).remake_pause_s
        self._there: tuple[bytes, list[tuple[int, bytes]]] | None = None
        site.law(LogsRememberWhatTheyHold).remade_topics.add(AGAIN)
        self._remade = Remade(
            site.client,
            site.rngs.of("remade"),
            site.report,
            {
                "min.insync.replicas": str(site.load.min_insync),
                **site.load.part(Wear).topic_configs(),
            },
            self._slow_disks,
            self.counts,
        )

    @contextmanager
    def _slow_disks(self) -> Iterator[None]:
        """Make the syncs of all brokers slow."""
        cluster = self.site.cluster
        machine = cluster.simulation.machine
        disks = [machine(node.host).disk for node in cluster.brokers.values()]
        for disk in disks:
            disk.faults.extra_sync_s = _SLOW_SYNC_S
        try:
            yield
        finally:
            for disk in disks:
                disk.faults.extra_sync_s = 0.0

    async def prepare(self) -> None:
        await self._remade.prepare()

    def start(self) -> list[Coroutine[Any, Any, None]]:
        """Writers and readers go on for a while after the last deletion of the topic."""
        site, remade = self.site, self._remade
        producer, consumer = site.producer(delivery_timeout_ms=5000), site.consumer()
        return [
            remade.make_anew(self._pause_s, site.is_calm),
            remade.write(0, site.load.plain_pause_s, site.is_done),
            remade.stream(producer, site.is_done),
            remade.read(consumer, site.is_done),
        ]

    async def read_back(self) -> None:
        found = self.site.cluster.image.topic(AGAIN)
        if found is not None:
            self._there = found.topic_id, await self.site.client.read_back(AGAIN)

    def judge(self) -> int:
        if self._there is None:
            self._remade.judge_absence()
            return 0
        topic_id, records = self._there
        self._remade.judge(topic_id, records, self.site.start_of(AGAIN, 0))
        return len(records)
