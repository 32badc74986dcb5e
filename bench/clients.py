"""The clients of the benchmarks. Each runs in its own process: ``python -m bench.clients JOB``.

JOB is JSON. ``properties`` holds settings of librdkafka, and ``security`` settings of our own
clients.
The process prints a line when it is warm. Then it reads commands, one line of JSON each, and
answers each with a line of measurements, until its standard input ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import json
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import uvloop

from bench import connection_clients, record_clients, tenant_clients, thin_clients
from bench.report import percentile
from bench.share_clients import ShareWorkers
from stele.aio import Producer
from stele.cluster.kafka_connection import KafkaConnection
from stele.config import ClientConfig
from stele.errors import BufferFullError
from stele.real import real_connector
from stele.wire.kafka.messages import fetch, metadata

LATENCY_BATCH_BYTES = 16 * 1024
WARM_UP_S = 0.5
TIMEOUT_S = 30.0
_POLL_S = 0.1
_LINGER_MS = 5
_BUFFER_BYTES = 8 * 1024 * 1024
_SHARED_BUFFER_BYTES = 32 * 1024 * 1024  # of many producers
_BURST = 64  # records for one partition; the time of the first one is measured

Answer = dict[str, float]


def _milliseconds(latencies_s: list[float]) -> Answer:
    return {
        "p50_ms": percentile(latencies_s, 50) * 1e3,
        "p99_ms": percentile(latencies_s, 99) * 1e3,
        "samples": len(latencies_s),
    }


class Load(Protocol):
    """A producer under test."""

    async def throughput(self, seconds: float) -> Answer:
        """Send as many records as the producer takes. Returns records, bytes, seconds and times to
        acknowledgement."""
        ...

    async def latency(self, seconds: float) -> Answer:
        """Send one batch of 16 KiB at a time, the next one when the one before is acknowledged."""
        ...


class OwnLoad:
    """``stele.aio.Producer``."""

    def __init__(self, job: dict[str, Any], producer: Producer) -> None:
        self._producer = producer
        self._topic: str = job["topic"]
        self._partitions = itertools.cycle(range(job["partitions"]))
        self._value = bytes(job["record_bytes"])

    @staticmethod
    def open(job: dict[str, Any], buffer_bytes: int = _BUFFER_BYTES) -> Producer:
        return Producer(
            job["bootstrap"],
            acks=job["acks"],
            linger_ms=_LINGER_MS,
            batch_size=job["batch_bytes"],
            buffer_memory=buffer_bytes,
        )

    async def throughput(self, seconds: float) -> Answer:
        producer, topic, value = self._producer, self._topic, self._value
        await producer.partitions_for(topic)
        latencies: list[float] = []
        records = 0
        began = time.perf_counter()
        while (now := time.perf_counter()) - began < seconds:
            partition = next(self._partitions)
            for number in range(_BURST):
                try:
                    delivery = producer.send_nowait(topic, value, partition=partition)
                except BufferFullError:
                    delivery = await producer.send(topic, value, partition=partition)
                if number == 0:
                    delivery.add_done_callback(_sampler(latencies, now))
            records += _BURST
            await asyncio.sleep(0)
        await producer.flush()
        spent = time.perf_counter() - began
        return {"records": records, "bytes": records * len(value), "seconds": spent} | (
            _milliseconds(latencies)
        )

    async def latency(self, seconds: float) -> Answer:
        latencies = []
        deadline = time.perf_counter() + seconds
        while (began := time.perf_counter()) < deadline:
            partition = next(self._partitions)
            for _ in range(max(1, LATENCY_BATCH_BYTES // (len(self._value) + 20))):
                self._producer.send_nowait(self._topic, self._value, partition=partition)
            await self._producer.flush()
            latencies.append(time.perf_counter() - began)
        return _milliseconds(latencies)


def _sampler(latencies: list[float], began: float) -> Callable[[object], None]:
    return lambda _: latencies.append(time.perf_counter() - began)


class ManyProducers:
    """Many of them in one process, each with its own connections. All send at once."""

    def __init__(self, job: dict[str, Any], producers: list[Producer]) -> None:
        self._loads = [OwnLoad(job, producer) for producer in producers]

    async def throughput(self, seconds: float) -> Answer:
        """The sums over all, the median of their medians, and the worst 99th percentile."""
        answers = await asyncio.gather(*(load.throughput(seconds) for load in self._loads))
        return {
            "records": sum(each["records"] for each in answers),
            "bytes": sum(each["bytes"] for each in answers),
            "seconds": max(each["seconds"] for each in answers),
            "p50_ms": percentile([each["p50_ms"] for each in answers], 50),
            "p99_ms": max(each["p99_ms"] for each in answers),
        }


class LibrdkafkaLoad:
    """``confluent_kafka.Producer``, over the Kafka protocol."""

    def __init__(self, job: dict[str, Any]) -> None:
        from confluent_kafka import Producer as ConfluentProducer

        is_all = job["acks"] == "all"
        self._producer = ConfluentProducer(
            {
                "bootstrap.servers": job["bootstrap"],
                "acks": job["acks"],
                "enable.idempotence": is_all,
                "linger.ms": _LINGER_MS,
                "batch.size": job["batch_bytes"],
                "batch.num.messages": 1_000_000,
                "message.max.bytes": 4 * 1024 * 1024,
                "queue.buffering.max.kbytes": _BUFFER_BYTES // 1024,
                "queue.buffering.max.messages": 1_000_000,
                **job.get("properties", {}),
            }
        )
        self._topic: str = job["topic"]
        self._partitions = itertools.cycle(range(job["partitions"]))
        self._value = bytes(job["record_bytes"])
        self._sample_every = max(1, LATENCY_BATCH_BYTES // len(self._value))
        self._failure: object = None

    def _delivered(self, latencies: list[float], began: float, error: object, _: object) -> None:
        if error is not None:
            self._failure = self._failure or error
        latencies.append(time.perf_counter() - began)

    async def throughput(self, seconds: float) -> Answer:
        latencies: list[float] = []
        records = 0
        began = time.perf_counter()
        while (now := time.perf_counter()) - began < seconds:
            partition = next(self._partitions)
            on_delivery = functools.partial(self._delivered, latencies, now)
            try:
                self._producer.produce(
                    self._topic, self._value, partition=partition, on_delivery=on_delivery
                )
                records += 1
                for _ in range(self._sample_every - 1):
                    self._producer.produce(self._topic, self._value, partition=partition)
                    records += 1
                self._producer.poll(0)
            except BufferError:
                self._producer.poll(0.001)
        self._flush()
        spent = time.perf_counter() - began
        return {"records": records, "bytes": records * len(self._value), "seconds": spent} | (
            _milliseconds(latencies)
        )

    async def latency(self, seconds: float) -> Answer:
        latencies: list[float] = []
        deadline = time.perf_counter() + seconds
        while (began := time.perf_counter()) < deadline:
            partition = next(self._partitions)
            on_delivery = functools.partial(self._delivered, latencies, began)
            for _ in range(max(1, LATENCY_BATCH_BYTES // (len(self._value) + 20)) - 1):
                self._producer.produce(self._topic, self._value, partition=partition)
            self._producer.produce(
                self._topic, self._value, partition=partition, on_delivery=on_delivery
            )
            self._flush()
        return _milliseconds(latencies)

    def _flush(self) -> None:
        if self._producer.flush(TIMEOUT_S) or self._failure:
            raise RuntimeError(f"librdkafka did not deliver: {self._failure or 'timed out'}")


class Readers:
    """Connections that fetch the beginning of partitions again and again, and decode nothing."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._topic: str = job["topic"]
        self._fetch_bytes: int = job["fetch_bytes"]
        self._count: int = job["connections"]
        self._bootstrap: str = job["bootstrap"].split(",")[0]
        self._security = ClientConfig(**job.get("security", {})).client_security()
        self._partitions: int = job["partitions"]
        self._max_wait_ms: int = job.get("max_wait_ms", 100)
        self._connections: list[KafkaConnection] = []
        self._requests: list[fetch.FetchRequest] = []
        self.latencies_s: list[float] = []
        self.bytes = 0

    async def connect(self) -> None:
        """Connect each reader to the leader of its partition."""
        connector = real_connector(self._security)
        host, _, port = self._bootstrap.rpartition(":")
        first = await KafkaConnection.open(connector, host, int(port), "bench")
        await first.negotiate(timeout_s=TIMEOUT_S)
        asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=self._topic)])
        answer = await first.request(
            metadata.API, first.version_of(metadata.API), asked, timeout_s=TIMEOUT_S
        )
        first.close()
        (topic,) = answer.topics
        leaders = {each.partition_index: each.leader_id for each in topic.partitions}
        brokers = {each.node_id: (each.host, each.port) for each in answer.brokers}
        for number in range(self._count):
            partition = number % self._partitions
            place = brokers[leaders[partition]]
            connection = await KafkaConnection.open(connector, *place, "bench")
            await connection.negotiate(timeout_s=TIMEOUT_S)
            self._connections.append(connection)
            self._requests.append(self._request(topic.topic_id, partition))

    def _request(self, topic_id: bytes, partition: int) -> fetch.FetchRequest:
        wanted = fetch.FetchPartition(
            partition, fetch_offset=0, partition_max_bytes=self._fetch_bytes
        )
        return fetch.FetchRequest(
            max_wait_ms=self._max_wait_ms,
            min_bytes=1,
            max_bytes=self._fetch_bytes,
            topics=[fetch.FetchTopic(topic_id=topic_id, partitions=[wanted])],
        )

    async def read(self, number: int) -> None:
        """Run one reader until it is cancelled."""
        connection, request = self._connections[number], self._requests[number]
        version = connection.version_of(fetch.API)
        while True:
            began = time.perf_counter()
            answer = await connection.request(fetch.API, version, request, timeout_s=TIMEOUT_S)
            self.latencies_s.append(time.perf_counter() - began)
            data = answer.responses[0].partitions[0]
            if data.error_code != 0:
                raise RuntimeError(f"a reader was answered error {data.error_code}")
            self.bytes += len(data.records or b"")

    async def throughput(self, seconds: float) -> Answer:
        self.latencies_s, self.bytes = [], 0
        began = time.perf_counter()
        tasks = [asyncio.create_task(self.read(each)) for each in range(self._count)]
        done, pending = await asyncio.wait(tasks, timeout=seconds)
        spent = time.perf_counter() - began
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            task.result()  # raises the reader's error, since a reader never ends by itself
        return {"bytes": self.bytes, "answers": len(self.latencies_s), "seconds": spent} | (
            _milliseconds(self.latencies_s)
        )


