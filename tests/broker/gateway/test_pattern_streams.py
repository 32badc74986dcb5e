"""Members of groups that subscribe to topics by a regular expression, on one simulated node."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from runtime.authorization.authorizer import Operation, topic_resource
from stele.addresses import Address
from stele.admin.acls import Acl
from stele.aio import Admin
from stele.errors import ErrorCode
from stele.wire.v1 import log_pb2 as pb
from stele.world import Channel, RpcCode, RpcError
from tests.support.authorizer import Need, WithAcls
from tests.support.one_node import HOST, on_a_node
from tests.support.thin_client import Subscribing, publish, record
from tests.support.thin_node import BOOTSTRAP, client_world, create, remove
from world.world import World

PROTOCOLS = [
    pb.SubscribeStart.GROUP_PROTOCOL_CLASSIC,
    pb.SubscribeStart.GROUP_PROTOCOL_CONSUMER,
]


class PatternMember(Subscribing):
    """What a member owns, and the values that it got."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self.owned: set[tuple[str, int]] = set()
        self.values: list[bytes] = []
        self.commits: list[pb.Committed] = []

    async def join(
        self, pattern: str, protocol: pb.SubscribeStart.GroupProtocol = PROTOCOLS[0]
    ) -> None:
        start = pb.SubscribeStart(
            group="g",
            topic_pattern=pattern,
            group_protocol=protocol,
            offset_reset=pb.SubscribeStart.OFFSET_RESET_EARLIEST,
            credit=pb.Credit(records=1_000),
        )
        await self.send(pb.SubscribeRequest(start=start))

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(60):
            while not condition():
                response = await self.receive()
                assert response is not None
                for taken in response.revoked.partitions:
                    self.owned.remove((taken.topic, taken.partition))
                for given in response.assigned.partitions:
                    self.owned.add((given.topic, given.partition))
                self.values += [each.value for each in response.records.records]
                if response.HasField("committed"):
                    self.commits.append(response.committed)


async def refused(channel: Channel, pattern: str) -> RpcError:
    member = PatternMember(channel)
    await member.join(pattern)
    with pytest.raises(RpcError) as caught:
        await member.until(lambda: False)
    return caught.value


@pytest.mark.parametrize("protocol", PROTOCOLS)
@on_a_node
async def test_matching_topics_are_read_also_later_ones(
    world: World, protocol: pb.SubscribeStart.GroupProtocol
) -> None:
    await create(world, "orders-a", 2)
    await create(world, "other", 1)
    await create(world, "orders", 1)
    channel = world.network.channel(Address(HOST, 9192))
    member = PatternMember(channel)
    await member.join("orders-.*|__.*", protocol)
    await member.until(lambda: member.owned == {("orders-a", 0), ("orders-a", 1)})
    await create(world, "orders-b", 1)
    await publish(channel, [record(b"new")], topic="orders-b")
    await member.until(lambda: ("orders-b", 0) in member.owned and member.values == [b"new"])
    await remove(world, "orders-a")
    await member.until(lambda: member.owned == {("orders-b", 0)})


@on_a_node
async def test_a_stream_waits_for_the_first_topic_that_matches(world: World) -> None:
    channel = world.network.channel(Address(HOST, 9192))
    await create(world, "t", 1)
    member = PatternMember(channel)
    await member.join("later")
    commit = pb.Commit(offsets=[pb.Commit.Offset(topic="t", offset=1)])
    await member.send(pb.SubscribeRequest(commit=commit))
    await member.until(lambda: bool(member.commits))
    assert member.commits[0].error.code == ErrorCode.UNKNOWN_MEMBER_ID
    await create(world, "later", 1)
    await publish(channel, [record(b"v")], topic="later")
    await member.until(lambda: member.values == [b"v"])


@pytest.fixture
def authorizer() -> WithAcls:
    return WithAcls()


@on_a_node
async def test_topics_that_may_not_be_read_do_not_match(world: World, authorizer: WithAcls) -> None:
    authorizer.denied.add((Operation.READ, topic_resource("orders-b")))

    for name in ("orders-a", "orders-b"):
        await create(world, name, 1)
    member = PatternMember(world.network.channel(Address(HOST, 9192)))
    await member.join("orders-.*")
    await member.until(lambda: bool(member.owned))
    assert member.owned == {("orders-a", 0)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@on_a_node
async def test_a_topic_is_read_from_when_it_may_be_until_it_may_not(
    world: World, authorizer: WithAcls, protocol: pb.SubscribeStart.GroupProtocol
) -> None:
    read_b = Operation.READ, topic_resource("orders-b")
    authorizer.denied.add(read_b)
    for name in ("orders-a", "orders-b"):
        await create(world, name, 1)
    member = PatternMember(world.network.channel(Address(HOST, 9192)))
    await member.join("orders-.*", protocol)
    await member.until(lambda: member.owned == {("orders-a", 0)})
    async with Admin(BOOTSTRAP, world=client_world(world)) as admin:
        for user, denied, wanted in (
            ("User:a", set[Need](), {("orders-a", 0), ("orders-b", 0)}),
            ("User:b", {read_b}, {("orders-a", 0)}),
        ):
            authorizer.denied = denied
            await admin.create_acls([Acl(user, "READ", "TOPIC", "orders-b")])
            await member.until(lambda wanted=wanted: member.owned == wanted)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "a group is not closed"),
        ("(a)\\1", "\\1 is not supported"),
        ("(?=a)", "look-around"),
        ("a" * 4_001, "more than 4000 characters"),
        ("(a?){200}" * 3, "states"),
    ],
)
@on_a_node
async def test_a_bad_expression_ends_the_stream_and_says_why(
    world: World, pattern: str, why: str
) -> None:
    await create(world)
    error = await refused(world.network.channel(Address(HOST, 9192)), pattern)
    assert error.code is RpcCode.INVALID_ARGUMENT
    assert why in error.detail
    assert error.info is not None
    assert error.info.reason == "INVALID_REGULAR_EXPRESSION"
    assert error.info.metadata["topic_pattern"] == pattern[:100]
    assert error.info.retry_after_ms is None
