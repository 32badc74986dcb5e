"""Publishers that send records again, by thin clients of one simulated node."""

from __future__ import annotations

import asyncio

import pytest

from stele.addresses import Address
from stele.errors import ErrorCode
from stele.producer.partitioner import partition_of
from stele.wire.v1 import log_pb2 as pb
from stele.world import Channel, RpcCode, RpcError
from tests.support.one_node import HOST, OneNode, ask, on_a_node, with_machine
from tests.support.thin_client import Publishing, record
from tests.support.thin_node import create, read, remove
from world.world import World


async def create_publisher(channel: Channel) -> pb.CreatePublisherResponse:
    answer = await channel.call("/stele.v1.Log/CreatePublisher", b"", timeout_s=5)
    return pb.CreatePublisherResponse.FromString(answer)


def numbered(first: int, count: int, partition: int = 0) -> list[pb.PublishRecord]:
    return [
        record(b"%d" % sequence, sequence=sequence, partition=partition)
        for sequence in range(first, first + count)
    ]


async def send(
    channel: Channel, publisher_id: int, *records: pb.PublishRecord
) -> list[pb.PublishResult]:
    """Over a stream of its own."""
    publishing = Publishing(channel)
    await publishing.send(*records, options=pb.PublishOptions(publisher_id=publisher_id))
    results = await publishing.receive(len(records))
    await publishing.end()
    return results


def offsets(results: list[pb.PublishResult]) -> list[int | None]:
    assert not any(result.HasField("error") for result in results)
    return [result.offset if result.HasField("offset") else None for result in results]


@on_a_node
async def test_what_is_sent_again_is_written_once_and_keeps_its_offset(world: World) -> None:
    await create(world, partitions=2)
    channel = world.network.channel(Address(HOST, 9192))
    created = await create_publisher(channel)
    assert created.expiration_ms == 86_400_000
    mine, other = created.publisher_id, (await create_publisher(channel)).publisher_id
    assert mine != other
    first = await send(channel, mine, *numbered(0, 5), *numbered(0, 2, partition=1))
    assert offsets(first) == [0, 1, 2, 3, 4, 0, 1]
    assert not any(each.is_duplicate for each in first)
    assert offsets(await send(channel, other, *numbered(0, 1))) == [5]
    again = await send(channel, mine, *numbered(2, 5), *numbered(1, 2, partition=1))
    assert offsets(again) == [2, 3, 4, 6, 7, 1, 2]
    assert [each.is_duplicate for each in again] == [True] * 3 + [False] * 2 + [True, False]
    assert [each.timestamp_ms > 0 for each in again] == [not each.is_duplicate for each in again]
    values = [each.value for each in await read(world, partitions=2)]
    assert values == [b"0", b"1", b"2", b"3", b"4", b"0", b"5", b"6", b"0", b"1", b"2"]


@on_a_node
async def test_the_offsets_of_older_batches_are_not_known_any_more(world: World) -> None:
    await create(world, partitions=1)
    channel = world.network.channel(Address(HOST, 9192))
    publisher_id = (await create_publisher(channel)).publisher_id
    for number in range(7):
        await send(channel, publisher_id, *numbered(number, 1))
    again = await send(channel, publisher_id, *numbered(0, 8))
    assert offsets(again) == [None, None, 2, 3, 4, 5, 6, 7]
    assert len(await read(world, partitions=1)) == 8


@with_machine
async def test_publishers_survive_a_restart(machine: OneNode) -> None:
    await machine.start()
    publisher: list[int] = []

    async def before(world: World) -> None:
        await create(world, partitions=1)
        channel = world.network.channel(Address(HOST, 9192))
        publisher.append((await create_publisher(channel)).publisher_id)
        assert offsets(await send(channel, publisher[0], *numbered(0, 3))) == [0, 1, 2]

    async def after(world: World) -> None:
        channel = world.network.channel(Address(HOST, 9192))
        again = await send(channel, publisher[0], *numbered(1, 4))
        assert offsets(again) == [1, 2, 3, 4]
        assert [each.is_duplicate for each in again] == [True, True, False, False]

    await ask(machine, before)
    assert await machine.stop()
    await machine.start()
    await ask(machine, after)