class SmallRequests:
    """librdkafka with one record in each request, sent at a steady rate.

    A record's time to acknowledgement begins when it was due, not when it was sent: a client that
    falls behind hides nothing.
    """

    def __init__(self, job: dict[str, Any]) -> None:
        from confluent_kafka import Producer as ConfluentProducer

        self._producer = ConfluentProducer(
            {
                "bootstrap.servers": job["bootstrap"],
                "acks": "all",
                "linger.ms": 0,
                "batch.num.messages": 1,
                "max.in.flight.requests.per.connection": 1000,
                **job.get("properties", {}),
            }
        )
        self._topic: str = job["topic"]
        self._partitions: int = job["partitions"]
        self._per_s: float = job["per_s"]
        self._value = bytes(job["record_bytes"])
        self._failure: object = None

    async def throughput(self, seconds: float) -> Answer:
        latencies: list[float] = []

        def delivered(due: float, error: object, _: object) -> None:
            self._failure = self._failure or error
            latencies.append(time.perf_counter() - due)

        records = round(self._per_s * seconds)
        over = threading.Event()
        polling = threading.Thread(target=self._poll_until, args=(over,))
        polling.start()
        began = time.perf_counter()
        try:
            for number in range(records):
                due = began + number / self._per_s
                if (early := due - time.perf_counter()) > 0:
                    time.sleep(early)  # noqa: ASYNC251 - nothing else runs in this loop
                self._producer.produce(
                    self._topic,
                    self._value,
                    partition=number % self._partitions,
                    on_delivery=functools.partial(delivered, due),
                )
            if self._producer.flush(TIMEOUT_S) or self._failure:
                raise RuntimeError(f"librdkafka did not deliver: {self._failure or 'timed out'}")
            spent = time.perf_counter() - began
        finally:
            over.set()
            polling.join()
        return {"records": records, "seconds": spent} | _milliseconds(latencies)

    def _poll_until(self, over: threading.Event) -> None:
        """Take acknowledgements as they come. A timeout of less than a millisecond would be none:
        who polls until the next record is due keeps a core busy."""
        while not over.is_set():
            self._producer.poll(_POLL_S)


