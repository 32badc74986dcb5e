"""Invalid input to a running node: it is refused with the right error, and other clients do not
notice."""

from __future__ import annotations

import asyncio
import os
import random
import struct
from collections.abc import AsyncIterator, Iterator

import pytest

from chaos.process_cluster import ProcessCluster
from chaos.sim.cluster.client import SimClient
from runtime.real.world import RealWorld
from stele.addresses import Address
from stele.admin.descriptions import ConfigResource, NewTopic
from stele.aio import Admin
from stele.errors import ApiError, ErrorCode
from stele.wire import kafka
from stele.wire.kafka.messages import api_versions, fetch, list_offsets, metadata, produce
from stele.world import RpcCode, RpcError
from tests.support.acceptance import NodeLog, a_batch, attempt, client_of, grpc_port, say

pytestmark = pytest.mark.processes

NODE = 1
TOPIC = "kept"
MAX_REQUEST_BYTES = 1_000_000
MAX_BATCH_BYTES = 50_000


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    """One process that is broker and controller. It must survive every test of this file."""
    cluster = ProcessCluster(
        tmp_path_factory.mktemp("node"),
        brokers=1,
        combined=True,
        settings={
            "socket.request.max.bytes": str(MAX_REQUEST_BYTES),
            "message.max.bytes": str(MAX_BATCH_BYTES),
            "auto.create.topics.enable": "false",
        },
    )
    asyncio.run(cluster.start())
    pid = cluster.nodes[NODE].pid
    asyncio.run(_create_topic(cluster))
    yield cluster
    assert cluster.nodes[NODE].running
    assert cluster.nodes[NODE].pid == pid
    asyncio.run(cluster.stop())
    assert "Traceback" not in cluster.nodes[NODE].log_file.read_text()


async def _create_topic(cluster: ProcessCluster) -> None:
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topics([NewTopic(TOPIC, 2, 1)])


@pytest.fixture
async def client(node: ProcessCluster) -> AsyncIterator[SimClient]:
    """Another client, which wrote before the test, and writes and reads after it.

    The topic then holds exactly what was acknowledged, in this test and in the earlier ones.
    """
    async with client_of(node) as other:
        before = [value for _, value in await other.fetch_all(TOPIC)]
        await other.produce(TOPIC, b"before %d" % len(before), broker=NODE)
        yield other
        await other.produce(TOPIC, b"after %d" % len(before), broker=NODE)
        records = await other.check_promises(TOPIC)
        assert [value for _, value in records[: len(before)]] == before
        assert len(records) == len(before) + len(other.acknowledged)


@pytest.fixture
def log(node: ProcessCluster) -> NodeLog:
    return NodeLog(node, NODE)


def port_of(node: ProcessCluster) -> int:
    port = node.nodes[NODE].kafka_port
    assert port is not None
    return port


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


# ------------------------------------------------------------------------------ garbage, frames


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\nHost: stele\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(32),
        bytes(64),
        b"\xff" * 64,
        framed(random.Random(1).randbytes(300)),
        framed(b"\x00\x00"),
        framed(struct.pack(">hhih", 0, 9, 7, 3000) + b"client"),
        framed(struct.pack(">hhih", 3, 12, 7, -1) + b"\x00" + b"\xff\xff\xff\xff\x7f"),
    ],
    ids=[
        "HTTP", "TLS", "zeros", "ones", "a frame of noise", "half a header",
        "a client id beyond the frame", "an array of 2 billion topics",
    ],
)  # fmt: skip
async def test_garbage_closes_its_own_connection_only(
    node: ProcessCluster, client: SimClient, log: NodeLog, garbage: bytes
) -> None:
    assert await say(port_of(node), garbage) == b""
    line = await log.line("WARNING", "closing 127.0.0.1:", "PLAINTEXT")
    assert "\\x" not in line


async def test_noise_of_every_kind_on_every_port(node: ProcessCluster, client: SimClient) -> None:
    chance = random.Random(4)
    controller = int(node.nodes[NODE].settings["controller.listener"].rpartition(":")[2])
    ports = [port_of(node), grpc_port(node, NODE), controller, node.nodes[NODE].metrics_port]
    noise = [(port, chance.randbytes(chance.randrange(1, 3000))) for port in ports * 12]
    await asyncio.gather(*(say(port, data, hang_up=True) for port, data in noise))


