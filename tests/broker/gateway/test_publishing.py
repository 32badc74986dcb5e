"""Publish, by a thin client of one simulated node."""

from __future__ import annotations

import asyncio

import pytest

from stele.addresses import Address
from stele.errors import ErrorCode
from stele.producer.partitioner import partition_of
from stele.wire.v1 import log_pb2 as pb
from stele.world import RpcCode, RpcError
from tests.support.one_node import HOST, OneNode, ask, on_a_node, with_machine
from tests.support.thin_client import Publishing, publish, record
from tests.support.thin_node import create, read
from world.world import World


@on_a_node
async def test_records_are_written_as_they_were_given(world: World) -> None:
    await create(world)
    header = pb.RecordHeader
    given = [
        record(b"value", b"key", headers=[header(name="h", value=b"1"), header(name="h")]),
        record(None, b"key"),
        record(b"", b"", timestamp_ms=1_700_000_000_123),
        record(b"explicit", partition=2),
    ]
    results = await publish(world.network.channel(Address(HOST, 9192)), given)
    assert [result.HasField("error") for result in results] == [False] * 4
    written = {(each.partition, each.offset): each for each in await read(world)}
    found = [written[result.partition, result.offset] for result in results]
    assert [(each.key, each.value) for each in found] == [
        (b"key", b"value"),
        (b"key", None),
        (b"", b""),
        (None, b"explicit"),
    ]
    assert found[0].headers == (("h", b"1"), ("h", None))
    assert [each.timestamp_ms for each in found] == [each.timestamp_ms for each in results]
    assert found[2].timestamp_ms == 1_700_000_000_123
    assert [each.partition for each in found[:3]] == [
        partition_of(b"key", 3),
        partition_of(b"key", 3),
        partition_of(b"", 3),
    ]
    assert found[3].partition == 2


@on_a_node
async def test_a_long_key_chooses_the_partition_that_it_always_has(world: World) -> None:
    await create(world, partitions=7)
    keys = [bytes([number]) * 100_000 for number in range(4)]
    results = await publish(
        world.network.channel(Address(HOST, 9192)), [record(b"v", key) for key in (*keys, *keys)]
    )
    expected = [partition_of(key, 7) for key in keys]
    assert [result.partition for result in results] == expected * 2


@on_a_node
async def test_a_record_that_is_refused_says_why_and_the_others_are_written(world: World) -> None:
    await create(world, max_message_bytes="1000")
    await create(world, "compacted", 1, cleanup_policy="compact")
    given = {
        "no topic": record(topic="nobody"),
        "no name": record(topic="no/name"),
        "no partition": record(partition=3),
        "no such partition": record(partition=-1),
        "too large": record(b"x" * 1000),
        "no key": record(topic="compacted"),
        "too late": record(timestamp_ms=world.clock.time_ms() + 4_000_000),
        "too early": record(timestamp_ms=-1),
        "good": record(b"good", b"key"),
        "good, too": record(None, b"key", topic="compacted"),
    }
    results = await publish(world.network.channel(Address(HOST, 9192)), given.values())
    codes = {
        name: result.error.code if result.HasField("error") else 0
        for name, result in zip(given, results, strict=True)
    }
    assert codes == {
        "no topic": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "no name": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "no partition": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "no such partition": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "too large": ErrorCode.MESSAGE_TOO_LARGE,
        "no key": ErrorCode.INVALID_RECORD,
        "too late": ErrorCode.INVALID_TIMESTAMP,
        "too early": ErrorCode.INVALID_TIMESTAMP,
        "good": 0,
        "good, too": 0,
    }
    for result in results[:-2]:
        assert result.error.message
        assert not result.error.maybe_written
        assert (result.partition, result.HasField("offset")) == (-1, False)
    assert [each.value for each in await read(world)] == [b"good"]


@pytest.mark.parametrize("compression", ["GZIP", "SNAPPY", "LZ4", "ZSTD"])
@on_a_node
async def test_batches_are_compressed_and_acknowledged_as_asked_for(
    world: World, compression: str
) -> None:
    await create(world, partitions=1)
    publishing = Publishing(world.network.channel(Address(HOST, 9192)))
    options = pb.PublishOptions(
        acks=pb.PublishOptions.ACKS_LEADER,
        compression=f"COMPRESSION_{compression}",
    )
    values = [b"again and again " * 20] * 50
    await publishing.send(*map(record, values), options=options)
    results = await publishing.receive(50)
    assert [each.offset for each in results] == list(range(50))
    assert [each.value for each in await read(world, partitions=1)] == values


