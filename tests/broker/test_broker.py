"""A complete broker: its start, its answers, bad input, its end.

One simulated node that is both controller and broker, used over the wire.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.api import SERVED
from broker.api.handler import Served
from runtime.authorization.authorizer import CLUSTER, Operation
from stele.addresses import Address
from stele.cluster.kafka_connection import KafkaConnection
from stele.errors import ErrorCode, SteleError
from stele.wire.kafka import Api, Struct
from stele.wire.kafka.messages import (
    create_topics,
    describe_cluster,
    fetch,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from stele.wire.v1 import admin_pb2, log_pb2
from stele.world import RpcCode, RpcError
from tests.support.authorizer import FakeAuthorizer
from tests.support.batches import make_batch
from tests.support.broker_apis import aim
from tests.support.one_node import HOST, OneNode, ask, on_a_node, with_machine
from tests.support.wire import messages
from world.world import World

Q = TypeVar("Q", bound=Struct)
R = TypeVar("R", bound=Struct)

LATEST = list_offsets.ListOffsetsRequest(
    replica_id=-1,
    topics=[list_offsets.ListOffsetsTopic("t", [list_offsets.ListOffsetsPartition(0, -1, -1)])],
)


async def _connect(world: World) -> KafkaConnection:
    return await KafkaConnection.open(world.network, HOST, 9092, client_id="test")


async def _request(connection: KafkaConnection, api: Api[Q, R], version: int, request: Q) -> R:
    return await connection.request(api, version, request, timeout_s=10)


def _produce(records: bytes, *, acks: int = -1, topic: str = "t") -> produce.ProduceRequest:
    return produce.ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        topic_data=[
            produce.TopicProduceData(
                name=topic, partition_data=[produce.PartitionProduceData(0, records)]
            )
        ],
    )


async def _create(connection: KafkaConnection, **configs: str) -> None:
    request = create_topics.CreateTopicsRequest(
        topics=[
            create_topics.CreatableTopic(
                "t",
                1,
                1,
                configs=[
                    create_topics.CreatableTopicConfig(key.replace("_", "."), value)
                    for key, value in configs.items()
                ],
            )
        ],
        timeout_ms=5000,
    )
    answer = await _request(connection, create_topics.API, 7, request)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message


async def _error_of(connection: KafkaConnection, request: produce.ProduceRequest) -> ErrorCode:
    answer = await _request(connection, produce.API, 9, request)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


@on_a_node
async def test_from_empty_directories_to_records_read_back(
    world: World,
) -> None:
    connection = await _connect(world)
    await _create(connection)
    assert await _error_of(connection, _produce(bytes(make_batch(3)))) == 0
    request = fetch.FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        topics=[
            fetch.FetchTopic("t", partitions=[fetch.FetchPartition(0, partition_max_bytes=10_000)])
        ],
    )
    answer = await _request(connection, fetch.API, 12, request)
    partition = answer.responses[0].partitions[0]
    assert (partition.error_code, partition.high_watermark) == (0, 3)
    assert len(partition.records or b"") == len(make_batch(3))
    offsets = await _request(
        connection,
        list_offsets.API,
        7,
        LATEST,
    )
    assert offsets.topics[0].partitions[0].offset == 3
    first = await _request(
        connection, init_producer_id.API, 4, init_producer_id.InitProducerIdRequest()
    )
    assert first.error_code == 0


@with_machine
async def test_what_was_written_and_the_broker_epoch_survive_an_orderly_restart(
    machine: OneNode,
) -> None:
    await machine.start()

    async def before(world: World) -> None:
        connection = await _connect(world)
        await _create(connection)
        assert await _error_of(connection, _produce(bytes(make_batch(2)))) == 0

    await ask(machine, before)
    assert await machine.stop()
    await machine.start()
    assert machine.node.broker is not None
    assert machine.node.broker.serving

    async def after(world: World) -> None:
        connection = await _connect(world)
        assert await _error_of(connection, _produce(bytes(make_batch(1)))) == 0
        answer = await _request(
            connection,
            list_offsets.API,
            7,
            LATEST,
        )
        assert answer.topics[0].partitions[0].offset == 3

    await ask(machine, after)


@on_a_node
async def test_both_planes_and_the_bootstrap_of_the_second(
    world: World,
) -> None:
    connection = await _connect(world)
    await _create(connection)
    found = await _request(
        connection,
        describe_cluster.API,
        1,
        describe_cluster.DescribeClusterRequest(endpoint_type=3),
    )
    assert [(b.host, b.port) for b in found.brokers] == [(HOST, 9192)]
    channel = world.network.channel(Address(HOST, 9192))
    answer = admin_pb2.DescribeTopicsResponse.FromString(
        await channel.call("/stele.v1.Admin/DescribeTopics", b"", timeout_s=5)
    )
    assert [topic.name for topic in answer.topics] == ["t"]
    stream = channel.stream("/stele.v1.Log/Publish")
    record = log_pb2.PublishRecord(value=b"v", partition=0)
    request = log_pb2.PublishRequest(topic="t", records=[record])
    await stream.send(request.SerializeToString())
    (written,) = log_pb2.PublishResponse.FromString(await stream.receive() or b"").results
    assert (written.partition, written.offset, written.HasField("error")) == (0, 0, False)
    await stream.close()
    cluster = admin_pb2.DescribeClusterResponse.FromString(
        await channel.call("/stele.v1.Admin/DescribeCluster", b"", timeout_s=5)
    )
    assert [b.fenced for b in cluster.brokers] == [False]
    with pytest.raises(RpcError) as caught:
        await channel.call("/stele.v1.Admin/DescribeTopics", b"\xff\xff", timeout_s=5)
    assert caught.value.code is RpcCode.INVALID_ARGUMENT


@pytest.fixture
def authorizer() -> FakeAuthorizer:
    return FakeAuthorizer()


@on_a_node
async def test_only_nodes_may_probe_a_broker(world: World, authorizer: FakeAuthorizer) -> None:
    channel, probe = world.network.channel(Address(HOST, 9192)), "/stele.v1.BrokerControl/Probe"
    assert await channel.call(probe, b"", timeout_s=5)
    authorizer.denied = {(Operation.CLUSTER_ACTION, CLUSTER)}
    with pytest.raises(RpcError, match="may not CLUSTER_ACTION the cluster") as caught:
        await channel.call(probe, b"", timeout_s=5)
    assert caught.value.code is RpcCode.PERMISSION_DENIED
    authorizer.denied = set()


@on_a_node
async def test_bad_batches_are_refused_and_good_ones_go_on(
    world: World,
) -> None:
    connection = await _connect(world)
    await _create(connection, max_message_bytes="1000")
    good = bytes(make_batch(1))
    bad_crc = bytearray(good)
    bad_crc[-1] ^= 1
    old_magic = bytearray(good)
    old_magic[16] = 1
    expected = {
        ErrorCode.CORRUPT_MESSAGE: [bytes(bad_crc), good[:-1]],
        ErrorCode.MESSAGE_TOO_LARGE: [bytes(make_batch(1, value=b"x" * 1000))],
        ErrorCode.INVALID_RECORD: [bytes(old_magic), good + good],
    }
    for error, batches in expected.items():
        for batch in batches:
            got = await _error_of(connection, _produce(batch))
            assert got is error, f"{got!r} instead of {error!r}"
    assert await _error_of(connection, _produce(good)) == 0


@on_a_node
async def test_an_auto_created_topic_can_be_written_at_once(
    world: World,
) -> None:
    connection = await _connect(world)
    request = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="t")])
    answer = await _request(connection, metadata.API, 12, request)
    (topic,) = answer.topics
    assert (topic.error_code, topic.partitions[0].leader_id) == (0, 1)
    assert await _error_of(connection, _produce(bytes(make_batch(1)))) == 0


@on_a_node(connections_max_idle_ms="2000")
async def test_a_silent_connection_is_closed(
    world: World,
) -> None:
    idle, busy = await _connect(world), await _connect(world)
    for _ in range(6):
        await asyncio.sleep(0.5)
        await _request(busy, metadata.API, 12, metadata.MetadataRequest([]))
    assert idle.is_closed
    assert not busy.is_closed


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("listeners", f"PLAINTEXT://{HOST}:9999"),
        ("grpc_listeners", f"PLAINTEXT://{HOST}:9999"),
    ],
)
@with_machine
async def test_a_port_in_use_is_one_line_that_names_the_key(
    machine: OneNode, key: str, value: str
) -> None:
    squatter = machine.simulation.process(HOST, "squatter")

    async def listen() -> None:
        await squatter.world.network.listen(Address(HOST, 9999), asyncio.Protocol)

    await squatter.run(listen())
    with pytest.raises(SteleError) as caught:
        await machine.boot(**{key: value})
    text = str(caught.value)
    assert text.startswith(key.replace("_", ".") + "=PLAINTEXT://")
    assert "\n" not in text
    # Nothing stays open: another node can use the same directories and other ports.
    machine.simulation.kill(machine.process)
    await machine.start()


@with_machine
async def test_a_failed_disk_takes_leaderships_away_but_not_the_node(
    machine: OneNode, caplog: pytest.LogCaptureFixture
) -> None:
    await machine.start()
    broker = machine.node.broker
    assert broker is not None

    async def fail() -> None:
        (directory,) = broker.directories
        assert directory.on_offline is not None
        directory.offline = OSError(errno.EIO, "the device is gone")
        directory.on_offline(directory)

    with caplog.at_level(logging.ERROR):
        await machine.process.run(fail())
        await asyncio.sleep(1.0)
    assert "/data failed" in caplog.text

    async def questions(world: World) -> None:
        connection = await _connect(world)
        answer = await _request(connection, metadata.API, 12, metadata.MetadataRequest([]))
        assert answer.cluster_id == "the-cluster"

    await ask(machine, questions)
    assert not broker.serving


_DATA_APIS = [
    each
    for each in SERVED
    if each.api.key.name in ("PRODUCE", "FETCH", "LIST_OFFSETS", "OFFSET_FOR_LEADER_EPOCH")
]


@st.composite
def _data_requests(draw: st.DrawFn) -> tuple[Served, int, Any]:
    served = draw(st.sampled_from(_DATA_APIS))
    version = draw(st.integers(served.api.min_version, served.versions[1]))
    request = draw(messages(served.api, version, "request"))
    aim(request, "t", b"")
    if served.api.key.name == "PRODUCE" and request.acks == 0:
        request.acks = 1
    return served, version, request


@settings(max_examples=8, suppress_health_check=list(HealthCheck))
@given(requests=st.lists(_data_requests(), min_size=20, max_size=40))
@on_a_node
async def test_any_request_of_the_data_plane(
    machine: OneNode, world: World, requests: list[tuple[Served, int, Any]]
) -> None:
    connection = await _connect(world)
    await _create(connection)
    for served, version, request in requests:
        await _request(connection, served.api, version, request)
    assert await _error_of(connection, _produce(bytes(make_batch(1)))) == 0

    values = machine.node.registry.values()
    assert not [name for name in values if name.startswith("stele_request_failures")]


@pytest.mark.parametrize("after_s", [0.0, 0.0005, 0.002, 0.01, 0.05])
@with_machine
async def test_an_end_that_is_interrupted_leaves_nothing_open(
    machine: OneNode, after_s: float
) -> None:
    """An interrupted end must not be left half done: locks, logs and ports are released."""

    await machine.start()
    world = machine.process.world

    async def interrupted() -> None:
        end = asyncio.ensure_future(machine.node.stop())
        await asyncio.sleep(after_s)
        end.cancel()
        await asyncio.gather(end, return_exceptions=True)

    await machine.process.run(interrupted())
    world.disk.lock("/data/.lock")()
    if after_s == 0.0:  # it was about to hand leaderships over
        assert world.disk.exists("/data/.kafka_cleanshutdown")

    async def refused(world: World) -> None:
        for port in (9092, 9093, 9192):
            with pytest.raises(OSError, match="refused"):
                await world.network.connect(Address(HOST, port), asyncio.Protocol)

    await ask(machine, refused)
