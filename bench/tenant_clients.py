"""The clients of ``bench tenants``: polite ones at a fixed rate, and a greedy one."""

from __future__ import annotations

import asyncio
import itertools
import mmap
import struct
import time
from collections.abc import Iterator
from typing import Any, Final, cast

from bench.report import percentile
from runtime.real.network import RealNetwork
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ErrorCode
from stele.wire import kafka
from stele.wire.batch import HEADER_SIZE, BatchBuilder, read_header
from stele.wire.kafka.frames import FrameReader
from stele.wire.kafka.messages import fetch, metadata, produce
from stele.world import Buffer

Answer = dict[str, float]

_TIMEOUT_S: Final = 120.0
_COUNTER: Final = struct.Struct("<Q")
_PRODUCE_VERSION: Final = 9
_FETCH_VERSION: Final = 11
_METADATA_VERSION: Final = 9
_FETCH_BYTES: Final = 64 * 1024
_BACKFILL_BYTES: Final = 4 * 1024 * 1024


def _batch(record_bytes: int) -> bytearray:
    builder = BatchBuilder()
    builder.append(None, bytes(record_bytes), timestamp_ms=int(time.time() * 1000))
    return builder.build()


def _produce(topic: str, partition: int, batch: Buffer) -> produce.ProduceRequest:
    data = produce.PartitionProduceData(partition, memoryview(batch))
    return produce.ProduceRequest(
        acks=-1,
        timeout_ms=int(_TIMEOUT_S * 1000),
        topic_data=[produce.TopicProduceData(topic, partition_data=[data])],
    )


async def _leaders(bootstrap: str, topic: str) -> dict[int, tuple[str, int]]:
    """Where the leader of each partition listens."""
    host, _, port = bootstrap.split(",")[0].rpartition(":")
    asking = await KafkaConnection.open(RealNetwork(), host, int(port), client_id="looks-up")
    try:
        topics = [metadata.MetadataRequestTopic(name=topic)]
        told = await asking.request(
            metadata.API,
            _METADATA_VERSION,
            metadata.MetadataRequest(topics),
            timeout_s=_TIMEOUT_S,
        )
    finally:
        asking.close()
    addresses = {each.node_id: (each.host, each.port) for each in told.brokers}
    return {each.partition_index: addresses[each.leader_id] for each in told.topics[0].partitions}


class Served:
    """How many requests of the greedy client were answered so far: a number in a file that both
    processes map. It shows how many of them a polite client's request waited for, whatever else the
    machine does."""

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._map = mmap.mmap(file.fileno(), _COUNTER.size)

    @property
    def count(self) -> int:
        (count,) = _COUNTER.unpack(self._map[:])
        return int(count)

    def add(self, more: int) -> None:
        self._map[:] = _COUNTER.pack(self.count + more)

    @staticmethod
    def create(path: str) -> None:
        with open(path, "wb") as file:
            file.write(_COUNTER.pack(0))


class _PoliteClient:
    """Sends one record when it is due, and fetches it when it is acknowledged.

    Both times begin when the record was due or acknowledged, not when the request was sent: a
    client that falls behind hides nothing.
    """

    def __init__(
        self, connection: KafkaConnection, topic: str, partition: int, size: int, served: Served
    ) -> None:
        self.connection = connection
        self.beside: list[int] = []  # requests of the greedy client served during a Produce
        self._served = served
        self.acknowledged_s: list[float] = []
        self.fetched_s: list[float] = []
        self.errors = 0
        self._topic = topic
        self._partition = partition
        self._record_bytes = size

    async def run(self, per_s: float, first_s: float, seconds: float) -> None:
        began = time.perf_counter() + first_s
        for number in range(round(per_s * seconds)):
            due = began + number / per_s
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            await self._once(due)

    async def _once(self, due: float) -> None:
        request = _produce(self._topic, self._partition, _batch(self._record_bytes))
        before = self._served.count
        written = await self.connection.request(
            produce.API, _PRODUCE_VERSION, request, timeout_s=_TIMEOUT_S
        )
        acknowledged = time.perf_counter()
        self.acknowledged_s.append(acknowledged - due)
        self.beside.append(self._served.count - before)
        answer = written.responses[0].partition_responses[0]
        self.errors += answer.error_code != ErrorCode.NONE
        wanted = fetch.FetchPartition(
            self._partition,
            fetch_offset=answer.base_offset,
            partition_max_bytes=_FETCH_BYTES,
        )
        read = await self.connection.request(
            fetch.API,
            _FETCH_VERSION,
            fetch.FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=_FETCH_BYTES,
                topics=[fetch.FetchTopic(self._topic, partitions=[wanted])],
            ),
            timeout_s=_TIMEOUT_S,
        )
        self.fetched_s.append(time.perf_counter() - acknowledged)
        data = read.responses[0].partitions[0]
        self.errors += data.error_code != ErrorCode.NONE or not data.records