@on_a_node
async def test_a_stream_goes_on_beyond_what_it_may_hold(world: World) -> None:
    await create(world, partitions=2)
    publishing = Publishing(world.network.channel(Address(HOST, 9192)))
    for number in range(25):
        records = [record(b"%d" % (number * 1000 + i), b"k") for i in range(1000)]
        await publishing.send(*records)
    results = await publishing.receive(25_000)
    assert [each.offset for each in results] == list(range(25_000))
    values = [each.value for each in await read(world, partitions=2)]
    assert values == [b"%d" % number for number in range(25_000)]


@on_a_node
async def test_a_large_message_is_made_in_pieces(world: World) -> None:
    await create(world, partitions=1)
    channel = world.network.channel(Address(HOST, 9192))
    sizes = [10] * 600 + [100_000] + [1_000] * 100 + [0, 200_000]
    header = pb.RecordHeader(name="h", value=b"1")
    given = [record(bytes(size), b"k%d" % i, headers=[header]) for i, size in enumerate(sizes)]
    results = await publish(channel, given)
    assert [each.offset for each in results] == list(range(len(sizes)))
    found = await read(world, partitions=1)
    assert [(each.key, len(each.value or b"")) for each in found] == [
        (b"k%d" % i, size) for i, size in enumerate(sizes)
    ]
    assert {each.headers for each in found} == {(("h", b"1"),)}


@on_a_node
async def test_records_of_one_message_for_many_places(world: World) -> None:
    """Each has its own result, and the records of a partition keep their order."""
    await create(world, "a", partitions=3)
    await create(world, "b", partitions=1)
    given = [
        record(b"%d" % i, topic="ab"[i % 2], partition=i % 3 if i % 2 == 0 else 0)
        for i in range(700)
    ]
    given[350] = record(b"nowhere", topic="a", partition=7)
    results = await publish(world.network.channel(Address(HOST, 9192)), given)
    assert [i for i, each in enumerate(results) if each.HasField("error")] == [350]
    for topic, partitions in (("a", 3), ("b", 1)):
        where = {
            (each.partition, each.offset): each.value
            for each in await read(world, topic, partitions)
        }
        mine = [i for i in range(700) if "ab"[i % 2] == topic and i != 350]
        assert len(where) == len(mine)
        for i in mine:
            assert where[results[i].partition, results[i].offset] == b"%d" % i
        places = [(results[i].partition, results[i].offset) for i in mine]
        for partition in range(partitions):
            offsets = [offset for number, offset in places if number == partition]
            assert offsets == list(range(len(offsets)))


async def failure(publishing: Publishing) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await publishing.receive(1)
    return caught.value


@on_a_node
async def test_what_a_stream_may_not_send(world: World) -> None:
    channel = world.network.channel(Address(HOST, 9192))
    late_options = Publishing(channel)
    await late_options.send()
    await late_options.send(options=pb.PublishOptions())
    unknown_option = Publishing(channel)
    await unknown_option.send(options=pb.PublishOptions.FromString(b"\x10\x09"))
    too_many = Publishing(channel)
    await too_many.send(*[pb.PublishRecord()] * 5_001)
    too_large = Publishing(channel)
    await too_large.send(record(bytes(5_000_000)))
    headers = Publishing(channel)
    await headers.send(record(headers=[pb.RecordHeader()] * 1_001))
    for publishing in (late_options, unknown_option, too_many, too_large, headers):
        error = await failure(publishing)
        assert error.code is RpcCode.INVALID_ARGUMENT
        assert error.info is not None
        assert error.info.reason == "INVALID_REQUEST"
        assert error.info.retry_after_ms is None


@with_machine
async def test_a_broker_that_stops_gives_outstanding_results_and_says_where_to_go(
    machine: OneNode,
) -> None:
    await machine.start()
    publishing: list[Publishing] = []

    async def begin(world: World) -> None:
        await create(world)
        stream = Publishing(world.network.channel(Address(HOST, 9192)))
        await stream.send(record(b"first"))
        await stream.receive(1)
        await stream.send(*[record(b"v")] * 9)
        await asyncio.sleep(0.001)  # they have arrived, and wait for the linger time
        publishing.append(stream)

    async def finish(world: World) -> None:
        results = await publishing[0].receive(10)
        assert [each.HasField("error") for each in results] == [False] * 10
        with pytest.raises(RpcError) as caught:
            await publishing[0].receive(11)
        assert caught.value.code is RpcCode.UNAVAILABLE
        assert caught.value.info is not None
        assert caught.value.info.reason == "BROKER_NOT_AVAILABLE"
        assert caught.value.info.retry_after_ms is not None

    await ask(machine, begin)
    assert await machine.stop()
    await ask(machine, finish)
