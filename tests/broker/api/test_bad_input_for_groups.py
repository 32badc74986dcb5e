"""What clients of consumer groups do wrong, and Kafka's errors for it, over the Kafka protocol."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from broker.coordinator.group.classic.joining import NEW_MEMBER_JOIN_TIMEOUT_MS
from metadata.features import GROUP_VERSION
from metadata.internal_topics import GROUP_TOPIC
from stele.errors import ErrorCode
from stele.wire.kafka import Struct
from stele.wire.kafka.messages import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from tests.support.broker_apis import Client, Edges, topic_id
from tests.support.timing import until
from tests.support.worlds import virtual

SESSION_MS = 10_000
RANGE = ("range", b"\0\0\0\0\0\1\0\1t\0\0\0\0")
UNKNOWN, FENCED = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID
STALE = ErrorCode.ILLEGAL_GENERATION


async def coordinator(**settings: str) -> Edges:
    """This broker coordinates every group."""
    edges = Edges(group_initial_rebalance_delay_ms="0", **settings)
    edges.add_topic("orders", [[1]] * 3)
    edges.add_topic(GROUP_TOPIC, [[1]])
    edges.finalize(GROUP_VERSION, 1)
    await until(lambda: len(edges.groups.active) == 1)
    return edges


def joining(
    member_id: str = "",
    instance: str | None = None,
    *,
    group: str = "g",
    protocol_type: str = "consumer",
    protocols: tuple[tuple[str, bytes], ...] = (RANGE,),
    rebalance_timeout_ms: int = 60_000,
) -> join_group.JoinGroupRequest:
    return join_group.JoinGroupRequest(
        group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=instance,
        protocol_type=protocol_type,
        protocols=[join_group.JoinGroupRequestProtocol(*each) for each in protocols],
    )


def syncing(
    member_id: str, generation: int, instance: str | None = None, *, group: str = "g"
) -> sync_group.SyncGroupRequest:
    assignment = sync_group.SyncGroupRequestAssignment(member_id, b"all")
    return sync_group.SyncGroupRequest(
        group, generation, member_id, instance, "consumer", "range", [assignment]
    )


def committing(
    member_id: str = "",
    generation: int = -1,
    instance: str | None = None,
    *,
    group: str = "g",
    topic: str = "orders",
    id_of_topic: bytes = topic_id("orders"),
) -> offset_commit.OffsetCommitRequest:
    partition = offset_commit.OffsetCommitRequestPartition(0, 7)
    named = offset_commit.OffsetCommitRequestTopic(id_of_topic, topic, [partition])
    return offset_commit.OffsetCommitRequest(group, generation, member_id, instance, topics=[named])


async def committed(client: Client, request: Any, version: int = 9) -> int:
    answer = await client.call(offset_commit.API, version, request)
    return int(answer.topics[0].partitions[0].error_code)


async def member(client: Client, instance: str | None = None, *, group: str = "g") -> str:
    """The only member of a stable group of generation 1; its id."""
    answer = await client.call(join_group.API, 9, joining(instance=instance, group=group))
    if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
        answer = await client.call(join_group.API, 9, joining(answer.member_id, group=group))
    assert (answer.error_code, answer.generation_id) == (ErrorCode.NONE, 1)
    asked = syncing(answer.member_id, 1, instance, group=group)
    assert (await client.call(sync_group.API, 5, asked)).error_code == ErrorCode.NONE
    return str(answer.member_id)


# ------------------------------------------------------------------------- who are you?

WRONG: dict[str, tuple[str | None, Callable[[str], tuple[str, int, str | None]], ErrorCode]] = {
    "an unknown member": (None, lambda me: ("nobody", 1, None), UNKNOWN),
    "no member": (None, lambda me: ("", 1, None), UNKNOWN),
    "an older generation": (None, lambda me: (me, 0, None), STALE),
    "a later generation": (None, lambda me: (me, 2, None), STALE),
    "an unknown instance": (None, lambda me: (me, 1, "i"), UNKNOWN),
    "an instance of another process": ("i", lambda me: ("former", 1, "i"), FENCED),
    "both wrong: the instance counts": ("i", lambda me: ("former", 0, "i"), FENCED),
}


@pytest.mark.parametrize("what", WRONG)
@virtual
async def test_who_is_no_member_in_this_generation(what: str) -> None:
    instance, wrong, error = WRONG[what]

    client = (await coordinator()).client()
    me = await member(client, instance)
    who, generation, of_instance = wrong(me)
    beat = heartbeat.HeartbeatRequest("g", generation, who, of_instance)
    assert (await client.call(heartbeat.API, 4, beat)).error_code == error
    asked = syncing(who, generation, of_instance)
    assert (await client.call(sync_group.API, 5, asked)).error_code == error
    commit = committing(who, generation, of_instance)
    assert await committed(client, commit) == error
    if error is not STALE:  # a JoinGroup names no generation
        known = who or "nobody"
        answer = await client.call(join_group.API, 9, joining(known, of_instance))
        assert answer.error_code == error
        leave = leave_group.LeaveGroupRequest(
            "g", members=[leave_group.MemberIdentity(known, of_instance)]
        )
        left = await client.call(leave_group.API, 5, leave)
        assert [each.error_code for each in left.members] == [error]
    beat = heartbeat.HeartbeatRequest("g", 1, me, instance)
    assert (await client.call(heartbeat.API, 4, beat)).error_code == ErrorCode.NONE


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (joining(protocol_type="connect"), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (joining(protocol_type=""), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (joining(protocols=()), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (joining(protocols=(("other", b""),)), ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        (joining(protocols=tuple((str(each), b"") for each in range(200))), 42),
        (joining(group=""), ErrorCode.INVALID_GROUP_ID),
    ],
)
@virtual
async def test_who_may_not_join(request_: Any, error: int) -> None:
    client = (await coordinator()).client()
    me = await member(client)
    assert (await client.call(join_group.API, 9, request_)).error_code == error
    changed = joining(
        me, protocol_type=request_.protocol_type, group=request_.group_id
    )  # a member that changes what it is
    changed.protocols = request_.protocols
    assert (await client.call(join_group.API, 9, changed)).error_code == error
    beat = heartbeat.HeartbeatRequest("g", 1, me)
    assert (await client.call(heartbeat.API, 4, beat)).error_code == ErrorCode.NONE


@pytest.mark.parametrize("session_ms", [-1, 0, 5_999, 1_800_001, 2**31 - 1])
@virtual
async def test_sessions_that_are_too_short_or_too_long(session_ms: int) -> None:
    request = joining()
    request.session_timeout_ms = session_ms
    answer = await (await coordinator()).client().call(join_group.API, 9, request)
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


# ------------------------------------------------------------------------- commits of the past


@pytest.mark.parametrize("version", range(2, 11))
@virtual
async def test_commits_to_groups_that_are_not_there_or_not_yours(version: int) -> None:
    client = (await coordinator()).client()
    unknown = ErrorCode.GROUP_ID_NOT_FOUND if version >= 9 else STALE
    assert await committed(client, committing("me", 3), version) == unknown
    assert await committed(client, committing(), version) == ErrorCode.NONE
    # The group has offsets now and no members.
    assert await committed(client, committing("me", 3), version) == UNKNOWN
    me = await member(client)
    assert await committed(client, committing(), version) == UNKNOWN
    assert await committed(client, committing(me, -1), version) == STALE
    assert await committed(client, committing(me, 1), version) == ErrorCode.NONE


@virtual
async def test_commits_for_topics_that_were_deleted() -> None:
    edges = await coordinator()
    client = edges.client()
    assert await committed(client, committing(), 10) == ErrorCode.NONE
    edges.remove_topic("orders")
    assert await committed(client, committing(), 10) == ErrorCode.UNKNOWN_TOPIC_ID
    assert await committed(client, committing(), 9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    of_none = committing(id_of_topic=bytes(16))
    assert await committed(client, of_none, 10) == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", range(2, 11))
@virtual
async def test_metadata_that_are_too_large_are_refused_and_the_rest_is_committed(
    version: int,
) -> None:
    client = (await coordinator(offset_metadata_max_bytes="10")).client()
    request = committing()
    request.topics[0].partitions = [
        offset_commit.OffsetCommitRequestPartition(number, 7, committed_metadata=told)
        for number, told in enumerate(("ü" * 10, "x" * 11, "ü" * 11))
    ]
    answer = await client.call(offset_commit.API, version, request)
    assert [each.error_code for each in answer.topics[0].partitions] == [
        ErrorCode.NONE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    ]
    groups = [offset_fetch.OffsetFetchRequestGroup("g", topics=None)]
    asked = offset_fetch.OffsetFetchRequest(groups=groups)
    (topic,) = (await client.call(offset_fetch.API, 9, asked)).groups[0].topics
    found = [(each.partition_index, each.metadata) for each in topic.partitions]
    assert found == [(0, "ü" * 10)]


HOSTILE = ["(" * 1_000, "{" * 30_000, "((a?){20}a{20}){60}", "[" * 3_000, "(a|b)*" * 2_000]


@pytest.mark.parametrize("regex", HOSTILE)
@virtual
async def test_a_hostile_expression_is_refused_soon(regex: str) -> None:
    client = (await coordinator()).client()
    asked = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "m", 0, rebalance_timeout_ms=1_000, subscribed_topic_regex=regex,
        topic_partitions=[],
    )  # fmt: skip
    began_s = time.process_time()
    answer = await client.call(consumer_group_heartbeat.API, 1, asked)
    assert time.process_time() - began_s < 2
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert len(answer.error_message or "") < 300
    assert await _consume(client) == ErrorCode.NONE


# ------------------------------------------------------------------------- the coordinator


@virtual
async def test_a_coordinator_that_has_moved() -> None:
    edges = await coordinator()

    async def told() -> list[int]:
        return await asyncio.gather(*(each(edges.client()) for each in OF_A_GROUP))

    assert ErrorCode.NOT_COORDINATOR not in await told()
    edges.remove_topic(GROUP_TOPIC)
    edges.add_topic(GROUP_TOPIC, [[2, 1]])
    assert await told() == [ErrorCode.NOT_COORDINATOR] * len(OF_A_GROUP)


@virtual
async def test_a_coordinator_that_is_loading() -> None:
    edges = await coordinator()

    async def told() -> list[int]:
        return await asyncio.gather(*(each(edges.client()) for each in OF_A_GROUP))

    assert await _commit(edges.client()) == ErrorCode.NONE
    (log,) = edges.replicas.hosted_logs.values()
    log.high_watermark = 0  # the commit may still vanish
    edges.remove_topic(GROUP_TOPIC)
    edges.add_topic(GROUP_TOPIC, [[1]])
    loading = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * len(OF_A_GROUP)
    assert await told() == loading
    await until_turned()
    assert await told() == loading
    log.commit()
    await until(lambda: len(edges.groups.active) == 1)
    assert ErrorCode.COORDINATOR_LOAD_IN_PROGRESS not in await told()


async def _join(client: Client) -> int:
    return int((await client.call(join_group.API, 9, joining())).error_code)


async def _sync(client: Client) -> int:
    return int((await client.call(sync_group.API, 5, syncing("m", 1))).error_code)


async def _beat(client: Client) -> int:
    beat = heartbeat.HeartbeatRequest("g", 1, "m")
    return int((await client.call(heartbeat.API, 4, beat)).error_code)


async def _leave(client: Client) -> int:
    leave = leave_group.LeaveGroupRequest("g", members=[leave_group.MemberIdentity("m")])
    return int((await client.call(leave_group.API, 5, leave)).error_code)


async def _commit(client: Client) -> int:
    return await committed(client, committing())


async def _fetch(client: Client) -> int:
    groups = [offset_fetch.OffsetFetchRequestGroup("g", topics=None)]
    asked = offset_fetch.OffsetFetchRequest(groups=groups)
    return int((await client.call(offset_fetch.API, 9, asked)).groups[0].error_code)


async def _delete_offsets(client: Client) -> int:
    partition = offset_delete.OffsetDeleteRequestPartition(0)
    topic = offset_delete.OffsetDeleteRequestTopic("orders", [partition])
    asked = offset_delete.OffsetDeleteRequest("g", [topic])
    return int((await client.call(offset_delete.API, 0, asked)).error_code)


async def _describe(client: Client) -> int:
    asked = describe_groups.DescribeGroupsRequest(["g"])
    return int((await client.call(describe_groups.API, 5, asked)).groups[0].error_code)


async def _delete(client: Client) -> int:
    asked = delete_groups.DeleteGroupsRequest(["g"])
    return int((await client.call(delete_groups.API, 2, asked)).results[0].error_code)


async def _consume(client: Client) -> int:
    asked = consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
        "g", "m", 0, rebalance_timeout_ms=1_000, subscribed_topic_names=["orders"],
        topic_partitions=[],
    )  # fmt: skip
    return int((await client.call(consumer_group_heartbeat.API, 1, asked)).error_code)


async def _describe_consumers(client: Client) -> int:
    asked = consumer_group_describe.ConsumerGroupDescribeRequest(["g"])
    answer = await client.call(consumer_group_describe.API, 1, asked)
    return int(answer.groups[0].error_code)


async def _commit_in_a_transaction(client: Client) -> int:
    partition = txn_offset_commit.TxnOffsetCommitRequestPartition(0, 7)
    topic = txn_offset_commit.TxnOffsetCommitRequestTopic("orders", [partition])
    asked = txn_offset_commit.TxnOffsetCommitRequest("t", "g", 7, 0, topics=[topic])
    answer = await client.call(txn_offset_commit.API, 5, asked)
    return int(answer.topics[0].partitions[0].error_code)


OF_A_GROUP = (
    _join, _sync, _beat, _leave, _commit, _fetch, _delete_offsets, _describe, _delete,
    _consume, _describe_consumers, _commit_in_a_transaction,
)  # fmt: skip


# ------------------------------------------------------------------------- names of groups

NAMELESS: dict[str, tuple[Any, range, Callable[[int], Struct], Callable[[Any], int], int]] = {
    "JoinGroup": (
        join_group.API, range(10), lambda version: joining(group=""),
        lambda answer: int(answer.error_code), ErrorCode.INVALID_GROUP_ID,
    ),
    "SyncGroup": (
        sync_group.API, range(6), lambda version: syncing("m", 1, group=""),
        lambda answer: int(answer.error_code), ErrorCode.INVALID_GROUP_ID,
    ),
    "Heartbeat": (
        heartbeat.API, range(5), lambda version: heartbeat.HeartbeatRequest("", 1, "m"),
        lambda answer: int(answer.error_code), ErrorCode.INVALID_GROUP_ID,
    ),
    "LeaveGroup": (
        leave_group.API, range(6), lambda version: leave_group.LeaveGroupRequest("", "m"),
        lambda answer: int(answer.error_code), ErrorCode.INVALID_GROUP_ID,
    ),
    "OffsetCommit": (  # consumers without a group of their own always could
        offset_commit.API, range(2, 11), lambda version: committing(group=""),
        lambda answer: int(answer.topics[0].partitions[0].error_code), ErrorCode.NONE,
    ),
    "OffsetFetch": (
        offset_fetch.API, range(8, 11),
        lambda version: offset_fetch.OffsetFetchRequest(
            groups=[offset_fetch.OffsetFetchRequestGroup("", topics=None)]
        ),
        lambda answer: int(answer.groups[0].error_code), ErrorCode.NONE,
    ),
    "OffsetDelete": (
        offset_delete.API, range(1), lambda version: offset_delete.OffsetDeleteRequest(""),
        lambda answer: int(answer.error_code), ErrorCode.INVALID_GROUP_ID,
    ),
    "DescribeGroups": (  # as a group that does not exist
        describe_groups.API, range(6), lambda version: describe_groups.DescribeGroupsRequest([""]),
        lambda answer: int(answer.groups[0].error_code), ErrorCode.NONE,
    ),
    "DeleteGroups": (
        delete_groups.API, range(3), lambda version: delete_groups.DeleteGroupsRequest([""]),
        lambda answer: int(answer.results[0].error_code), ErrorCode.GROUP_ID_NOT_FOUND,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMELESS)
@virtual
async def test_a_group_without_a_name(name: str) -> None:
    api, versions, request, error_of, expected = NAMELESS[name]

    for version in versions:
        client = (await coordinator()).client()
        answer = await client.call(api, version, request(version))
        assert error_of(answer) == expected, f"version {version}"


@pytest.mark.parametrize("group", ["x" * 32_767, "ü" * 16_383, "\0", "a\nb", " ", "🙂"])
@virtual
async def test_odd_and_long_names_are_names(group: str) -> None:
    """Also in the records of the log, and in the answers."""

    client = (await coordinator()).client()
    me = await member(client, group=group)
    assert await committed(client, committing(me, 1, group=group)) == ErrorCode.NONE
    groups = [offset_fetch.OffsetFetchRequestGroup(group, topics=None)]
    asked = offset_fetch.OffsetFetchRequest(groups=groups)
    (told,) = (await client.call(offset_fetch.API, 9, asked)).groups
    assert told.group_id == group
    assert told.topics[0].partitions[0].committed_offset == 7
    listed = await client.call(list_groups.API, 5, list_groups.ListGroupsRequest())
    assert [each.group_id for each in listed.groups] == [group]


# ------------------------------------------------------------------------- who hangs up


@virtual
async def test_a_client_that_hangs_up_while_it_joins_is_no_member_for_long() -> None:
    edges = await coordinator()
    client, gone = edges.client(), edges.client()
    me = await member(client)
    asked = await gone.call(join_group.API, 9, joining())
    gone.send(join_group.API, 9, joining(asked.member_id))
    gone.disconnect()
    again = await client.call(join_group.API, 9, joining(me))
    assert (again.generation_id, len(again.members)) == (2, 2)
    synced = await client.call(sync_group.API, 5, syncing(me, 2))
    assert synced.error_code == ErrorCode.NONE
    # Its session ends, and nothing but that makes the others join again.
    beat = heartbeat.HeartbeatRequest("g", 2, me)
    spent_ms, error = 0, ErrorCode.NONE
    while error == ErrorCode.NONE:
        edges.clock.skipped_s += 1
        spent_ms += 1000
        await until_turned()
        error = ErrorCode((await client.call(heartbeat.API, 4, beat)).error_code)
    assert error is ErrorCode.REBALANCE_IN_PROGRESS
    assert spent_ms <= SESSION_MS + 1000
    again = await client.call(join_group.API, 9, joining(me))
    assert (again.generation_id, len(again.members)) == (3, 1)


@virtual
async def test_new_members_that_hang_up_do_not_wait_for_ever_for_a_generation() -> None:
    """The group waits for a member that takes its time. The new ones are gone before it comes."""

    edges = await coordinator()
    client = edges.client()
    first = await client.call(join_group.API, 9, joining(rebalance_timeout_ms=2**31 - 1))
    slow = joining(first.member_id, rebalance_timeout_ms=2**31 - 1)
    assert (await client.call(join_group.API, 9, slow)).generation_id == 1
    me = first.member_id
    await client.call(sync_group.API, 5, syncing(me, 1))
    for _ in range(20):
        gone = edges.client()
        asked = await gone.call(join_group.API, 9, joining())
        gone.send(join_group.API, 9, joining(asked.member_id))
        gone.disconnect()
    assert await count_of_members(client) == 21
    beat = heartbeat.HeartbeatRequest("g", 1, me)
    for _ in range(NEW_MEMBER_JOIN_TIMEOUT_MS // 5_000 + 1):
        edges.clock.skipped_s += 5
        await until_turned()
        told = (await client.call(heartbeat.API, 4, beat)).error_code
        assert told == ErrorCode.REBALANCE_IN_PROGRESS
    assert await count_of_members(client) == 1


async def count_of_members(client: Client) -> int:
    asked = describe_groups.DescribeGroupsRequest(["g"])
    return len((await client.call(describe_groups.API, 5, asked)).groups[0].members)


async def until_turned() -> None:
    """What is due by the clock is done at the coordinator's next event."""
    turns = iter(range(3))
    await until(lambda: next(turns) == 2)
