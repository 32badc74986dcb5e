"""For acceptance tests: a running cluster of processes, what it logs, and raw bytes to a port."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chaos.process_cluster import ProcessCluster
from chaos.sim.cluster.client import SimClient
from runtime.real.world import RealWorld
from stele import Consumer
from stele.cluster.kafka_connection import KafkaConnection
from stele.real import real_connector
from stele.security.client_security import PLAINTEXT
from stele.wire.batch import BatchBuilder
from stele.wire.kafka.messages import metadata, produce
from tests.support.timing import until

ANSWER_TIMEOUT_S = 10.0


@asynccontextmanager
async def running(
    directory: Path, *, brokers: int, settings: Mapping[str, str] | None = None
) -> AsyncIterator[ProcessCluster]:
    """A cluster of processes with one controller, which is stopped at the end."""
    cluster = ProcessCluster(directory, controllers=1, brokers=brokers, settings=settings or {})
    await cluster.start()
    try:
        yield cluster
    finally:
        await cluster.stop()


@asynccontextmanager
async def client_of(cluster: ProcessCluster) -> AsyncIterator[SimClient]:
    """A client that sends each request once, and remembers what was acknowledged."""
    world = RealWorld()
    client = SimClient(
        world.world,
        {
            node_id: ("127.0.0.1", _kafka(cluster, node_id), grpc_port(cluster, node_id))
            for node_id in cluster.broker_ids
        },
    )
    try:
        yield client
    finally:
        await client.close()
        world.close()


def _kafka(cluster: ProcessCluster, node_id: int) -> int:
    port = cluster.nodes[node_id].kafka_port
    assert port is not None
    return port


def grpc_port(cluster: ProcessCluster, node_id: int) -> int:
    return int(cluster.nodes[node_id].settings["grpc.listeners"].rpartition(":")[2])


def a_batch(*values: bytes) -> bytearray:
    builder = BatchBuilder()
    for value in values:
        builder.append(None, value, timestamp_ms=1_700_000_000_000)
    return builder.build()


async def attempt(
    client: SimClient, broker: int, topic: str, *batches: bytes, acks: int = -1
) -> list[produce.PartitionProduceResponse]:
    """Send one Produce request with one batch each for partitions 0, 1, …. Returns the answer for
    each."""
    connection = await client.connection(broker)
    data = [produce.PartitionProduceData(n, batch) for n, batch in enumerate(batches)]
    answer = await connection.request(
        produce.API,
        connection.version_of(produce.API, at_most=12),
        produce.ProduceRequest(
            acks=acks,
            timeout_ms=5000,
            topic_data=[produce.TopicProduceData(name=topic, partition_data=data)],
        ),
        timeout_s=ANSWER_TIMEOUT_S,
    )
    return answer.responses[0].partition_responses


async def say(port: int, data: bytes, *, hang_up: bool = False) -> bytes:
    """Send bytes to a port. Returns everything that comes back until the other side closes.

    ``hang_up``: close this side at once instead. Raises TimeoutError if the other side stays open.
    """
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        await writer.drain()
        if hang_up:
            return b""
        async with asyncio.timeout(ANSWER_TIMEOUT_S):
            try:
                return await reader.read()
            except ConnectionResetError:  # the other side closed without reading all bytes
                return b""
    finally:
        writer.close()


@dataclass
class NodeLog:
    """The lines that a node logs from now on."""

    cluster: ProcessCluster
    node_id: int
    _start: int = field(init=False)

    def __post_init__(self) -> None:
        self._start = self._file_size()

    def _file_size(self) -> int:
        return self.cluster.nodes[self.node_id].log_file.stat().st_size

    def text(self) -> str:
        with self.cluster.nodes[self.node_id].log_file.open("rb") as file:
            file.seek(self._start)
            return file.read().decode(errors="replace")

    async def line(self, *parts: str) -> str:
        """Wait for a line that contains all of ``parts``."""
        found: list[str] = []

        def is_there() -> bool:
            found[:] = [e for e in self.text().splitlines() if all(part in e for part in parts)]
            return bool(found)

        await until(is_there, f"a line with {parts} in the log; it says:\n{self.text()}")
        return found[0]


async def wait_known(bootstrap: str, topic: str, *, within_s: float = 30.0) -> None:
    """Until every broker answers for a new topic. The one that made it is the first to know it, and
    clients ask any."""
    async with asyncio.timeout(within_s):
        for address in bootstrap.split(","):
            host, _, port = address.rpartition(":")
            connection = await KafkaConnection.open(
                real_connector(PLAINTEXT), host, int(port), "tests"
            )
            try:
                await connection.negotiate(timeout_s=within_s)
                while not await _knows(connection, topic, within_s):  # noqa: ASYNC110 - no event
                    await asyncio.sleep(0.01)
            finally:
                connection.close()


async def _knows(connection: KafkaConnection, topic: str, timeout_s: float) -> bool:
    asked = metadata.MetadataRequest(
        [metadata.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
    )
    version = connection.version_of(metadata.API)
    answer = await connection.request(metadata.API, version, asked, timeout_s=timeout_s)
    return all(
        each.error_code == 0 and all(part.error_code == 0 for part in each.partitions)
        for each in answer.topics
    )


def committed(bootstrap: str, topic: str) -> list[bytes]:
    """The values of all committed records, once no transaction is open any more: readers hear of
    the end of a transaction a moment after its producer."""
    with Consumer(bootstrap) as consumer:
        places = [(topic, each) for each in consumer.partitions_for(topic)]
        ends = consumer.end_offsets(places)
    with Consumer(
        bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(places)
        found: list[bytes] = []
        while any(consumer.position(*place) < end for place, end in ends.items()):
            found += [record.value or b"" for record in consumer.poll()]
    return found
