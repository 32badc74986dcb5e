"""What a thin client may do is decided for the client itself, as long as its stream lasts."""

from __future__ import annotations

import asyncio

import pytest

from runtime.authorization.authorizer import CLUSTER, AllowAll, Operation, Resource, ResourceType
from runtime.authorization.caller import Caller, Plane
from stele.addresses import Address
from stele.admin.descriptions import ConfigResource
from stele.aio import Admin
from stele.errors import ErrorCode
from stele.wire.v1 import log_pb2 as pb
from stele.world import RpcCode, RpcError
from tests.support.one_node import HOST, on_a_node
from tests.support.thin_client import (
    Member,
    Publishing,
    Subscribing,
    Worker,
    publish,
    record,
)
from tests.support.thin_node import BOOTSTRAP, client_world, create
from world.world import World

EARLIEST = pb.PartitionStart.EDGE_EARLIEST
OPEN, CLOSED = (Resource(ResourceType.TOPIC, name) for name in ("open", "closed"))


class Forbidding(AllowAll):
    """Forbids some operations to clients from another machine. The node itself may do everything,
    for it asks leaders."""

    def __init__(self) -> None:
        self.forbidden: set[tuple[Operation, Resource]] = set()

    def allows(self, caller: Caller, operation: Operation, resource: Resource) -> bool:
        if caller.plane is Plane.GRPC and caller.address != HOST:
            return (operation, resource) not in self.forbidden
        return True

    def allows_any(self, caller: Caller, operation: Operation, resource_type: ResourceType) -> bool:
        return self.allows(caller, operation, Resource(resource_type, "*"))


@pytest.fixture
def authorizer() -> Forbidding:
    return Forbidding()


async def refusal(subscribing: Subscribing) -> RpcError:
    with pytest.raises(RpcError) as caught:
        await subscribing.records(1)
    assert caught.value.info is not None
    return caught.value


@on_a_node
async def test_topics_that_may_not_be_written(world: World, authorizer: Forbidding) -> None:
    for name in ("open", "closed"):
        await create(world, name, 1)
    authorizer.forbidden = {(Operation.WRITE, CLOSED)}
    channel = world.network.channel(Address(HOST, 9192))
    given = [record(topic="open"), record(topic="closed"), record(topic="open")]
    results = await publish(channel, given)
    assert [result.error.code for result in results] == [
        0,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        0,
    ]
    publishing = Publishing(channel)
    await publishing.send(record(), topic="open")
    await publishing.receive(1)
    authorizer.forbidden.add((Operation.WRITE, OPEN))
    await publishing.send(record(), topic="open")
    (_, late) = await publishing.receive(2)
    assert late.error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


@on_a_node
async def test_publishers_need_the_permission_to_be_idempotent(
    world: World, authorizer: Forbidding
) -> None:
    authorizer.forbidden = {
        (Operation.IDEMPOTENT_WRITE, CLUSTER),
        (Operation.WRITE, Resource(ResourceType.TOPIC, "*")),
    }
    channel = world.network.channel(Address(HOST, 9192))
    with pytest.raises(RpcError) as caught:
        await channel.call("/stele.v1.Log/CreatePublisher", b"", timeout_s=5)
    assert caught.value.code is RpcCode.PERMISSION_DENIED


@on_a_node
async def test_topics_that_may_not_be_read(world: World, authorizer: Forbidding) -> None:
    await create(world, "open", 1)
    channel = world.network.channel(Address(HOST, 9192))
    await publish(channel, [record()] * 10, "open")
    subscribing = Subscribing(channel)
    await subscribing.start(
        pb.PartitionStart(topic="open", edge=EARLIEST), credit=pb.Credit(records=1)
    )
    await subscribing.records(1)
    authorizer.forbidden = {(Operation.READ, OPEN)}
    await subscribing.grant(1)
    late = await refusal(subscribing)
    assert late.code is RpcCode.PERMISSION_DENIED
    another = Subscribing(channel)
    start = pb.SubscribeStart(partitions=[pb.PartitionStart(topic="open")])
    await another.send(pb.SubscribeRequest(start=start))
    refused = await refusal(another)
    assert refused.code is RpcCode.PERMISSION_DENIED
    assert refused.info is not None
    assert refused.info.metadata == {"topic": "open"}


