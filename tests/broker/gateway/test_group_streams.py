"""Members of groups that are thin clients of one simulated node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stele.addresses import Address
from stele.errors import ErrorCode
from stele.wire.v1 import log_pb2 as pb
from stele.world import Channel, RpcCode, RpcError
from tests.support.one_node import HOST, on_a_node
from tests.support.thin_client import Member, Subscribing, publish, record
from tests.support.thin_node import create, remove
from world.world import World

EARLIEST = pb.SubscribeStart.OFFSET_RESET_EARLIEST
PARTITIONS = 4


async def fill(channel: Channel, first: int, count: int) -> None:
    """Numbers, one after the other to each partition."""
    await publish(
        channel,
        [
            record(b"%d" % number, partition=number % PARTITIONS)
            for number in range(first, first + count)
        ],
    )


async def joined(channel: Channel, records: int = 1_000, **more: Any) -> Member:
    member = Member(channel)
    await member.join("g", "t", records, **more)
    return member


async def until(condition: object, *members: Member) -> None:
    """Let members hear from the broker until the condition holds."""
    assert callable(condition)
    async with asyncio.timeout(60):
        while not condition():
            for member in members:
                await member.hear()


@on_a_node
async def test_a_group_goes_on_where_it_has_committed(world: World) -> None:
    await create(world, partitions=PARTITIONS)
    channel = world.network.channel(Address(HOST, 9192))
    await fill(channel, 0, 40)
    first = await joined(channel)
    await until(lambda: len(first.values) == 40, first)
    assert first.owned == {0, 1, 2, 3}
    await first.commit({0: 10, 1: 10, 2: 7, 3: 10})
    await until(lambda: len(first.commits) == 1, first)
    assert not first.commits[0].HasField("error")
    await first.end()
    second = await joined(channel)
    await until(lambda: len(second.values) == 3, second)
    assert sorted(second.values) == [30, 34, 38]


@on_a_node
async def test_offsets_of_a_topic_that_was_made_anew_are_not_committed_for_the_new_one(
    world: World,
) -> None:
    await create(world, partitions=PARTITIONS)
    channel = world.network.channel(Address(HOST, 9192))
    await fill(channel, 0, 40)
    member = await joined(channel)
    await until(lambda: len(member.values) == 40, member)
    await remove(world)
    await create(world, partitions=PARTITIONS)
    await fill(channel, 100, 40)
    await until(lambda: len(member.values) == 80, member)
    assert sorted(member.values[40:]) == list(range(100, 140)), "from the first record on"
    old, new = member.topic_ids
    await member.commit({0: 10}, topic_id=old)
    await until(lambda: len(member.commits) == 1, member)
    assert member.commits[0].error.code == ErrorCode.UNKNOWN_TOPIC_ID
    await member.commit({0: 4}, topic_id=new)
    await member.commit({1: 5})
    await until(lambda: len(member.commits) == 3, member)
    assert not any(each.HasField("error") for each in member.commits[1:])
    await member.end()


@pytest.mark.parametrize("mixed", [False, True])
@on_a_node
async def test_members_of_the_consumer_protocol(world: World, mixed: bool) -> None:
    """They share with one another, and with a member of the classic protocol."""

    await create(world, partitions=PARTITIONS)
    channel = world.network.channel(Address(HOST, 9192))
    consumer = {"group_protocol": pb.SubscribeStart.GROUP_PROTOCOL_CONSUMER}
    first = await joined(channel, **({} if mixed else consumer))
    await until(lambda: first.owned == {0, 1, 2, 3}, first)
    second = await joined(channel, **consumer)
    await until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
    assert first.owned | second.owned == {0, 1, 2, 3}
    await fill(channel, 0, 8)
    await until(lambda: len(first.values) == len(second.values) == 4, first, second)
    await second.commit(dict.fromkeys(second.owned, 2))
    await until(lambda: len(second.commits) == 1, second)
    assert not second.commits[0].HasField("error")
    await second.end()
    await until(lambda: first.owned == {0, 1, 2, 3}, first)


@on_a_node
async def test_members_share_partitions_also_without_credit(world: World) -> None:
    await create(world, partitions=PARTITIONS)
    channel = world.network.channel(Address(HOST, 9192))
    first = await joined(channel, 0)
    await until(lambda: first.owned == {0, 1, 2, 3}, first)
    second = await joined(channel, 0)
    await until(lambda: len(first.owned) == len(second.owned) == 2, first, second)
    assert first.owned | second.owned == {0, 1, 2, 3}
    await asyncio.sleep(60)  # six times the session timeout
    await fill(channel, 0, 8)
    for member in (first, second):
        await member.grant(1_000)
    await until(lambda: len(first.values) == len(second.values) == 4, first, second)
    assert sorted(first.values + second.values) == list(range(8))
    await first.end()
    await until(lambda: second.owned == {0, 1, 2, 3}, second)
    assert not first.lost
    assert not second.lost


@on_a_node
async def test_a_static_member_is_replaced_by_the_next_of_its_name(world: World) -> None:
    await create(world, partitions=PARTITIONS)
    channel = world.network.channel(Address(HOST, 9192))
    first = await joined(channel, group_instance_id="one")
    await until(lambda: first.owned == {0, 1, 2, 3}, first)
    second = await joined(channel, group_instance_id="one")
    await until(lambda: second.owned == {0, 1, 2, 3}, second)
    with pytest.raises(RpcError) as caught:
        await until(lambda: False, first)
    assert caught.value.code is RpcCode.FAILED_PRECONDITION
    assert caught.value.info is not None
    assert caught.value.info.reason == "FENCED_INSTANCE_ID"


@on_a_node
async def test_a_commit_that_is_refused_says_why_and_the_stream_goes_on(world: World) -> None:
    await create(world, partitions=PARTITIONS)
    channel = world.network.channel(Address(HOST, 9192))
    member = await joined(channel)
    await member.commit({0: 1})  # it has not joined yet
    await until(lambda: bool(member.owned), member)
    await member.commit({0: 1}, topic="none")
    await member.commit({0: 1})
    await until(lambda: len(member.commits) == 3, member)
    assert [each.error.code for each in member.commits] == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        0,
    ]
    await fill(channel, 0, 4)
    await until(lambda: len(member.values) == 4, member)


@pytest.mark.parametrize(
    "start",
    [
        pb.SubscribeStart(group="g"),
        pb.SubscribeStart(topics=["t"]),
        pb.SubscribeStart(group_instance_id="one", partitions=[pb.PartitionStart(topic="t")]),
        pb.SubscribeStart(group="g", topics=["t"], partitions=[pb.PartitionStart(topic="t")]),
    ],
)
@on_a_node
async def test_a_start_that_makes_no_sense(world: World, start: pb.SubscribeStart) -> None:
    await create(world)
    subscribing = Subscribing(world.network.channel(Address(HOST, 9192)))
    await subscribing.send(pb.SubscribeRequest(start=start))
    with pytest.raises(RpcError) as caught:
        await subscribing.receive()
    assert caught.value.code is RpcCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "commit",
    [
        pb.Commit(),
        pb.Commit(offsets=[pb.Commit.Offset(topic="t", offset=-1)]),
        pb.Commit(offsets=[pb.Commit.Offset(topic="t")] * 1_001),
    ],
)
@on_a_node
async def test_a_commit_that_makes_no_sense(world: World, commit: pb.Commit) -> None:
    await create(world)
    channel = world.network.channel(Address(HOST, 9192))
    member = await joined(channel)
    await member.send(pb.SubscribeRequest(commit=commit))
    without_group = Subscribing(channel)
    await without_group.start(pb.PartitionStart(topic="t"))
    await without_group.send(
        pb.SubscribeRequest(commit=pb.Commit(offsets=[pb.Commit.Offset(topic="t")]))
    )
    for stream in (member, without_group):
        with pytest.raises(RpcError) as caught:
            await stream.records(1)
        assert caught.value.code is RpcCode.INVALID_ARGUMENT
