"""Members of share groups: they join, fetch, acknowledge and leave (APIs 76 to 79)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runtime.authorization.authorizer import Operation, group_resource, topic_resource
from stele.errors import ErrorCode
from stele.wire.kafka.messages import (
    delete_groups,
    find_coordinator,
    list_groups,
    share_fetch,
    share_group_describe,
)
from tests.support.share_members import (
    ACCEPT,
    ORDERS,
    RELEASE,
    RENEW,
    Member,
    acquired,
    edges_with_sharing,
)
from tests.support.worlds import virtual


async def two_members() -> tuple[Any, Member, Member]:
    """Both read the only partition, and the first one has its only record."""
    edges = await edges_with_sharing()
    one, other = Member(edges, "one"), Member(edges, "other")
    log = await one.begin()
    await other.fetch(add=True)
    log.append()
    assert acquired(await one.fetch()) == [(0, 0, 1)]
    return edges, one, other


@virtual
async def test_the_life_of_a_member() -> None:
    edges = await edges_with_sharing()
    member = Member(edges)
    log = await member.begin()
    for _ in range(4):
        log.append()
    data = await member.fetch()
    assert acquired(data) == [(n, n, 1) for n in range(4)]
    assert bytes(data.records) == b"0123"
    answer = await member.acknowledge(0, 1, ACCEPT)
    assert (answer.error_code, answer.acquisition_lock_timeout_ms) == (0, 30_000)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    data = await member.fetch((2, 2, RELEASE), (3, 3, ACCEPT))
    assert data.acknowledge_error_code == ErrorCode.NONE
    assert acquired(await member.fetch()) == [(2, 2, 2)]
    member.session_epoch = -1
    closed = await member.acknowledge(2, 2, ACCEPT)
    assert closed.responses[0].partitions[0].error_code == ErrorCode.NONE
    assert len(edges.sharing.sessions) == 0
    assert list(edges.sharing.partitions) == []
    assert (await member.heartbeat(-1)).error_code == ErrorCode.NONE
    await edges.sharing.stop()


@virtual
async def test_a_fetch_waits_for_records() -> None:
    edges = await edges_with_sharing()
    member = Member(edges)
    log = await member.begin()
    member.client.send(share_fetch.API, 2, member.fetch_request(max_wait_ms=60_000))
    await asyncio.sleep(5.0)
    log.append()
    answer = await member.client.receive(share_fetch.API, 2)
    assert acquired(answer.responses[0].partitions[0]) == [(0, 0, 1)]
    await edges.sharing.stop()


@virtual
async def test_a_lost_connection_gives_its_records_back() -> None:
    edges, one, other = await two_members()
    waiting = asyncio.ensure_future(other.fetch(max_wait_ms=20_000))
    await asyncio.sleep(1.0)
    one.client.disconnect()
    assert acquired(await waiting) == [(0, 0, 1)]
    await edges.sharing.stop()


@virtual
async def test_a_lost_connection_gives_back_records_of_forgotten_partitions() -> None:
    edges, one, other = await two_members()
    await one.fetch(forgotten_topics_data=[share_fetch.ForgottenTopic(ORDERS, [0])])
    waiting = asyncio.ensure_future(other.fetch(max_wait_ms=20_000))
    await asyncio.sleep(1.0)
    assert not waiting.done()
    one.client.disconnect()
    assert acquired(await waiting) == [(0, 0, 1)]
    await edges.sharing.stop()


@virtual
async def test_another_member_cannot_acknowledge_a_record() -> None:
    edges, _, other = await two_members()
    answer = await other.acknowledge(0, 0, ACCEPT)
    (refused,) = answer.responses[0].partitions
    assert refused.error_code == ErrorCode.INVALID_RECORD_STATE
    assert "no record at offset 0" in (refused.error_message or "")
    data = await other.fetch((0, 0, ACCEPT))
    assert data.acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
    assert data.error_code == ErrorCode.NONE
    await edges.sharing.stop()


@pytest.mark.parametrize("kind", [ACCEPT, RELEASE])
@virtual
async def test_a_late_decision_is_not_about_the_delivery_that_comes_with_its_answer(
    kind: int,
) -> None:
    """The same fetch acknowledges a record whose lock has ended, and gets it again."""
    edges = await edges_with_sharing()
    member = Member(edges)
    log = await member.begin()
    log.append()
    log.append()
    assert acquired(await member.fetch()) == [(0, 0, 1), (1, 1, 1)]
    await asyncio.sleep(31)
    data = await member.fetch((0, 0, kind))
    assert data.acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE
    assert acquired(data) == [(0, 0, 2), (1, 1, 2)]
    answer = await member.acknowledge(0, 1, ACCEPT)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NONE
    await edges.sharing.stop()


@virtual
async def test_locks_are_renewed_by_a_fetch_that_says_so() -> None:
    edges = await edges_with_sharing()
    member = Member(edges)
    log = await member.begin()
    log.append()
    assert acquired(await member.fetch()) == [(0, 0, 1)]
    silent = await member.fetch((0, 0, RENEW))
    assert silent.acknowledge_error_code == ErrorCode.INVALID_REQUEST
    greedy = await member.fetch((0, 0, RENEW), is_renew_ack=True)
    assert greedy.error_code == ErrorCode.INVALID_REQUEST
    member.session_epoch -= 1  # nothing has changed
    zero = {"max_wait_ms": 0, "max_bytes": 0, "max_records": 0}
    for _ in range(3):
        await asyncio.sleep(20)
        renewed = await member.fetch((0, 0, RENEW), is_renew_ack=True, **zero)
        assert renewed.acknowledge_error_code == ErrorCode.NONE
    assert (await member.acknowledge(0, 0, ACCEPT)).responses[0].partitions[0].error_code == 0
    await edges.sharing.stop()


@virtual
async def test_a_session_has_rules() -> None:
    edges = await edges_with_sharing(group_share_max_share_sessions="1")
    member = Member(edges)
    assert (await member.acknowledge(0, 0, ACCEPT)).error_code == (
        ErrorCode.INVALID_SHARE_SESSION_EPOCH
    )
    assert (await member.acknowledge(0, 0, ACCEPT)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    member.session_epoch = 0
    assert (await member.fetch((0, 0, ACCEPT))).error_code == ErrorCode.INVALID_REQUEST
    member.session_epoch = 0
    await member.begin()
    member.session_epoch = 7
    assert (await member.fetch()).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    other = Member(edges, "other")
    refused = await other.fetch(add=True)
    assert refused.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    for wrong in ("", "m" * 37):
        assert (await Member(edges, wrong).fetch()).error_code == ErrorCode.INVALID_REQUEST
    await edges.sharing.stop()


@virtual
async def test_a_partition_that_moves_names_its_leader() -> None:
    edges = await edges_with_sharing()
    member = Member(edges)
    log = await member.begin()
    log.append()
    assert acquired(await member.fetch()) == [(0, 0, 1)]
    log.is_led = False
    edges.change_leader("orders", 0, leader=2)
    answer = await member.client.call(
        share_fetch.API, 2, member.fetch_request((0, 0, ACCEPT), max_wait_ms=60_000)
    )
    (data,) = answer.responses[0].partitions
    assert data.error_code == data.acknowledge_error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert data.current_leader is not None
    assert (data.current_leader.leader_id, data.current_leader.leader_epoch) == (2, 6)
    assert [each.node_id for each in answer.node_endpoints] == [2]
    late = await member.acknowledge(0, 0, ACCEPT)
    assert late.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert [each.host for each in late.node_endpoints] == ["b2.external"]
    await edges.sharing.stop()


@virtual
async def test_topics_that_are_unknown_or_forbidden() -> None:
    edges = await edges_with_sharing()
    member = Member(edges)
    log = await member.begin()
    log.append()
    edges.authorizer.denied.add((Operation.READ, topic_resource("orders")))
    assert (await member.fetch()).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    data = await member.fetch((0, 0, ACCEPT))
    assert data.acknowledge_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    edges.authorizer.denied.clear()
    edges.remove_topic("orders")
    assert (await member.fetch()).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    edges.authorizer.denied.add((Operation.READ, group_resource("g")))
    assert (await member.fetch()).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    await edges.sharing.stop()


@virtual
async def test_a_group_is_listed_described_and_deleted_with_its_states() -> None:
    edges = await edges_with_sharing()
    member = Member(edges)
    await member.begin()
    client = edges.client()
    listed = await client.call(
        list_groups.API, 5, list_groups.ListGroupsRequest(types_filter=["share"])
    )
    assert [(each.group_id, each.group_type) for each in listed.groups] == [("g", "share")]
    asked = share_group_describe.ShareGroupDescribeRequest(["g", "h"])
    described, missing = (await client.call(share_group_describe.API, 1, asked)).groups
    assert (described.group_state, described.assignor_name) == ("Stable", "simple")
    (told,) = described.members
    assert told.subscribed_topic_names == ["orders"]
    assert told.assignment is not None
    assert told.assignment.topic_partitions[0].partitions == [0, 1]
    assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    async def delete() -> int:
        request = delete_groups.DeleteGroupsRequest(["g"])
        return (await client.call(delete_groups.API, 2, request)).results[0].error_code

    (states,) = edges.sharing.coordinators.active
    assert states.count == 2
    assert await delete() == ErrorCode.NON_EMPTY_GROUP
    assert states.count == 2
    await member.heartbeat(-1)
    assert await delete() == ErrorCode.NONE
    assert states.count == 0
    assert await delete() == ErrorCode.GROUP_ID_NOT_FOUND
    # A group of the same name begins anew.
    assert await Member(edges, "n").join() == {ORDERS: [0, 1]}
    assert states.count == 2
    await edges.sharing.stop()


@virtual
async def test_without_the_feature_there_are_no_share_groups() -> None:
    edges = await edges_with_sharing(level=0)
    member = Member(edges)
    joined = await member.heartbeat(0, subscribed_topic_names=["orders"])
    assert joined.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "stele features upgrade" in (joined.error_message or "")
    assert (await member.fetch(add=True)).error_code == ErrorCode.UNSUPPORTED_VERSION
    asked = share_group_describe.ShareGroupDescribeRequest(["g"])
    (described,) = (await member.client.call(share_group_describe.API, 1, asked)).groups
    assert described.error_code == ErrorCode.UNSUPPORTED_VERSION
    keys = find_coordinator.FindCoordinatorRequest(key_type=2, coordinator_keys=["g:t:0"])
    (found,) = (await member.client.call(find_coordinator.API, 6, keys)).coordinators
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION
    await edges.sharing.stop()


@pytest.mark.parametrize(
    ("key", "error"), [("g:t:0", ErrorCode.NONE), ("g", ErrorCode.INVALID_REQUEST)]
)
@virtual
async def test_the_coordinator_of_a_share_partition_is_found(key: str, error: ErrorCode) -> None:
    edges = await edges_with_sharing()
    keys = find_coordinator.FindCoordinatorRequest(key_type=2, coordinator_keys=[key])
    (found,) = (await edges.client().call(find_coordinator.API, 6, keys)).coordinators
    assert found.error_code == error
    assert found.node_id == (1 if error is ErrorCode.NONE else -1)
    await edges.sharing.stop()