@pytest.mark.parametrize(
    ("resource", "reason"),
    [
        (OPEN, "TOPIC_AUTHORIZATION_FAILED"),
        (Resource(ResourceType.GROUP, "g"), "GROUP_AUTHORIZATION_FAILED"),
    ],
)
@on_a_node
async def test_groups_that_may_not_be_joined(
    world: World, authorizer: Forbidding, resource: Resource, reason: str
) -> None:
    await create(world, "open", 1)
    authorizer.forbidden = {(Operation.READ, resource)}
    subscribing = Subscribing(world.network.channel(Address(HOST, 9192)))
    start = pb.SubscribeStart(group="g", topics=["open"])
    await subscribing.send(pb.SubscribeRequest(start=start))
    refused = await refusal(subscribing)
    assert refused.code is RpcCode.PERMISSION_DENIED
    assert refused.info is not None
    assert refused.info.reason == reason


GROUP = Resource(ResourceType.GROUP, "g")


@pytest.mark.parametrize(
    ("resource", "reason"),
    [(OPEN, "TOPIC_AUTHORIZATION_FAILED"), (GROUP, "GROUP_AUTHORIZATION_FAILED")],
)
@on_a_node
async def test_share_groups_that_may_not_be_joined_or_not_any_more(
    world: World, authorizer: Forbidding, resource: Resource, reason: str
) -> None:
    await create(world, "open", 1)
    async with Admin(BOOTSTRAP, world=client_world(world)) as admin:
        earliest = {"share.auto.offset.reset": "earliest"}
        await admin.alter_configs({ConfigResource.group("g"): earliest})
    channel = world.network.channel(Address(HOST, 9192))
    await publish(channel, [record()] * 2, "open")
    member = Worker(channel)
    await member.join("g", "open", 1)
    await member.until(lambda: len(member.got) == 1)
    authorizer.forbidden = {(Operation.READ, resource)}
    await member.grant(1)
    another = Worker(channel)
    await another.join("g", "open", 1)
    for each in (member, another):
        refused = await refusal(each)
        assert refused.code is RpcCode.PERMISSION_DENIED
        assert refused.info is not None
        assert refused.info.reason == reason


@on_a_node
async def test_a_member_that_may_not_read_the_group_any_more_commits_nothing(
    world: World, authorizer: Forbidding
) -> None:
    member = await with_three_records(world)
    await member.commit({0: 1})
    while not member.commits:
        await member.hear()
    authorizer.forbidden = {(Operation.READ, GROUP)}
    await member.commit({0: 2})
    while len(member.commits) < 2:
        await member.hear(0.01)
    codes = [each.error.code for each in member.commits]
    assert codes == [0, ErrorCode.GROUP_AUTHORIZATION_FAILED]
    assert (await end_of(member)).code is RpcCode.PERMISSION_DENIED


@pytest.mark.parametrize("credit", [0, 7, 1_000])
@on_a_node
async def test_a_member_that_may_not_read_the_group_any_more_leaves_it(
    world: World, authorizer: Forbidding, credit: int
) -> None:
    """Without credit, with records to come, and when there are no more."""
    member = await with_three_records(world)
    if credit == 1_000:
        await member.grant(credit)
        while len(member.values) < 10:
            await member.hear()
    authorizer.forbidden = {(Operation.READ, GROUP)}
    if credit == 7:
        await member.grant(credit)
    read = len(member.values)
    async with asyncio.timeout(6):
        refused = await end_of(member)
    assert refused.code is RpcCode.PERMISSION_DENIED
    assert refused.info is not None
    assert refused.info.reason == "GROUP_AUTHORIZATION_FAILED"
    assert refused.info.metadata == {"group": "g"}
    assert len(member.values) == read
    authorizer.forbidden = set()
    another = Member(world.network.channel(Address(HOST, 9192)))
    await another.join("g", "open", 3)
    async with asyncio.timeout(5):  # less than the session of a member that does not leave
        while len(another.values) < 3:
            await another.hear()


async def with_three_records(world: World) -> Member:
    """A member of the group that has read three records of ten."""
    await create(world, "open", 1)
    channel = world.network.channel(Address(HOST, 9192))
    await publish(channel, [record(b"1")] * 10, "open")
    member = Member(channel)
    await member.join("g", "open", 3)
    while len(member.values) < 3:
        await member.hear()
    return member


async def end_of(member: Member) -> RpcError:
    while True:
        try:
            await member.hear()
        except RpcError as error:
            return error