@on_a_node
async def test_two_streams_of_one_publisher_write_every_record_once(world: World) -> None:
    await create(world, partitions=1)
    channel = world.network.channel(Address(HOST, 9192))
    publisher_id = (await create_publisher(channel)).publisher_id
    streams = [Publishing(channel) for _ in range(3)]
    for stream in streams:
        options = pb.PublishOptions(publisher_id=publisher_id)
        await stream.send(options=options)
    for start in range(0, 300, 10):
        for stream in streams:
            await stream.send(*numbered(start, 10))
    for stream in streams:
        results = await stream.receive(300)
        known = [each for each in offsets(results) if each is not None]
        assert known == sorted(known)
    assert [each.value for each in await read(world, partitions=1)] == [
        b"%d" % number for number in range(300)
    ]


@on_a_node
async def test_a_record_that_is_refused_is_sent_again_under_its_number(world: World) -> None:
    await create(world, partitions=1, max_message_bytes="1000")
    channel = world.network.channel(Address(HOST, 9192))
    publisher_id = (await create_publisher(channel)).publisher_id
    stream = Publishing(channel)
    options = pb.PublishOptions(publisher_id=publisher_id)
    await stream.send(
        *numbered(0, 1),
        record(b"x" * 1000, sequence=1, partition=0),
        *numbered(2, 1),
        options=options,
    )
    results = await stream.receive(3)
    assert [each.error.code for each in results] == [
        0,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ]
    await stream.send(*numbered(1, 2))
    assert offsets((await stream.receive(5))[3:]) == [1, 2]


@on_a_node
async def test_numbers_that_make_no_sense(world: World) -> None:
    await create(world)
    channel = world.network.channel(Address(HOST, 9192))
    publisher_id = (await create_publisher(channel)).publisher_id
    no_partition, no_sequence, negative, no_beginning = await send(
        channel,
        publisher_id,
        record(sequence=0),
        record(partition=0),
        record(partition=0, sequence=-1),
        record(partition=0, sequence=1),
    )
    for result in (no_partition, no_sequence, negative):
        assert result.error.code == ErrorCode.INVALID_REQUEST
    assert no_beginning.error.code == ErrorCode.UNKNOWN_PRODUCER_ID
    publishing = Publishing(channel)
    await publishing.send(record(partition=0, sequence=0))
    (no_publisher,) = await publishing.receive(1)
    assert no_publisher.error.code == ErrorCode.INVALID_REQUEST
    for options in (
        pb.PublishOptions(publisher_id=-1),
        pb.PublishOptions(publisher_id=1, acks=pb.PublishOptions.ACKS_LEADER),
    ):
        refused = Publishing(channel)
        await refused.send(options=options)
        with pytest.raises(RpcError) as caught:
            await refused.receive(1)
        assert caught.value.code is RpcCode.INVALID_ARGUMENT


@on_a_node
async def test_a_topic_that_is_made_anew_does_not_know_the_publisher(world: World) -> None:
    await create(world, partitions=1)
    channel = world.network.channel(Address(HOST, 9192))
    publisher_id = (await create_publisher(channel)).publisher_id
    stream = Publishing(channel)
    await stream.send(*numbered(0, 2), options=pb.PublishOptions(publisher_id=publisher_id))
    await stream.receive(2)
    await remove(world)
    await create(world, partitions=1)
    await asyncio.sleep(1)
    results = await send(channel, publisher_id, *numbered(1, 1), *numbered(0, 1))
    assert results[0].error.code == ErrorCode.UNKNOWN_PRODUCER_ID
    assert offsets(results[1:]) == [0]


@on_a_node
async def test_partitions_of_keys_and_their_number(world: World) -> None:
    await create(world, partitions=7)
    channel = world.network.channel(Address(HOST, 9192))
    keys = [b"", b"a", b"order-1", b"\x00\xff", b"long" * 50_000]

    async def find(topic: str, keys: list[bytes]) -> pb.FindPartitionsResponse:
        request = pb.FindPartitionsRequest(topic=topic, keys=keys)
        return pb.FindPartitionsResponse.FromString(
            await channel.call(
                "/stele.v1.Log/FindPartitions", request.SerializeToString(), timeout_s=5
            )
        )

    found = await find("t", keys)
    assert found.partition_count == 7
    assert list(found.partitions) == [partition_of(key, 7) for key in keys]
    with pytest.raises(RpcError) as caught:
        await find("none", [])
    assert caught.value.code is RpcCode.NOT_FOUND
