"""Subscribe, by a thin client of one simulated node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stele.addresses import Address
from stele.wire.v1 import log_pb2 as pb
from stele.world import Channel, RpcCode, RpcError
from tests.support.one_node import HOST, OneNode, ask, on_a_node, with_machine
from tests.support.thin_client import Publishing, Subscribing, publish, record
from tests.support.thin_node import create, remove
from tests.support.timing import until
from world.world import World

EARLIEST = pb.PartitionStart.EDGE_EARLIEST
LATEST = pb.PartitionStart.EDGE_LATEST


def begin(topic: str = "t", **more: Any) -> pb.PartitionStart:
    return pb.PartitionStart(topic=topic, **more)


async def channel_with(world: World, values: list[bytes], **more: Any) -> Channel:
    """A topic of one partition with these values."""
    await create(world, partitions=1, **more)
    channel = world.network.channel(Address(HOST, 9192))
    if values:
        await publish(channel, [record(value) for value in values])
    return channel


async def is_quiet(subscribing: Subscribing) -> bool:
    """Whether nothing comes for a while. The stream cannot be used afterwards."""
    try:
        async with asyncio.timeout(20):
            return await subscribing.receive() is None
    except TimeoutError:
        return True


@on_a_node
async def test_records_arrive_as_they_were_written(world: World) -> None:
    channel = await channel_with(world, [])
    header = pb.RecordHeader
    given = [
        record(b"value", b"key", headers=[header(name="h", value=b"1"), header(name="h")]),
        record(None, b"key", timestamp_ms=1_700_000_000_123),
        record(b"", b""),
        record(),
    ]
    await publish(channel, given)
    subscribing = Subscribing(channel)
    credit = pb.Credit(records=10)
    assert await subscribing.start(begin(edge=EARLIEST), credit=credit) == [(0, 4)]
    found = await subscribing.records(4)
    assert [each.offset for each in found] == [0, 1, 2, 3]
    for sent, got in zip(given, found, strict=True):
        for name in ("key", "value"):
            assert got.HasField(name) == sent.HasField(name)
            assert getattr(got, name) == getattr(sent, name)
        assert list(got.headers) == list(sent.headers)
        assert not got.is_append_time
    assert found[1].timestamp_ms == 1_700_000_000_123


@on_a_node
async def test_where_to_begin(world: World) -> None:
    channel = await channel_with(world, [])
    await publish(channel, [record(timestamp_ms=1_000 + number) for number in range(10)])
    places: dict[str, tuple[dict[str, Any], int]] = {
        "default": ({}, 10),
        "earliest": ({"edge": EARLIEST}, 0),
        "latest": ({"edge": LATEST}, 10),
        "offset": ({"offset": 4}, 4),
        "time": ({"timestamp_ms": 1_007}, 7),
        "later time": ({"timestamp_ms": 2_000}, 10),
        "one of one": ({"partition": 0, "offset": 1}, 1),
    }
    for place, position in places.values():
        subscribing = Subscribing(channel)
        assert await subscribing.start(begin(**place)) == [(position, 10)]
        await subscribing.grant(1)
        if position < 10:
            (found,) = await subscribing.records(1)
            assert found.offset == position
        await subscribing.end()


@on_a_node
async def test_no_more_than_the_credit_is_sent(world: World) -> None:
    channel = await channel_with(world, [b"%04d" % number for number in range(100)])
    subscribing = Subscribing(channel)
    await subscribing.start(begin(edge=EARLIEST))
    await subscribing.grant(3)
    assert [each.value for each in await subscribing.records(3)] == [b"0000", b"0001", b"0002"]
    await subscribing.grant(50, 10)  # 4 bytes each: the third one overdraws the credit
    assert [each.offset for each in await subscribing.records(3)] == [3, 4, 5]
    await subscribing.grant(0, 3)
    assert [each.offset for each in await subscribing.records(1)] == [6]
    await subscribing.grant(0, 3)  # 3 bytes for the debt
    assert await is_quiet(subscribing)


@on_a_node
async def test_new_records_come_at_once_and_in_order(world: World) -> None:
    channel = await channel_with(world, [])
    subscribing = Subscribing(channel)
    await subscribing.start(begin(), credit=pb.Credit(records=1_000_000))
    publishing = Publishing(channel)
    for number in range(5):
        began = asyncio.get_running_loop().time()
        await publishing.send(record(b"%d" % number))
        (found,) = await subscribing.records(1)
        assert (found.offset, found.value) == (number, b"%d" % number)
        assert asyncio.get_running_loop().time() - began < 0.1


@on_a_node
async def test_all_partitions_of_several_topics(world: World) -> None:
    await create(world, "a", 3)
    await create(world, "b", 2)
    channel = world.network.channel(Address(HOST, 9192))
    for topic, number in (("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)):
        await publish(channel, [record(topic.encode(), partition=number)] * 700, topic)
    subscribing = Subscribing(channel)
    await subscribing.start(
        begin("b", edge=EARLIEST, partition=1),
        begin("a", edge=EARLIEST),
        credit=pb.Credit(records=10_000),
    )
    found: dict[tuple[str, int], list[int]] = {}
    while sum(map(len, found.values())) < 2_800:
        response = await subscribing.receive()
        assert response is not None
        told = response.records
        assert {each.value for each in told.records} == {told.topic.encode()}
        offsets = found.setdefault((told.topic, told.partition), [])
        offsets += [each.offset for each in told.records]
    assert found == {
        (topic, number): list(range(700))
        for topic, number in (("a", 0), ("a", 1), ("a", 2), ("b", 1))
    }


@pytest.mark.parametrize(
    ("start", "code", "reason"),
    [
        (pb.SubscribeStart(), RpcCode.INVALID_ARGUMENT, "INVALID_REQUEST"),
        (
            pb.SubscribeStart(partitions=[begin("none")]),
            RpcCode.NOT_FOUND,
            "UNKNOWN_TOPIC_OR_PARTITION",
        ),
        (
            pb.SubscribeStart(partitions=[begin(partition=1)]),
            RpcCode.NOT_FOUND,
            "UNKNOWN_TOPIC_OR_PARTITION",
        ),
        (
            pb.SubscribeStart(partitions=[begin(), begin(partition=0)]),
            RpcCode.INVALID_ARGUMENT,
            "INVALID_REQUEST",
        ),
        (
            pb.SubscribeStart(partitions=[begin(offset=-1)]),
            RpcCode.INVALID_ARGUMENT,
            "INVALID_REQUEST",
        ),
        (
            pb.SubscribeStart(partitions=[begin(timestamp_ms=-1)]),
            RpcCode.INVALID_ARGUMENT,
            "INVALID_REQUEST",
        ),
        (
            pb.SubscribeStart(partitions=[begin("many")]),
            RpcCode.RESOURCE_EXHAUSTED,
            "POLICY_VIOLATION",
        ),
        (
            pb.SubscribeStart(partitions=[begin(offset=7)], credit=pb.Credit(records=1)),
            RpcCode.OUT_OF_RANGE,
            "OFFSET_OUT_OF_RANGE",
        ),
    ],
)
@on_a_node
async def test_a_start_that_is_refused(
    world: World, start: pb.SubscribeStart, code: RpcCode, reason: str
) -> None:
    channel = await channel_with(world, [b"v"])
    if start.partitions and start.partitions[0].topic == "many":
        await create(world, "many", 1_001)
    subscribing = Subscribing(channel)
    await subscribing.send(pb.SubscribeRequest(start=start))
    with pytest.raises(RpcError) as caught:
        await subscribing.records(1)
    assert caught.value.code is code
    assert caught.value.info is not None
    assert caught.value.info.reason == reason
    if code is RpcCode.OUT_OF_RANGE:
        expected = {"topic": "t", "partition": "0", "offset": "7"}
        assert caught.value.info.metadata == expected


@on_a_node
async def test_messages_in_a_wrong_order(world: World) -> None:
    channel = await channel_with(world, [])
    no_start, two_starts, nothing = (Subscribing(channel) for _ in range(3))
    await no_start.grant(1)
    await two_starts.start(begin())
    await two_starts.send(pb.SubscribeRequest(start=pb.SubscribeStart()))
    await nothing.start(begin())
    await nothing.send(pb.SubscribeRequest())
    for subscribing in (no_start, two_starts, nothing):
        with pytest.raises(RpcError) as caught:
            await subscribing.receive()
        assert caught.value.code is RpcCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("reset", "position"),
    [("OFFSET_RESET_EARLIEST", 0), ("OFFSET_RESET_LATEST", 1)],
)
@on_a_node
async def test_a_position_outside_of_the_log_is_reset_as_asked_for(
    world: World, reset: str, position: int
) -> None:
    channel = await channel_with(world, [b"v"])
    subscribing = Subscribing(channel)
    credit = pb.Credit(records=10)
    await subscribing.start(begin(offset=7), offset_reset=reset, credit=credit)
    if position == 1:
        await asyncio.sleep(10)  # the end has been looked up
        await publish(channel, [record(b"new")])
    (found,) = await subscribing.records(1)
    assert found.offset == position


@on_a_node
async def test_a_topic_that_is_deleted_ends_its_streams(world: World) -> None:
    channel = await channel_with(world, [b"v"])
    subscribing = Subscribing(channel)
    await subscribing.start(begin(edge=EARLIEST), credit=pb.Credit(records=10))
    await subscribing.records(1)
    await remove(world)
    with pytest.raises(RpcError) as caught:
        await subscribing.receive()
    assert caught.value.code is RpcCode.NOT_FOUND


@with_machine
async def test_a_broker_that_stops_says_so(machine: OneNode) -> None:
    await machine.start()
    opened: list[Subscribing] = []

    async def begin_one(world: World) -> None:
        channel = await channel_with(world, [b"v"])
        subscribing = Subscribing(channel)
        await subscribing.start(begin(edge=EARLIEST), credit=pb.Credit(records=10))
        await subscribing.records(1)
        opened.append(subscribing)

    async def finish(world: World) -> None:
        with pytest.raises(RpcError) as caught:
            await opened[0].receive()
        assert caught.value.code is RpcCode.UNAVAILABLE
        assert caught.value.info is not None
        assert caught.value.info.reason == "BROKER_NOT_AVAILABLE"

    await ask(machine, begin_one)
    assert await machine.stop()
    await ask(machine, finish)


@on_a_node
async def test_open_streams_are_counted(
    machine: OneNode,
    world: World,
) -> None:
    def counted() -> list[str]:
        page = machine.node.registry.render().decode()
        return [line for line in page.splitlines() if line.startswith("stele_thin_streams{")]

    channel = await channel_with(world, [b"v"])
    subscribing = Subscribing(channel)
    await subscribing.start(begin())
    assert counted() == [
        'stele_thin_streams{method="Publish"} 0.0',
        'stele_thin_streams{method="Subscribe"} 1.0',
    ]
    await subscribing.end()
    await until(lambda: counted()[1].endswith(" 0.0"), "the stream has ended")