async def test_a_connection_cut_inside_a_request_appends_nothing(
    node: ProcessCluster, client: SimClient, log: NodeLog
) -> None:
    request = produce.ProduceRequest(
        acks=1,
        timeout_ms=1000,
        topic_data=[
            produce.TopicProduceData(
                name=TOPIC,
                partition_data=[produce.PartitionProduceData(0, a_batch(b"never whole" * 100))],
            )
        ],
    )
    whole = b"".join(bytes(part) for part in kafka.encode_request(produce.API, 9, 1, "x", request))
    for length in (1, 3, 4, 5, 20, 80, len(whole) // 2, len(whole) - 1):
        await say(port_of(node), whole[:length], hang_up=True)
    await log.line("INFO", "127.0.0.1:", "left inside a request")
    assert not any(b"never whole" in value for _, value in await client.fetch_all(TOPIC))


async def test_a_request_that_never_ends_keeps_nobody_else_waiting(
    node: ProcessCluster, client: SimClient
) -> None:
    writers = []
    for _ in range(20):
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(node))
        writer.write(struct.pack(">i", MAX_REQUEST_BYTES) + b"\x00\x00\x00\x09 and then silence")
        writers.append(writer)
    await client.produce(TOPIC, b"beside the silent ones", broker=NODE, timeout_s=2)
    for writer in writers:
        writer.close()


async def test_a_frame_over_the_maximum_is_refused_before_it_is_read(
    node: ProcessCluster, client: SimClient, log: NodeLog
) -> None:
    assert await say(port_of(node), struct.pack(">i", MAX_REQUEST_BYTES + 1)) == b""
    line = await log.line("WARNING", "closing 127.0.0.1:", str(MAX_REQUEST_BYTES + 1))
    assert "socket.request.max.bytes" in line
    assert str(MAX_REQUEST_BYTES) in line


# ------------------------------------------------------------------------------- keys, versions


@pytest.mark.parametrize(
    ("key", "version"),
    [(999, 0), (-1, 0), (0, 99), (1, 99), (3, -1), (0, 0)],
    ids=["unknown key", "negative key", "Produce 99", "Fetch 99", "Metadata -1", "Produce 0"],
)
async def test_an_unknown_key_or_version_closes_its_own_connection_only(
    node: ProcessCluster, client: SimClient, log: NodeLog, key: int, version: int
) -> None:
    request = framed(struct.pack(">hhih", key, version, 1, -1) + bytes(20))
    assert await say(port_of(node), request) == b""
    line = await log.line("WARNING", "closing 127.0.0.1:")
    assert f"API key {key} version {version}" in line


