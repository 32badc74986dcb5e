"""stele.v1.Groups/DescribeShareWindow: what the leader tells, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from broker.grpc.groups import GroupsService
from runtime.authorization.authorizer import Operation, group_resource, topic_resource
from stele.errors import ErrorCode
from stele.wire.v1 import groups_pb2 as pb
from tests.support.broker_apis import Edges
from tests.support.broker_edges import PEER
from tests.support.share_members import ACCEPT, RELEASE, Member, edges_with_sharing
from tests.support.worlds import virtual


async def described(edges: Edges, **fields: Any) -> pb.DescribeShareWindowResponse:
    request = pb.DescribeShareWindowRequest(**{"group": "g", "topic": "orders", **fields})
    service = GroupsService(edges.context, "EXTERNAL").service()
    method = service.unary["/stele.v1.Groups/DescribeShareWindow"]
    return pb.DescribeShareWindowResponse.FromString(
        await method(request.SerializeToString(), PEER)
    )


@virtual
async def test_the_record_that_holds_a_window_back_is_described() -> None:
    edges = await edges_with_sharing()
    unread = await described(edges)
    assert (unread.error, unread.known, unread.readers) == (ErrorCode.NONE, False, 0)
    member = Member(edges)
    log = await member.begin()
    for _ in range(4):
        log.append()
    await member.fetch()
    await member.acknowledge(1, 1, ACCEPT)
    await member.acknowledge(2, 2, RELEASE)
    window = await described(edges)
    assert (window.error, window.known, window.readers) == (ErrorCode.NONE, True, 1)
    assert (window.start_offset, window.end_offset, window.done_records) == (0, 4, 1)
    assert (window.acquired_records, window.redelivered_records) == (2, 1)
    assert (window.archiving_records, window.letter_trouble) == (0, "")
    assert (window.max_record_locks, window.delivery_count_limit) == (2000, 5)
    (holder,) = window.holders
    assert (holder.member_id, holder.records) == ("m", 2)
    assert holder.lock_until_ms - window.start_since_ms == window.record_lock_duration_ms == 30_000
    states = [(each.first_offset, each.state, each.member_id) for each in window.ranges]
    assert states == [
        (0, "acquired", "m"),
        (1, "acknowledged", ""),
        (2, "available", ""),
        (3, "acquired", "m"),
    ]
    vain = window.ranges[2].last_vain_delivery
    assert (vain.end, vain.member_id, vain.last_offset) == ("released", "m", 2)
    assert not window.ranges[0].HasField("last_vain_delivery")
    assert {each.due_ms for each in window.ranges} == {-1}

    page = await described(edges, from_offset=1, max_ranges=2)
    assert page.ranges == window.ranges[1:3]
    assert (page.next_offset, window.next_offset) == (3, -1)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"topic": "gone"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": 2}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"max_ranges": -1}, ErrorCode.INVALID_REQUEST),
        ({"topic": "theirs"}, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ({"topic": "secret"}, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        ({"group": "secret"}, ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ],
)
@virtual
async def test_a_window_is_refused_with_the_reason(
    fields: dict[str, Any], error: ErrorCode
) -> None:
    edges = await edges_with_sharing()
    edges.add_topic("theirs", [[2]])
    edges.add_topic("secret", [[1]])
    edges.authorizer.denied.add((Operation.DESCRIBE, group_resource("secret")))
    edges.authorizer.denied.add((Operation.DESCRIBE, topic_resource("secret")))
    answer = await described(edges, **fields)
    assert answer.error == error
    assert answer.message


@virtual
async def test_a_cluster_without_share_groups_refuses_windows() -> None:
    edges = await edges_with_sharing(level=0)
    answer = await described(edges)
    assert answer.error == ErrorCode.UNSUPPORTED_VERSION
    assert "stele features upgrade" in answer.message