class Polite:
    """Many clients in one process, each with its own connection, client id and partition."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job

    async def throughput(self, seconds: float) -> Answer:
        job = self._job
        leaders = await _leaders(job["bootstrap"], job["topic"])
        clients = []
        served = Served(job["counter"])
        for number in range(job["clients"]):
            partition = number % len(leaders)
            connection = await KafkaConnection.open(
                RealNetwork(), *leaders[partition], client_id=f"polite-{number}"
            )
            clients.append(
                _PoliteClient(connection, job["topic"], partition, job["record_bytes"], served)
            )
        per_s: float = job["per_s"]
        spread = 1 / per_s / len(clients)  # so that they do not send at the same moment
        try:
            await asyncio.gather(
                *(each.run(per_s, n * spread, seconds) for n, each in enumerate(clients))
            )
        finally:
            for each in clients:
                each.connection.close()
        acknowledged = [s for each in clients for s in each.acknowledged_s]
        fetched = [s for each in clients for s in each.fetched_s]
        return {
            "p50_ms": percentile(acknowledged, 50) * 1e3,
            "p99_ms": percentile(acknowledged, 99) * 1e3,
            "fetch_p50_ms": percentile(fetched, 50) * 1e3,
            "fetch_p99_ms": percentile(fetched, 99) * 1e3,
            "beside_p50": percentile([float(n) for each in clients for n in each.beside], 50),
            "beside_p99": percentile([float(n) for each in clients for n in each.beside], 99),
            "requests": len(acknowledged) + len(fetched),
            "errors": sum(each.errors for each in clients),
        }


class _GreedyConnection(asyncio.BufferedProtocol):
    """Keeps so many requests in flight, all encoded before. Answers are counted, and only the error
    of each is looked at: the client has the cores of the brokers."""

    def __init__(
        self, frames: Iterator[bytes], pipelined: int, error_at: int, served: Served
    ) -> None:
        self.answers = 0
        self._served = served
        self.errors = 0
        self.is_over = False
        self._frames = frames
        self._pipelined = pipelined
        self._error_at = error_at
        self._reader = FrameReader(1 << 20)
        self._transport: asyncio.Transport | None = None
        self._in_flight = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        self._send()

    def _send(self) -> None:
        assert self._transport is not None
        more = self._pipelined - self._in_flight
        if more > 0 and not self.is_over:
            self._in_flight += more
            self._transport.write(b"".join(itertools.islice(self._frames, more)))
        elif self.is_over and not self._in_flight:
            self._transport.close()

    def stop(self) -> None:
        """Send no more. The connection ends with its last answer."""
        self.is_over = True
        self._send()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._reader.received(nbytes)
        at, before = self._error_at, self.answers
        while (frame := self._reader.next_frame()) is not None:
            self.answers += 1
            self._in_flight -= 1
            self.errors += frame[at] != 0 or frame[at + 1] != 0
        self._served.add(self.answers - before)
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self.errors += self._in_flight
        if not self.ended.done():
            self.ended.set_result(None)


class Greedy:
    """One client with several connections, each with many small requests in flight."""

    _VERSION: Final = 7  # the last whose answer has its error at a fixed place

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job

    def _frames(self, partition: int) -> bytes:
        job = self._job
        request = _produce(job["topic"], partition, _batch(job["record_bytes"]))
        return b"".join(kafka.encode_request(produce.API, self._VERSION, 1, "greedy", request))

    async def throughput(self, seconds: float) -> Answer:
        job = self._job
        leaders = await _leaders(job["bootstrap"], job["topic"])
        # Correlation id, the topics' count, the name, the partitions' count, the index.
        error_at = 4 + 4 + 2 + len(job["topic"]) + 4 + 4
        loop = asyncio.get_running_loop()
        connections = []
        served = Served(job["counter"])
        for number in range(job["connections"]):
            partition = number % len(leaders)
            frame = self._frames(partition)
            _, connection = await loop.create_connection(
                lambda frame=frame: _GreedyConnection(  # type: ignore[misc]
                    itertools.repeat(frame), job["pipelined"], error_at, served
                ),
                *leaders[partition],
            )
            connections.append(connection)
        began = time.perf_counter()
        await asyncio.sleep(seconds)
        answers = sum(each.answers for each in connections)
        spent = time.perf_counter() - began
        for each in connections:
            each.stop()
        await asyncio.wait_for(asyncio.gather(*(c.ended for c in connections)), _TIMEOUT_S)
        errors = sum(each.errors for each in connections)
        return {"answers": answers, "seconds": spent, "errors": errors}


class Backfill:
    """Reads a partition from its beginning to its end, and again."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job

    async def throughput(self, seconds: float) -> Answer:
        job = self._job
        leaders = await _leaders(job["bootstrap"], job["topic"])
        reading = await KafkaConnection.open(RealNetwork(), *leaders[0], client_id="backfill")
        offset = read_bytes = 0
        began = time.perf_counter()
        try:
            while time.perf_counter() - began < seconds:
                records = await self._fetch(reading, offset)
                read_bytes += len(records)
                offset = _end_of(records) if records else 0
        finally:
            reading.close()
        return {"bytes": read_bytes, "seconds": time.perf_counter() - began}

    async def _fetch(self, reading: KafkaConnection, offset: int) -> Buffer:
        wanted = fetch.FetchPartition(0, fetch_offset=offset, partition_max_bytes=_BACKFILL_BYTES)
        topics = [fetch.FetchTopic(self._job["topic"], partitions=[wanted])]
        request = fetch.FetchRequest(max_wait_ms=0, max_bytes=_BACKFILL_BYTES, topics=topics)
        answer = await reading.request(fetch.API, _FETCH_VERSION, request, timeout_s=_TIMEOUT_S)
        data = answer.responses[0].partitions[0]
        if data.error_code != ErrorCode.NONE:
            raise RuntimeError(f"a backfill was answered error {data.error_code}")
        return cast(Buffer, data.records or b"")


def _end_of(records: Buffer) -> int:
    """The offset after the last whole batch."""
    view, at, end_offset = memoryview(records), 0, 0
    while len(view) - at >= HEADER_SIZE:
        header = read_header(view[at:])
        if at + header.size_bytes > len(view):
            break
        end_offset, at = header.last_offset + 1, at + header.size_bytes
    return end_offset


KINDS: Final[dict[str, type[Any]]] = {"polite": Polite, "greedy": Greedy, "backfill": Backfill}