async def test_a_newer_api_versions_request_is_answered_and_the_connection_goes_on(
    node: ProcessCluster, client: SimClient
) -> None:
    """KIP-511: the answer is in version 0, with UNSUPPORTED_VERSION and the versions that there
    are."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(node))

    async def ask(version: int, correlation_id: int) -> tuple[int, bytes]:
        head = struct.pack(">hhih", 18, version, correlation_id, -1)
        writer.write(framed(head + (b"\x00" + b"\x05new!\x021\x00" if version > 2 else b"")))
        async with asyncio.timeout(5):
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            answer = await reader.readexactly(size)
        return struct.unpack(">i", answer[:4])[0], answer[4:]

    correlation_id, answer = await ask(99, 7)
    assert correlation_id == 7
    assert struct.unpack(">hihhh", answer) == (
        ErrorCode.UNSUPPORTED_VERSION, 1, 18, 0, api_versions.API.max_version
    )  # fmt: skip
    correlation_id, answer = await ask(0, 8)
    assert (correlation_id, answer[:2]) == (8, b"\x00\x00")
    writer.close()


# ------------------------------------------------------------------------------------- batches


def broken(batch: bytearray, position: int, change: int = 0x40) -> bytes:
    copy = bytearray(batch)
    copy[position] ^= change
    return bytes(copy)


BATCH = a_batch(b"a value", b"another")


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (broken(BATCH, len(BATCH) - 1), ErrorCode.CORRUPT_MESSAGE),
        (broken(BATCH, 17), ErrorCode.CORRUPT_MESSAGE),
        (bytes(BATCH[:-1]), ErrorCode.CORRUPT_MESSAGE),
        (bytes(BATCH[:30]), ErrorCode.CORRUPT_MESSAGE),
        (b"no batch at all, but long enough to hold the header of one, or so it seems",
         ErrorCode.CORRUPT_MESSAGE),
        (broken(BATCH, 16, 0x03), ErrorCode.INVALID_RECORD),
        (bytes(BATCH * 2), ErrorCode.INVALID_RECORD),
        (bytes(a_batch(os.urandom(MAX_BATCH_BYTES))), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["CRC of the records", "the CRC itself", "cut", "cut in the header", "noise", "magic 1",
         "two batches", "over max.message.bytes"],
)  # fmt: skip
async def test_a_bad_batch_is_refused_and_the_good_one_beside_it_is_not(
    client: SimClient, log: NodeLog, bad: bytes, code: ErrorCode
) -> None:
    """Partition 0 of the request has the bad batch, partition 1 a good one."""
    # The log has one line of each kind per second, and the test waits for its own.
    await asyncio.sleep(1)
    ends = len(await client.fetch_all(TOPIC, 0)), len(await client.fetch_all(TOPIC, 1))
    refused, taken = await attempt(client, NODE, TOPIC, bad, bytes(a_batch(b"good")))
    assert ErrorCode(refused.error_code) is code
    assert refused.base_offset == -1
    assert refused.error_message
    assert "\n" not in refused.error_message
    await log.line("WARNING", f"{TOPIC}-0", code.name, refused.error_message)
    assert (taken.error_code, taken.base_offset) == (ErrorCode.NONE, ends[1])
    assert len(await client.fetch_all(TOPIC, 0)) == ends[0]
    assert len(await client.fetch_all(TOPIC, 1)) == ends[1] + 1


async def test_a_bad_batch_with_acks_1_and_0_is_refused_too(client: SimClient) -> None:
    end = len(await client.fetch_all(TOPIC))
    (answer,) = await attempt(client, NODE, TOPIC, broken(BATCH, 17), acks=1)
    assert ErrorCode(answer.error_code) is ErrorCode.CORRUPT_MESSAGE
    with pytest.raises(ApiError):  # acks=0 has no answer: the end of the connection shows the error
        await attempt(client, NODE, TOPIC, broken(BATCH, 17), acks=0)
    assert len(await client.fetch_all(TOPIC)) == end


@pytest.mark.parametrize("acks", [2, -2, 1000])
async def test_acks_that_are_none(client: SimClient, acks: int) -> None:
    (answer,) = await attempt(client, NODE, TOPIC, bytes(BATCH), acks=acks)
    assert ErrorCode(answer.error_code) is ErrorCode.INVALID_REQUIRED_ACKS


# ---------------------------------------------------------------------------- topics, configs


@pytest.mark.parametrize("topic", ["nobody-made-me", "not a name", "", "..", "x" * 250])
async def test_topics_that_are_not_there(client: SimClient, topic: str) -> None:
    connection = await client.connection(NODE)
    (answer,) = await attempt(client, NODE, topic, bytes(BATCH))
    assert ErrorCode(answer.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    fetched = await connection.request(
        fetch.API,
        connection.version_of(fetch.API, at_most=12),
        fetch.FetchRequest(
            max_wait_ms=100,
            topics=[fetch.FetchTopic(topic=topic, partitions=[fetch.FetchPartition()])],
        ),
        timeout_s=5,
    )
    code = fetched.responses[0].partitions[0].error_code
    assert ErrorCode(code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    listed = await connection.request(
        list_offsets.API,
        connection.version_of(list_offsets.API),
        list_offsets.ListOffsetsRequest(
            topics=[
                list_offsets.ListOffsetsTopic(
                    name=topic, partitions=[list_offsets.ListOffsetsPartition(timestamp=-1)]
                )
            ]
        ),
        timeout_s=5,
    )
    code = listed.topics[0].partitions[0].error_code
    assert ErrorCode(code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    described = await connection.request(
        metadata.API,
        connection.version_of(metadata.API),
        metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=topic)]),
        timeout_s=5,
    )
    assert ErrorCode(described.topics[0].error_code) is (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic == "nobody-made-me"
        else ErrorCode.INVALID_TOPIC_EXCEPTION
    )


async def test_a_partition_that_is_not_there(client: SimClient) -> None:
    *_, answer = await attempt(client, NODE, TOPIC, b"", b"", bytes(BATCH))
    assert ErrorCode(answer.error_code) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


REFUSED_TOPICS = [
    (NewTopic("not a name", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, "not a name"),
    (NewTopic("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, ""),
    (NewTopic(".", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, "."),
    (NewTopic("../../etc/passwd", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, ""),
    (NewTopic("x" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, "249"),
    (NewTopic("a\nb", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION, ""),
    (NewTopic(TOPIC, 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS, TOPIC),
    (NewTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS, "0"),
    (NewTopic("t", -7, 1), ErrorCode.INVALID_PARTITIONS, "-7"),
    (NewTopic("t", 1, 2), ErrorCode.INVALID_REPLICATION_FACTOR, "2"),
    (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "0"),
    (NewTopic("t", 1, 1, {"retention.msec": "1"}), ErrorCode.INVALID_CONFIG, "retention.ms"),
    (NewTopic("t", 1, 1, {"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG, "soon"),
    (NewTopic("t", 1, 1, {"min.insync.replicas": "0"}), ErrorCode.INVALID_CONFIG, "0"),
    (NewTopic("t", 1, 1, {"cleanup.policy": "burn"}), ErrorCode.INVALID_CONFIG, "delete"),
]


@pytest.mark.parametrize(
    ("topic", "code", "said"), REFUSED_TOPICS, ids=lambda each: repr(each)[:40]
)
async def test_topics_that_cannot_be_made(
    node: ProcessCluster, client: SimClient, topic: NewTopic, code: ErrorCode, said: str
) -> None:
    async with Admin(node.bootstrap_servers) as admin:
        with pytest.raises(ApiError) as caught:
            await admin.create_topics([topic])
        assert caught.value.code is code
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
        assert [each.name for each in await admin.list_topics()] == [TOPIC]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"retention.ms": "soon"}, "soon"),
        ({"retension.ms": "1"}, "retention.ms"),
        ({"max.message.bytes": "-1"}, "-1"),
        ({"min.insync.replicas": "1", "cleanup.policy": "burn"}, "burn"),
    ],
)
async def test_configs_that_cannot_be(
    node: ProcessCluster, client: SimClient, changes: dict[str, str], said: str
) -> None:
    async with Admin(node.bootstrap_servers) as admin:
        resource = ConfigResource.topic(TOPIC)
        before = await admin.describe_configs([resource])
        with pytest.raises(ApiError, match="INVALID_CONFIG") as caught:
            await admin.alter_configs({resource: {**changes}})
        assert said in str(caught.value)
        assert await admin.describe_configs([resource]) == before


# ---------------------------------------------------------------------------------------- gRPC


@pytest.mark.parametrize("method", ["CreateTopics", "DeleteTopics", "AlterConfigs"])
async def test_a_grpc_request_that_is_none(
    node: ProcessCluster, client: SimClient, method: str
) -> None:
    world = RealWorld()
    channel = world.world.network.channel(Address("127.0.0.1", grpc_port(node, NODE)))
    with pytest.raises(RpcError, match=f"40 bytes that are no .*{method}Request") as caught:
        await channel.call(f"/stele.v1.Admin/{method}", b"\xff" * 40, timeout_s=5)
    assert caught.value.code is RpcCode.INVALID_ARGUMENT
    with pytest.raises(RpcError) as caught:
        await channel.call("/stele.v1.Admin/NoSuchMethod", b"", timeout_s=5)
    assert caught.value.code is RpcCode.UNIMPLEMENTED
    await channel.close()
    world.close()
