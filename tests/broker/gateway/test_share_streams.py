"""Members of share groups that are thin clients of one simulated node."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from stele.addresses import Address
from stele.admin.descriptions import ConfigResource
from stele.aio import Admin
from stele.wire.v1 import log_pb2 as pb
from stele.world import Channel, RpcCode, RpcError
from tests.support.one_node import HOST, on_a_node
from tests.support.thin_client import Subscribing, Worker, publish, record
from tests.support.thin_node import BOOTSTRAP, client_world, create
from world.world import World

ACCEPT, RELEASE = pb.Acknowledge.TYPE_ACCEPT, pb.Acknowledge.TYPE_RELEASE
REJECT, RENEW = pb.Acknowledge.TYPE_REJECT, pb.Acknowledge.TYPE_RENEW
INVALID = "INVALID_RECORD_STATE"
LOCK_S = 15.0


async def queue(world: World, count: int, partitions: int = 1, **configs: str) -> Channel:
    """A topic with so many records, and a share group that begins with the first."""
    await create(world, partitions=partitions)
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    given = {"share.auto.offset.reset": "earliest", **settings}
    async with Admin(BOOTSTRAP, world=client_world(world)) as admin:
        await admin.alter_configs({ConfigResource.group("g"): given})
    channel = world.network.channel(Address(HOST, 9192))
    await publish(
        channel, [record(b"%d" % each, partition=each % partitions) for each in range(count)]
    )
    return channel


async def worker(channel: Channel, records: int = 100, **more: Any) -> Worker:
    member = Worker(channel)
    await member.join("g", "t", records, **more)
    return member


@on_a_node
async def test_accepted_records_are_done_and_others_come_again(world: World) -> None:
    channel = await queue(world, 6, partitions=2)
    first = await worker(channel)
    await first.until(lambda: len(first.got) == 6)
    assert sorted(first.got) == [(each % 2, each // 2, 1) for each in sorted(range(6), key=_place)]
    await first.acknowledge(ACCEPT, (0, 0), (1, 1))
    await first.acknowledge(REJECT, (1, 0))
    await first.acknowledge(RELEASE, (0, 2))
    await first.until(lambda: len(first.answers) == 4 and len(first.got) == 7)
    assert sorted(first.answers) == [(0, 0, "", False), (0, 2, "", False)] + [
        (1, each, "", False) for each in (0, 1)
    ]
    assert first.got[-1] == (0, 2, 2), "the released one, for the second time"
    await first.end()
    second = await worker(channel)
    await second.until(lambda: len(second.got) == 3)
    assert sorted(each[:2] for each in second.got) == [(0, 1), (0, 2), (1, 2)]


def _place(number: int) -> tuple[int, int]:
    return number % 2, number // 2


@on_a_node
async def test_no_more_records_come_than_were_granted(world: World) -> None:
    channel = await queue(world, 10)
    first = await worker(channel, 2)
    await first.until(lambda: len(first.got) == 2)
    second = await worker(channel, 8)
    await second.until(lambda: len(second.got) == 8)
    assert len(first.got) == 2, "records that were not granted are not kept from others"
    assert sorted(first.values + second.values) == [b"%d" % each for each in range(10)]
    await first.acknowledge(ACCEPT, (0, 0), (0, 1))
    await second.acknowledge(RELEASE, (0, 5))
    await first.grant(1)
    await first.until(lambda: len(first.got) == 3)
    assert first.got[-1] == (0, 5, 2), "the other one has no credit"


@on_a_node
async def test_bytes_of_credit_are_kept_to(world: World) -> None:
    channel = await queue(world, 5)
    member = Worker(channel)
    credit = pb.Credit(records=100, bytes=2)
    start = pb.SubscribeStart(share_group="g", topics=["t"], credit=credit)
    member.topic = "t"
    await member.send(pb.SubscribeRequest(start=start))
    await member.until(lambda: len(member.got) == 2)
    await member.acknowledge(ACCEPT, (0, 0))
    await member.until(lambda: len(member.answers) == 1)
    assert len(member.got) == 2
    await member.grant(0, 3)
    await member.until(lambda: len(member.got) == 5)
    assert [each[2] for each in member.got] == [1] * 5


@on_a_node
async def test_a_lock_ends_unless_it_is_renewed(world: World) -> None:
    channel = await queue(world, 2, share_record_lock_duration_ms="15000")
    member = await worker(channel)
    await member.until(lambda: len(member.got) == 2)
    for _ in range(3):
        await asyncio.sleep(LOCK_S * 0.6)
        await member.acknowledge(RENEW, (0, 0))
        count = len(member.answers)
        await member.until(lambda: len(member.answers) > count)  # noqa: B023
        assert member.answers[-1] == (0, 0, "", True)
    assert member.got[2:]
    assert {each[:2] for each in member.got[2:]} == {(0, 1)}
    await member.acknowledge(ACCEPT, (0, 0))
    await member.until(lambda: (0, 0, "", False) in member.answers)


@on_a_node
async def test_the_broker_renews_a_lock_for_as_long_as_the_client_wants(world: World) -> None:
    channel = await queue(world, 1, share_record_lock_duration_ms="15000")
    member = await worker(channel, lock_renewal_ms=60_000)
    await member.until(lambda: len(member.got) == 1)
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    await member.until(lambda: len(member.got) == 2)
    assert 60 <= loop.time() - began_s <= 60 + 2 * LOCK_S
    assert member.got[1] == (0, 0, 2)


@on_a_node
async def test_acknowledgements_that_do_not_count_say_why(world: World) -> None:
    channel = await queue(world, 2)
    member = await worker(channel)
    await member.until(lambda: len(member.got) == 2)
    await member.acknowledge(ACCEPT, (0, 0), (0, 0), (0, 77), (5, 0))
    await member.acknowledge(ACCEPT, (0, 1), topic="other")
    await member.acknowledge(RENEW, (0, 0))
    await member.until(lambda: len(member.answers) == 6)
    assert sorted(member.answers) == [
        (0, 0, "", False),
        (0, 0, INVALID, False),
        (0, 0, INVALID, True),
        (0, 1, INVALID, False),
        (0, 77, INVALID, False),
        (5, 0, INVALID, False),
    ]


@on_a_node
async def test_a_stream_that_is_cancelled_gives_its_records_back(world: World) -> None:
    channel = await queue(world, 3)
    first = await worker(channel)
    await first.until(lambda: len(first.got) == 3)
    await first.end()
    second = await worker(channel)
    await second.until(lambda: len(second.got) == 3)


@pytest.mark.parametrize(
    ("start", "code", "said"),
    [
        ({"topics": []}, RpcCode.INVALID_ARGUMENT, "1 to 1000 topics"),
        ({"topics": ["none"]}, RpcCode.NOT_FOUND, "none|not"),
        ({"group": "h"}, RpcCode.INVALID_ARGUMENT, "group: not for a share group"),
        (
            {"offset_reset": pb.SubscribeStart.OFFSET_RESET_EARLIEST},
            RpcCode.INVALID_ARGUMENT,
            "offset_reset: not for a share group",
        ),
        ({"topic_pattern": "t"}, RpcCode.INVALID_ARGUMENT, "topic_pattern: not for"),
        ({"share_group": ""}, RpcCode.INVALID_ARGUMENT, "belong to a group"),
        (
            {"share_group": "", "topics": [], "lock_renewal_ms": 1},
            RpcCode.INVALID_ARGUMENT,
            "lock_renewal_ms belongs to a share group",
        ),
    ],
)
@on_a_node
async def test_a_start_that_makes_no_sense_is_refused(
    world: World, start: dict[str, Any], code: RpcCode, said: str
) -> None:
    channel = await queue(world, 0)
    stream = Subscribing(channel)
    given = pb.SubscribeStart(**{"share_group": "g", "topics": ["t"], **start})
    await stream.send(pb.SubscribeRequest(start=given))
    with pytest.raises(RpcError, match=said) as raised:
        await stream.receive()
    assert raised.value.code is code


@pytest.mark.parametrize(
    "request_",
    [
        pb.SubscribeRequest(commit=pb.Commit(offsets=[pb.Commit.Offset(topic="t")])),
        pb.SubscribeRequest(acknowledge=pb.Acknowledge()),
        pb.SubscribeRequest(
            acknowledge=pb.Acknowledge(
                batches=[pb.Acknowledge.Batch(offsets=[1], type=cast(Any, 9))]
            )
        ),
        pb.SubscribeRequest(
            acknowledge=pb.Acknowledge(batches=[pb.Acknowledge.Batch(offsets=range(5001))])
        ),
        pb.SubscribeRequest(start=pb.SubscribeStart(share_group="g", topics=["t"])),
    ],
)
@on_a_node
async def test_a_message_that_makes_no_sense_ends_the_stream(
    world: World, request_: pb.SubscribeRequest
) -> None:
    channel = await queue(world, 0)
    member = await worker(channel)
    await member.send(request_)
    with pytest.raises(RpcError) as raised:
        await member.hear()
    assert raised.value.code is RpcCode.INVALID_ARGUMENT


@on_a_node
async def test_only_a_member_of_a_share_group_acknowledges(world: World) -> None:
    channel = await queue(world, 1)
    stream = Subscribing(channel)
    await stream.start(pb.PartitionStart(topic="t"))
    batch = pb.Acknowledge.Batch(topic="t", offsets=[0])
    await stream.send(pb.SubscribeRequest(acknowledge=pb.Acknowledge(batches=[batch])))
    with pytest.raises(RpcError, match="only a member of a share group"):
        await stream.receive()