# ---------------------------------------------------------------------------------- jobs


async def _obey(commands: dict[str, Callable[[float], Awaitable[Answer]]]) -> None:
    """Answer commands until the standard input ends."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("{}", flush=True)
    while line := await reader.readline():
        command = json.loads(line)
        answer = await commands[command["do"]](command["seconds"])
        print(json.dumps(answer), flush=True)


async def _produce(load: Load) -> None:
    await load.throughput(WARM_UP_S)
    await _obey({"throughput": load.throughput, "latency": load.latency})


async def _main(job: dict[str, Any]) -> None:
    if job["client"] == "own":
        async with OwnLoad.open(job) as producer:
            await _produce(OwnLoad(job, producer))
    elif job["client"] == "many":
        async with contextlib.AsyncExitStack() as running:
            buffer_bytes = max(_SHARED_BUFFER_BYTES // job["producers"], 2 * job["batch_bytes"])
            opened = [OwnLoad.open(job, buffer_bytes) for _ in range(job["producers"])]
            producers = [await running.enter_async_context(each) for each in opened]
            many = ManyProducers(job, producers)
            await many.throughput(WARM_UP_S)
            await _obey({"throughput": many.throughput})
    elif job["client"] == "librdkafka":
        await _produce(LibrdkafkaLoad(job))
    elif job["client"] == "small":
        await _obey({"throughput": SmallRequests(job).throughput})
    elif job["client"] == "share":
        async with contextlib.AsyncExitStack() as running:
            workers = ShareWorkers(job)
            await workers.join(running)
            await _obey({"throughput": workers.throughput})
    elif job["client"] in connection_clients.KINDS:
        await _obey({"throughput": connection_clients.KINDS[job["client"]](job).throughput})
    elif job["client"] in record_clients.KINDS:
        await _obey({"throughput": record_clients.KINDS[job["client"]](job).throughput})
    elif job["client"] in tenant_clients.KINDS:
        await _obey({"throughput": tenant_clients.KINDS[job["client"]](job).throughput})
    elif job["client"] in thin_clients.KINDS:
        await _obey({"throughput": thin_clients.KINDS[job["client"]](job).throughput})
    else:
        readers = Readers(job)
        await readers.connect()
        await readers.throughput(WARM_UP_S)
        await _obey({"throughput": readers.throughput})


if __name__ == "__main__":
    uvloop.run(_main(json.loads(sys.argv[1])))
