"""Unusual clients: a producer that does not wait for answers, a producer that breaks the rules, and
an administrator who asks twice."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from chaos.sim.cluster.client import SimClient
from chaos.sim.work.site import EXACT, PLAIN
from chaos.sim.work.work import Work
from chaos.sim.world.clock import EPOCH_MS
from stele.aio import Producer
from stele.errors import ApiError, ErrorCode
from stele.producer.outcomes import Delivery
from stele.wire.batch import BatchBuilder
from stele.wire.kafka.messages import produce
from stele.wire.v1.admin_pb2 import CreateTopicsRequest, CreateTopicsResponse, NewTopic
from stele.world import RpcError

_REQUEST_ID_BYTES = 16
_MOST_TOPICS = 8

Promise = Callable[[str, int, int, bytes], None]
"""(topic, partition, offset, value) was acknowledged with acks=all."""
Report = Callable[[str], None]

_MOST_OUTSTANDING = 100
_RUDE_ID = 9_000_000  # higher than any producer id that brokers have given out
_DAY_MS = 24 * 3600 * 1000
_TIME_MS = EPOCH_MS - 2 * _DAY_MS
"""A timestamp that is old when the record is written, as in a backfill."""


@dataclass(slots=True)
class Streamer:
    """Sends one record after another without waiting. So several batches are under way to a
    partition whenever something goes wrong there."""

    producer: Producer
    topic: str
    partitions: int
    pause_s: float
    rng: random.Random
    promise: Promise

    async def run(self, name: int, is_done: Callable[[], bool]) -> None:
        outstanding: deque[tuple[bytes, Delivery]] = deque()
        number = 0
        while not is_done():
            partition = self.rng.randrange(self.partitions)
            for _ in range(self.rng.randint(1, 40)):
                number += 1
                value = b"<e%d-%d>" % (name, number)
                delivery = await self.producer.send(self.topic, value, partition=partition)
                outstanding.append((value, delivery))
                await asyncio.sleep(self.pause_s)
            while outstanding and (
                len(outstanding) > _MOST_OUTSTANDING or outstanding[0][1].done()
            ):
                await self._take(*outstanding.popleft())
        while outstanding:
            await self._take(*outstanding.popleft())
        await self.producer.close()

    async def _take(self, value: bytes, delivery: Delivery) -> None:
        told = await delivery
        if told.offset >= 0:
            self.promise(self.topic, told.partition, told.offset, value)


@dataclass(slots=True)
class Rude:
    """An idempotent producer that repeats acknowledged batches, skips sequences, and marks batches
    as part of a transaction that it never began.

    The broker must answer a repetition with the original's offset, and refuse the other two.
    """

    client: SimClient
    topic: str
    partitions: int
    pause_s: float
    rng: random.Random
    promise: Promise
    report: Report

    async def run(self, name: int, is_done: Callable[[], bool]) -> None:
        partition = self.rng.randrange(self.partitions)
        sequence = 0
        while not is_done():
            value = b"<r%d-%d>" % (name, sequence)
            offset = None
            while offset is None and not is_done():
                offset = await self._send(name, partition, sequence, value)
            if offset is None:
                return
            self.promise(self.topic, partition, offset, value)
            lot = self.rng.random()
            if lot < 0.4:
                again = await self._send(name, partition, sequence, value)
                if again not in (None, offset):
                    self.report(f"{value!r} stands at {offset}, its repetition at {again}")
            elif lot < 0.8:
                gap = sequence + self.rng.randint(2, 5)
                if await self._send(name, partition, gap, b"<gap%d-%d>" % (name, gap)) is not None:
                    self.report(f"sequence {gap} was taken after {sequence} from producer {name}")
            elif lot < 0.9:
                open_ = b"<t%d-%d>" % (name, sequence + 1)
                taken = await self._send(name, partition, sequence + 1, open_, transactional=True)
                if taken is not None:
                    self.report(f"{open_!r} was taken into a transaction that nobody began")
            sequence += 1
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * self.pause_s)

    async def _send(
        self,
        name: int,
        partition: int,
        sequence: int,
        value: bytes,
        *,
        transactional: bool = False,
    ) -> int | None:
        """Make one attempt. Returns the offset if it was acknowledged."""
        builder = BatchBuilder()
        builder.append(None, value, timestamp_ms=_TIME_MS)
        batch = builder.build(
            producer_id=_RUDE_ID + name,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        request = produce.ProduceRequest(
            acks=-1,
            timeout_ms=3000,
            topic_data=[
                produce.TopicProduceData(
                    name=self.topic,
                    partition_data=[produce.PartitionProduceData(partition, batch)],
                )
            ],
        )
        try:
            leader = await self.client.find_leader(self.topic, partition)
            connection = await self.client.connection(leader)
            version = connection.version_of(produce.API, at_most=12)
            response = await connection.request(produce.API, version, request, timeout_s=4.0)
        except (ApiError, OSError):
            await asyncio.sleep(0.1)
            return None
        answer = response.responses[0].partition_responses[0]
        if answer.error_code != ErrorCode.NONE:
            await asyncio.sleep(0.05)
            return None
        return answer.base_offset


@dataclass(slots=True)
class Impatient:
    """Asks for each topic twice with one request id, and three times more if the first answer is a
    refusal. Later attempts are marked as copies. The request must take effect once, and every
    answer after a success, or after the refusal of a copy, must repeat it."""

    client: SimClient
    rng: random.Random
    report: Report

    async def run(self, pause_s: float, is_done: Callable[[], bool]) -> None:
        for number in range(_MOST_TOPICS):
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause_s)
            if is_done():
                return
            # Three replicas are refused while a broker is away.
            topic = NewTopic(
                name=f"extra-asked-twice-{number}",
                partitions=1,
                replication_factor=self.rng.choice([1, 3]),
            )
            request_id = self.rng.randbytes(_REQUEST_ID_BYTES)
            request = CreateTopicsRequest(topics=[topic], request_id=request_id)
            earlier = await self._ask(request, is_done)
            for _ in range(1 if earlier is None or is_success(earlier) else 3):
                was_copy = request.on_behalf_of.repeats
                request.on_behalf_of.repeats = True
                await asyncio.sleep(self.rng.uniform(0.0, 2.0) * pause_s)
                later = await self._ask(request, is_done)
                if earlier is None or later is None:
                    break
                if (why := contradiction(earlier, later, was_copy=was_copy)) is not None:
                    self.report(f"{topic.name}: {why}")
                earlier = later

    async def _ask(
        self, request: CreateTopicsRequest, is_done: Callable[[], bool]
    ) -> CreateTopicsResponse | None:
        """Ask until an answer tells the outcome."""
        while not is_done():
            try:
                answer: CreateTopicsResponse = await self.client.change(request)
            except (RpcError, OSError):
                await asyncio.sleep(0.2)
                continue
            if answer.error == ErrorCode.NONE and len(answer.topics) == 1:
                return answer
            await asyncio.sleep(0.2)
        return None


def contradiction(
    earlier: CreateTopicsResponse, later: CreateTopicsResponse, *, was_copy: bool
) -> str | None:
    """Why the two cannot be answers to one request with an id, None if they can.

    A success is in the metadata log: every later answer repeats it. So is the refusal of a copy.
    The refusal of a first attempt is only in the memory of the controller that gave it: another one
    decides anew, and may accept the request.
    """
    if not is_success(earlier) and not was_copy:
        return None
    errors = [each.error for each in earlier.topics], [each.error for each in later.topics]
    if errors[0] == errors[1] and later.already_done:
        return None
    return (
        f"the request was answered {errors[0]}, and then {errors[1]}, "
        f"already_done={later.already_done}"
    )


def is_success(answer: CreateTopicsResponse) -> bool:
    return all(each.error == ErrorCode.NONE for each in answer.topics)


# ------------------------------------------------------------------------ as works of a run


class Streamers(Work):
    name = "a producer that does not wait"

    def start(self) -> list[Coroutine[Any, Any, None]]:
        site, load = self.site, self.site.load
        if not load.stream_pause_s:
            return []
        streamer = Streamer(
            site.patient_producer(linger_ms=5),
            EXACT,
            load.partitions,
            load.stream_pause_s,
            site.rngs.of("workload"),
            site.promise,
        )
        return [streamer.run(load.exact_producers, site.is_done)]


class Impatients(Work):
    name = "an administrator who asks twice"

    def start(self) -> list[Coroutine[Any, Any, None]]:
        site, pause_s = self.site, self.site.load.admin_pause_s
        impatient = Impatient(site.client, site.rngs.of("workload"), site.report)
        return [impatient.run(pause_s, site.is_done)] if pause_s else []


class Rudes(Work):
    name = "producers that break the rules"

    def start(self) -> list[Coroutine[Any, Any, None]]:
        site, load = self.site, self.site.load
        rude = Rude(
            site.client,
            PLAIN,
            load.partitions,
            load.plain_pause_s,
            site.rngs.of("workload"),
            site.promise,
            site.report,
        )
        return [rude.run(number, site.is_done) for number in range(load.rude_writers)]
