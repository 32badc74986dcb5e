"""A client with a new producer for each batch, and one that keeps its producer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from chaos.sim.laws.newcomers import TOPIC, NewcomersStayWithinTheirLimits
from chaos.sim.work.access import AccessLoad
from chaos.sim.work.load import Part
from chaos.sim.work.site import Site
from chaos.sim.work.work import Work
from stele.admin.client_quotas import QuotaAlteration
from stele.admin.descriptions import NewTopic
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ErrorCode, SteleError
from stele.wire.batch import BatchBuilder
from stele.wire.kafka.messages import produce

_NEW, _OLD = "newcomer", "old hand"
_MOST: Final = 150
"""More than any partition of other work gets to know, and fewer than newcomers come."""
_SETTINGS: Final = (("producer.ids.max", str(_MOST)),)
_FIRST_ID: Final = 7_000_000_000  # higher than any producer id that brokers give out
_LAST_VERSION: Final = 12  # of Produce: it names topics
_TIMEOUT_S: Final = 60.0
_AT_ONCE: Final = 8
"""Requests that a newcomer has under way on its connection at most."""

_PAUSE_S: Final = 0.02
_OLD_PAUSE_S: Final = (0.2, 1.0)


@dataclass(frozen=True, slots=True)
class NewcomerLoad(Part):
    """Whether there are newcomers, and what holds them back: a quota or the partition's limit."""

    label: ClassVar = "newcomers"

    rate: float = 0.0  # of new producers; 0: there is no quota
    settings: tuple[tuple[str, str], ...] = ()

    @classmethod
    def draw(cls, rng: random.Random) -> NewcomerLoad:
        """A quarter of the runs have them."""
        kind = rng.choice(["", "", "", "", "", "", "limit", "quota"])
        if kind == "limit":
            return cls(settings=_SETTINGS)
        return cls(rate=1.0) if kind == "quota" else cls()

    @property
    def is_there(self) -> bool:
        return self.rate > 0 or bool(self.settings)


class Newcomers(Work):
    """``chaos.sim.laws.newcomers`` judges how many producers come through. Clients that may act as
    brokers have no quota, and so there is none where all are super users."""

    name = "newcomers"
    load = NewcomerLoad

    def __init__(self, site: Site) -> None:
        super().__init__(site)
        load = site.load.part(NewcomerLoad)
        has_access = site.load.part(AccessLoad).is_there
        self._rate = 0.0 if has_access else load.rate
        self._is_limited = bool(load.settings)
        self._law = site.law(NewcomersStayWithinTheirLimits)
        self._next_id = _FIRST_ID

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return [(TOPIC, 0)] if self._is_there else []

    @property
    def _is_there(self) -> bool:
        return self._rate > 0 or self._is_limited

    async def prepare(self) -> None:
        if not self._is_there:
            return
        async with self.site.admin() as admin:
            await admin.create_topics([NewTopic(TOPIC, 1, 3, configs={"min.insync.replicas": "1"})])
            if self._rate:
                quota = {"producer_ids_rate": self._rate}
                await admin.alter_client_quotas([QuotaAlteration({"client-id": _NEW}, quota)])
        if self._is_limited:
            self._law.limited(_MOST)

    def start(self) -> list[Coroutine[Any, Any, None]]:
        if not self._is_there:
            return []
        # The old hand is known before the partition is full.
        return [self._run(_OLD, 0.0), self._run(_NEW, 3.0)]

    async def _run(self, client_id: str, wait_s: float) -> None:
        rng = self.site.rngs.of(f"newcomers: {client_id}")
        old = _OldHand(self, rng)
        await asyncio.sleep(wait_s)
        while not self.site.is_done():
            connection = None
            try:
                leader = await self.site.client.find_leader(TOPIC)
                connection = await self._open(leader, client_id)
                if client_id == _OLD:
                    await old.serve(connection, leader)
                else:
                    await self._bring(connection, leader, rng)
            except (SteleError, OSError):
                self.counts["connections of newcomers that were lost"] += 1
            finally:
                if connection is not None:
                    connection.close()
            await asyncio.sleep(rng.uniform(0.1, 0.5))

    async def _open(self, broker: int, client_id: str) -> KafkaConnection:
        network = self.site.cluster.client_world.network
        async with asyncio.timeout(5.0):
            host = self.site.cluster.brokers[broker].host
            connection = await KafkaConnection.open(network, host, 9092, client_id)
        await connection.negotiate(timeout_s=5.0)
        return connection

    async def _bring(self, connection: KafkaConnection, leader: int, rng: random.Random) -> None:
        """Write each batch by a new producer, some batches at once. Throttle times in the answers
        are ignored."""
        loop = asyncio.get_running_loop()
        opened_s, lasts_s, taken = loop.time(), rng.uniform(5.0, 40.0), 0
        while not self.site.is_done() and loop.time() - opened_s < lasts_s:
            first, self._next_id = self._next_id + 1, self._next_id + rng.randint(1, _AT_ONCE)
            ids = range(first, self._next_id + 1)
            errors = await asyncio.gather(
                *(self.send(connection, each, 0, acks=1) for each in ids), return_exceptions=True
            )
            for error in errors:
                if isinstance(error, BaseException):
                    raise error
                if error == ErrorCode.NONE:
                    taken += 1
                    self.counts["new producers that were taken"] += 1
                elif error == ErrorCode.NOT_ENOUGH_REPLICAS:
                    self.counts["new producers that were refused"] += 1
                else:
                    return  # it leads no more
            if self._rate:
                self._law.taken(leader, self._rate, taken, loop.time() - opened_s)
            await asyncio.sleep(_PAUSE_S)

    async def send(
        self, connection: KafkaConnection, producer_id: int, sequence: int, *, acks: int
    ) -> int:
        builder = BatchBuilder()
        builder.append(None, b"x", timestamp_ms=self.site.cluster.client_world.clock.time_ms())
        batch = builder.build(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        data = [produce.PartitionProduceData(0, batch)]
        request = produce.ProduceRequest(
            acks=acks,
            timeout_ms=3000,
            topic_data=[produce.TopicProduceData(name=TOPIC, partition_data=data)],
        )
        version = connection.version_of(produce.API, at_most=_LAST_VERSION)
        answer = await connection.request(produce.API, version, request, timeout_s=_TIMEOUT_S)
        return answer.responses[0].partition_responses[0].error_code

    def known(self, broker: int, error: int) -> None:
        self.counts["batches of a producer that is known"] += 1
        self._law.known(broker, error)


class _OldHand:
    """One producer, whatever happens to its connections."""

    def __init__(self, work: Newcomers, rng: random.Random) -> None:
        self._work = work
        self._rng = rng
        self._sequence = 0  # of its next batch
        self._is_known = False  # all in-sync replicas have a batch of it

    async def serve(self, connection: KafkaConnection, leader: int) -> None:
        site = self._work.site
        while not site.is_done():
            error = await self._work.send(connection, _FIRST_ID, self._sequence, acks=-1)
            if self._is_known:
                self._work.known(leader, error)
            if error in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                self._is_known = True
                self._sequence += 1
            elif error == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
                continue
            else:
                return
            await asyncio.sleep(self._rng.uniform(*_OLD_PAUSE_S))
