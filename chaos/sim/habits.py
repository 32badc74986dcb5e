"""Producers with habits of their own: one that waits for nothing, and one that breaks the rules."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from chaos.sim.client import SimClient
from stele.accumulator import Delivery
from stele.aio import Producer
from stele.errors import ApiError, ErrorCode
from stele.wire.batch import BatchBuilder
from stele.wire.kafka.messages import produce

Promise = Callable[[str, int, int, bytes], None]
"""(topic, partition, offset, value) was acknowledged with acks=all."""
Report = Callable[[str], None]

_MOST_OUTSTANDING = 100
_RUDE_ID = 9_000_000  # no broker has given out so many producer ids
_TIME_MS = 1_767_225_600_000


@dataclass(slots=True)
class Streamer:
    """Sends one record after the other without waiting, so that several batches are on their way
    to a partition whenever something goes wrong there."""

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
    """An idempotent producer that repeats what was acknowledged and leaves sequences out.

    A repetition is answered with the place of the original, and a gap is refused.
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
            sequence += 1
            await asyncio.sleep(self.rng.uniform(0.5, 1.5) * self.pause_s)

    async def _send(self, name: int, partition: int, sequence: int, value: bytes) -> int | None:
        """One attempt; its offset if it was acknowledged."""
        builder = BatchBuilder()
        builder.append(None, value, timestamp_ms=_TIME_MS)
        batch = builder.build(producer_id=_RUDE_ID + name, producer_epoch=0, base_sequence=sequence)
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
