"""stele.v1.Groups: what is translated, refused and found elsewhere."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from google.protobuf.message import Message

from broker.coordinator.group import types
from broker.coordinator.group.consumer.types import ConsumerHeartbeatRequest
from broker.grpc.groups import GroupsService
from broker.service import groups
from metadata.brokers import Plane
from metadata.features import GROUP_VERSION
from metadata.internal_topics import GROUP_TOPIC
from runtime.administration.parts import NAMED_MAX
from runtime.authorization.authorizer import Operation, group_resource, topic_resource
from runtime.authorization.caller import grpc_caller
from stele.errors import ErrorCode
from stele.wire.v1 import groups_pb2 as pb
from stele.world import RpcCode, RpcError
from tests.support.broker_apis import Edges, topic_id
from tests.support.broker_edges import PEER
from tests.support.timing import run_virtual, until

GROUP = "readers"


async def edges_with_groups() -> Edges:
    """This broker coordinates every group."""
    edges = Edges(group_initial_rebalance_delay_ms="0")
    edges.finalize(GROUP_VERSION, 1)
    edges.add_topic("orders", [[1]] * 3)
    edges.add_topic(GROUP_TOPIC, [[1]])
    await until(lambda: len(edges.groups.active) == 1)
    return edges


async def ask(edges: Edges, method: str, request: Message, answer: Any) -> Any:
    service = GroupsService(edges.context, "EXTERNAL").service()
    payload = await service.unary[f"/stele.v1.Groups/{method}"](request.SerializeToString(), PEER)
    return answer.FromString(payload)


CALLER = grpc_caller("EXTERNAL", PEER)


async def a_member(edges: Edges, instance_id: str | None = None) -> tuple[str, int]:
    """The only member of a stable group: its id and generation."""
    member_id = ""
    for _ in range(2):  # the first time it may get its id only
        request = types.JoinRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type="consumer",
            protocols=(types.MemberProtocol("range", b"what I read"),),
            client_id="me",
            client_host=f"/{PEER.address}",
        )
        joined = await groups.as_member(edges.context, CALLER, request)
        member_id = joined.member_id
        if joined.error is ErrorCode.NONE:
            break
    sync = types.SyncRequest(
        group_id=GROUP,
        generation=joined.generation,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type="consumer",
        protocol=joined.protocol,
        assignments={member_id: b"all of it"},
    )
    synced = await groups.as_member(edges.context, CALLER, sync)
    assert (synced.error, synced.assignment) == (ErrorCode.NONE, b"all of it")
    return member_id, joined.generation


def offset(name: str, number: int, at: int, **more: Any) -> pb.OffsetCommitRequest.Partition:
    return pb.OffsetCommitRequest.Partition(topic=name, partition=number, offset=at, **more)


async def commit(edges: Edges, *offsets: Any, **more: Any) -> list[int]:
    request = pb.OffsetCommitRequest(group=GROUP, partitions=offsets, **more)
    answer = await ask(edges, "OffsetCommit", request, pb.OffsetCommitResponse)
    assert (answer.error, answer.message) == (ErrorCode.NONE, "")
    return [each.error for each in answer.partitions]


async def committed(edges: Edges, **topics: list[int]) -> list[tuple[str, int, int, int, str]]:
    asked = [pb.OffsetFetchRequest.Topic(topic=t, partitions=p) for t, p in topics.items()]
    request = pb.OffsetFetchRequest(group=GROUP, topics=asked)
    answer = await ask(edges, "OffsetFetch", request, pb.OffsetFetchResponse)
    assert answer.error == ErrorCode.NONE
    return [
        (each.topic, each.partition, each.offset, each.leader_epoch, each.metadata)
        for each in answer.partitions
    ]


def test_the_coordinator_is_answered_with_its_grpc_address() -> None:
    async def main() -> None:
        edges = await edges_with_groups()
        edges.authorizer.denied.add((Operation.DESCRIBE, group_resource("theirs")))
        request = pb.FindCoordinatorRequest(groups=[GROUP, "theirs"])
        answer = await ask(edges, "FindCoordinator", request, pb.FindCoordinatorResponse)
        mine, theirs = answer.coordinators
        registration = edges.publisher.image.broker(1)
        assert registration is not None
        endpoint = registration.endpoint("EXTERNAL", Plane.GRPC)
        assert endpoint is not None
        assert (mine.group, mine.error, mine.broker_id) == (GROUP, ErrorCode.NONE, 1)
        assert (mine.grpc_host, mine.grpc_port) == (endpoint.host, endpoint.port)
        assert theirs.error == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert (theirs.broker_id, theirs.grpc_port) == (-1, -1)
        assert theirs.message

    run_virtual(main())


def test_offsets_are_committed_and_told() -> None:
    async def main() -> None:
        edges = await edges_with_groups()
        member_id, generation = await a_member(edges)
        told = await commit(
            edges,
            offset("orders", 0, 7, leader_epoch=3, metadata="so far"),
            pb.OffsetCommitRequest.Partition(topic_id=topic_id("orders"), partition=1, offset=8),
            offset("orders", 3, 1),
            offset("gone", 0, 1),
            pb.OffsetCommitRequest.Partition(topic_id=b"?" * 16, offset=1),
            member_id=member_id,
            generation=generation,
        )
        assert told == [
            0,
            0,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.UNKNOWN_TOPIC_ID,
        ]
        everything = [("orders", 0, 7, 3, "so far"), ("orders", 1, 8, -1, "")]
        assert await committed(edges) == everything
        assert await committed(edges, orders=[1, 2]) == [everything[1], ("orders", 2, -1, -1, "")]

    run_virtual(main())


def test_who_commits_is_asked_for() -> None:
    async def main() -> None:
        edges = await edges_with_groups()
        assert await commit(edges, offset("orders", 0, 1)) == [ErrorCode.NONE]
        member_id, generation = await a_member(edges, "first")
        for more, error in (
            ({}, ErrorCode.UNKNOWN_MEMBER_ID),
            ({"member_id": member_id, "generation": 99}, ErrorCode.ILLEGAL_GENERATION),
            (
                {"member_id": "x", "generation": generation, "group_instance_id": "first"},
                ErrorCode.FENCED_INSTANCE_ID,
            ),
            ({"member_id": member_id, "generation": generation}, ErrorCode.NONE),
        ):
            assert await commit(edges, offset("orders", 0, 2), **more) == [error], more

    run_virtual(main())


def test_a_broker_lists_no_groups_before_it_knows_which_it_coordinates() -> None:
    async def main() -> None:
        edges = Edges()
        for is_known in (False, True):
            edges.context = replace(edges.context, caught_up=partial(bool, is_known))
            listed = await ask(edges, "ListGroups", pb.ListGroupsRequest(), pb.ListGroupsResponse)
            error = ErrorCode.NONE if is_known else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert (listed.error, list(listed.groups)) == (error, [])

    run_virtual(main())


def test_groups_are_listed_described_and_deleted() -> None:
    async def main() -> None:
        edges = await edges_with_groups()
        member_id, generation = await a_member(edges, "first")
        await commit(edges, offset("orders", 0, 1), member_id=member_id, generation=generation)
        listed = await ask(edges, "ListGroups", pb.ListGroupsRequest(), pb.ListGroupsResponse)
        assert [
            (each.group, each.protocol_type, each.state, each.type) for each in listed.groups
        ] == [(GROUP, "consumer", "Stable", "classic")]
        empty = pb.ListGroupsRequest(states=["Empty"])
        assert not (await ask(edges, "ListGroups", empty, pb.ListGroupsResponse)).groups

        edges.authorizer.denied.add((Operation.DESCRIBE, group_resource("theirs")))
        asked = pb.DescribeGroupsRequest(groups=[GROUP, "nobody's", "theirs"])
        described = await ask(edges, "DescribeGroups", asked, pb.DescribeGroupsResponse)
        mine, nobodys, theirs = described.groups
        (member,) = mine.members
        assert (mine.state, mine.protocol_type, mine.protocol) == ("Stable", "consumer", "range")
        assert (mine.type, mine.group_epoch, nobodys.type) == ("classic", 0, "")
        assert (member.member_id, member.group_instance_id) == (member_id, "first")
        assert (member.client_id, member.host) == ("me", f"/{PEER.address}")
        assert (member.metadata, member.assignment) == (b"what I read", b"all of it")
        assert (nobodys.group, nobodys.state, nobodys.error) == ("nobody's", "Dead", 0)
        assert theirs.error == ErrorCode.GROUP_AUTHORIZATION_FAILED

        forget = pb.OffsetDeleteRequest(
            group=GROUP, topics=[{"topic": "orders", "partitions": [0]}, {"topic": "gone"}]
        )
        request = pb.DeleteGroupsRequest(groups=[GROUP, "nobody's"])
        deleted = await ask(edges, "DeleteGroups", request, pb.DeleteGroupsResponse)
        assert [each.error for each in deleted.groups] == [
            ErrorCode.NON_EMPTY_GROUP,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ]
        assert deleted.groups[0].message
        leave = types.LeaveRequest(GROUP, (types.LeavingMember("", "first"),))
        assert (await groups.as_member(edges.context, CALLER, leave)).members == (ErrorCode.NONE,)
        forgotten = await ask(edges, "OffsetDelete", forget, pb.OffsetDeleteResponse)
        assert [(each.topic, each.error) for each in forgotten.partitions] == [("orders", 0)]
        assert await committed(edges) == []
        forgotten = await ask(
            edges, "OffsetDelete", pb.OffsetDeleteRequest(group="none"), pb.OffsetDeleteResponse
        )
        assert forgotten.error == ErrorCode.GROUP_ID_NOT_FOUND
        assert forgotten.message

    run_virtual(main())


@pytest.mark.parametrize(
    ("method", "request_type", "answer_type"),
    [
        ("OffsetCommit", pb.OffsetCommitRequest, pb.OffsetCommitResponse),
        ("OffsetFetch", pb.OffsetFetchRequest, pb.OffsetFetchResponse),
        ("OffsetDelete", pb.OffsetDeleteRequest, pb.OffsetDeleteResponse),
    ],
)
def test_another_coordinator_and_a_denial_are_answered(
    method: str, request_type: Any, answer_type: Any
) -> None:
    async def main() -> None:
        edges = Edges()
        edges.finalize(GROUP_VERSION, 1)
        edges.add_topic(GROUP_TOPIC, [[2]])
        answer = await ask(edges, method, request_type(group=GROUP), answer_type)
        assert (answer.error, bool(answer.message)) == (ErrorCode.NOT_COORDINATOR, True)
        for operation in Operation:
            edges.authorizer.denied.add((operation, group_resource(GROUP)))
        answer = await ask(edges, method, request_type(group=GROUP), answer_type)
        assert (answer.error, bool(answer.message)) == (ErrorCode.GROUP_AUTHORIZATION_FAILED, True)

    run_virtual(main())


def test_a_group_of_the_consumer_protocol_is_described() -> None:
    async def main() -> None:
        edges = await edges_with_groups()
        beat = ConsumerHeartbeatRequest(
            group_id=GROUP,
            member_id="m",
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            topic_names=("orders",),
            owned={},
            client_id="me",
            client_host="/h",
        )
        joined = await groups.consumer_heartbeat(edges.context, CALLER, beat)
        assert joined.error is ErrorCode.NONE
        edges.authorizer.denied.add((Operation.DESCRIBE, group_resource("theirs")))
        asked = pb.DescribeGroupsRequest(groups=["nobody's", GROUP, "theirs"])
        described = await ask(edges, "DescribeGroups", asked, pb.DescribeGroupsResponse)
        nobodys, mine, theirs = described.groups
        assert (nobodys.state, nobodys.error, nobodys.type) == ("Dead", 0, "")
        assert theirs.error == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert (mine.state, mine.type, mine.protocol_type) == ("Stable", "consumer", "consumer")
        assert mine.protocol == "uniform"
        assert mine.group_epoch == mine.assignment_epoch == joined.member_epoch
        (member,) = mine.members
        assert (member.member_id, member.client_id, member.is_classic) == ("m", "me", False)
        assert member.member_epoch == joined.member_epoch
        topic = pb.DescribeGroupsResponse.Topic(topic="orders", partitions=[0, 1, 2])
        assert [*member.assigned] == [*member.target] == [topic]

        edges.authorizer.denied.add((Operation.DESCRIBE, topic_resource("orders")))
        described = await ask(edges, "DescribeGroups", asked, pb.DescribeGroupsResponse)
        assert described.groups[1].error == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    run_virtual(main())


def test_metadata_that_are_too_large_say_how_large_they_are() -> None:
    async def main() -> None:
        edges = await edges_with_groups()
        limit = edges.config.offset_metadata_max_bytes
        large = offset("orders", 0, 1, metadata="x" * (limit + 1))
        request = pb.OffsetCommitRequest(group=GROUP, partitions=[large, offset("orders", 1, 1)])
        answer = await ask(edges, "OffsetCommit", request, pb.OffsetCommitResponse)
        refused, told = answer.partitions
        assert refused.error == ErrorCode.OFFSET_METADATA_TOO_LARGE
        assert f"has {limit + 1} UTF-16 units" in refused.message
        assert (told.error, told.message) == (ErrorCode.NONE, "")

    run_virtual(main())


@pytest.mark.parametrize("method", ["FindCoordinator", "DescribeGroups", "DeleteGroups"])
def test_a_request_that_names_too_many_groups_is_refused_as_a_whole(method: str) -> None:
    async def main() -> None:
        edges = await edges_with_groups()
        request = getattr(pb, f"{method}Request")(groups=["g"] * (NAMED_MAX + 1))
        with pytest.raises(RpcError, match="10001 groups are too many") as caught:
            await ask(edges, method, request, getattr(pb, f"{method}Response"))
        assert caught.value.code is RpcCode.INVALID_ARGUMENT

    run_virtual(main())


@pytest.mark.parametrize("method", ["FindCoordinator", "OffsetFetch", "DescribeGroups"])
def test_garbage_is_an_invalid_argument(method: str) -> None:
    async def main() -> None:
        service = GroupsService(Edges().context, "EXTERNAL").service()
        with pytest.raises(RpcError) as caught:
            await service.unary[f"/stele.v1.Groups/{method}"](b"\xff\xff\xff", PEER)
        assert caught.value.code is RpcCode.INVALID_ARGUMENT

    run_virtual(main())
