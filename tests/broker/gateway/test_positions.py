"""The positions that Subscribe sends where no record shows them, on one simulated node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stele.addresses import Address
from stele.wire.v1 import log_pb2 as pb
from stele.world import Channel
from tests.support.one_node import HOST, on_a_node
from tests.support.thin_client import Member, Publishing, Subscribing, publish, record
from tests.support.thin_node import create, remove
from world.world import World

EARLIEST = pb.PartitionStart.EDGE_EARLIEST
COMMITTED = pb.SubscribeStart.ISOLATION_READ_COMMITTED
COMMIT = pb.PublishRequest.TRANSACTION_END_COMMIT
ABORT = pb.PublishRequest.TRANSACTION_END_ABORT
MUCH = pb.Credit(records=1_000)


async def transaction(channel: Channel, end: Any, *records: pb.PublishRecord) -> None:
    """A transaction in one partition, until its marker is there."""
    publishing = Publishing(channel)
    options = pb.PublishOptions(transactional_id="x")
    await publishing.send(*records, options=options)
    results = await publishing.receive(len(records))
    await publishing.send(transaction_end=end)
    await publishing.end()
    partition, offset = results[-1].partition, results[-1].offset
    async with asyncio.timeout(60):
        while await end_of(channel, partition) != offset + 2:
            pass


async def end_of(channel: Channel, partition: int) -> int:
    """The end offset for readers of committed records."""
    subscribing = Subscribing(channel)
    start = pb.PartitionStart(topic="t", partition=partition)
    ((_, end_offset),) = await subscribing.start(start, isolation=COMMITTED)
    await subscribing.end()
    return end_offset


async def begin(channel: Channel, credit: pb.Credit = MUCH, **more: Any) -> Subscribing:
    subscribing = Subscribing(channel)
    start = pb.PartitionStart(topic="t", edge=EARLIEST)
    await subscribing.start(start, credit=credit, **more)
    return subscribing


async def positions(subscribing: Subscribing) -> list[tuple[int, int, int]]:
    """Partition, position and end offset of each, in the next message, which tells nothing else."""
    async with asyncio.timeout(10):
        response = await subscribing.receive()
    assert response is not None
    assert response.WhichOneof("response") == "positions"
    assert all(len(each.topic_id) == 16 for each in response.positions.partitions)
    assert {each.topic for each in response.positions.partitions} == {"t"}
    return [
        (each.partition, each.position, each.end_offset) for each in response.positions.partitions
    ]


@on_a_node
async def test_the_position_behind_a_marker_is_reported(world: World) -> None:
    await create(world, partitions=1)
    channel = world.network.channel(Address(HOST, 9192))
    await transaction(channel, COMMIT, record(b"a"), record(b"b"))
    subscribing = await begin(channel)
    assert [each.offset for each in await subscribing.records(2)] == [0, 1]
    assert await positions(subscribing) == [(0, 3, 3)]
    await publish(channel, [record(b"c")])
    assert [each.offset for each in await subscribing.records(1)] == [3]


@on_a_node
async def test_the_position_behind_an_aborted_transaction_is_reported_without_a_record(
    world: World,
) -> None:
    await create(world, partitions=1)
    channel = world.network.channel(Address(HOST, 9192))
    await transaction(channel, ABORT, record(b"a"), record(b"b"))
    subscribing = await begin(channel, isolation=COMMITTED)
    assert await positions(subscribing) == [(0, 3, 3)]


@on_a_node
async def test_a_marker_behind_the_last_granted_record_is_reported(world: World) -> None:
    await create(world, partitions=1)
    channel = world.network.channel(Address(HOST, 9192))
    await transaction(channel, COMMIT, record(b"a"), record(b"b"))
    subscribing = await begin(channel, pb.Credit(records=2))
    await subscribing.records(2)
    assert await positions(subscribing) == [(0, 3, 3)]


@on_a_node
async def test_records_come_with_the_end_and_without_another_message(world: World) -> None:
    await create(world, partitions=1)
    channel = world.network.channel(Address(HOST, 9192))
    await publish(channel, [record(b"a"), record(b"b")])
    subscribing = await begin(channel)
    response = await subscribing.receive()
    assert response is not None
    assert len(response.records.records) == 2
    assert response.records.end_offset == 2
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(20):
            await subscribing.receive()


@on_a_node
async def test_a_position_waits_until_the_records_before_it_are_sent(world: World) -> None:
    await create(world, partitions=1)
    channel = world.network.channel(Address(HOST, 9192))
    await transaction(channel, COMMIT, record(b"1234"), record(b"5678"))
    subscribing = await begin(channel, pb.Credit(records=10, bytes=1))
    response = await subscribing.receive()
    assert response is not None
    assert [each.offset for each in response.records.records] == [0]
    assert response.records.end_offset == 3
    await subscribing.grant(0, 4)
    assert [each.offset for each in await subscribing.records(1)] == [1]
    assert await positions(subscribing) == [(0, 3, 3)]


@pytest.mark.parametrize("protocol", ["CLASSIC", "CONSUMER"])
@on_a_node
async def test_a_member_of_a_group_can_tell_that_it_has_read_everything(
    world: World, protocol: str
) -> None:
    """One partition is empty, one has committed offsets only, and one ends with a marker."""

    await create(world, partitions=3)
    channel = world.network.channel(Address(HOST, 9192))
    await publish(channel, [record(b"1", partition=1)])
    await transaction(channel, COMMIT, record(b"2", partition=2))
    for values in ([1, 2], []):
        member = Member(channel)
        await member.join("g", "t", 100, group_protocol=f"GROUP_PROTOCOL_{protocol}")
        async with asyncio.timeout(60):
            while member.positions != {0: 0, 1: 1, 2: 2}:
                await member.hear()
        assert member.ends == member.positions
        assert sorted(member.values) == values
        await member.commit(member.positions)
        async with asyncio.timeout(60):
            while not member.commits:
                await member.hear()
        assert not member.commits[0].HasField("error")
        await member.end()


@on_a_node
async def test_a_topic_that_is_made_anew_begins_with_its_own_end(world: World) -> None:
    """The end of the deleted topic never comes with the id of the new one."""

    await create(world, partitions=1)
    channel = world.network.channel(Address(HOST, 9192))
    await publish(channel, [record(b"1"), record(b"2")])
    member = Member(channel)
    await member.join("g", "t", 100)
    async with asyncio.timeout(60):
        while member.positions != {0: 2}:
            await member.hear()
    member.positions.clear()
    await remove(world)
    await create(world, partitions=1)
    async with asyncio.timeout(120):
        while not member.positions:
            await member.hear()
    assert (member.positions, member.ends) == ({0: 0}, {0: 0})
    await member.end()
