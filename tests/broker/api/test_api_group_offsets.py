"""The offsets of consumer groups over the Kafka protocol."""

from __future__ import annotations

import asyncio

import pytest

from stele.errors import ErrorCode
from stele.wire.kafka.messages import (
    delete_groups,
    join_group,
    offset_commit,
    offset_delete,
    offset_fetch,
)
from stele.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from storage.turns import SLICE_STEPS
from tests.support.broker_apis import Edges, topic_id
from tests.support.group_requests import (
    GROUP,
    SESSION_MS,
    a_member,
    commit_of,
    edges_with_groups,
)
from tests.support.worlds import virtual


@pytest.mark.parametrize("version", range(2, 11))
@virtual
async def test_offsets_are_committed_in_every_version(version: int) -> None:
    client = (await edges_with_groups()).client()
    member_id, generation = await a_member(client)
    request = commit_of(member_id, generation, ("orders", 1, 42), ("unknown", 0, 1))
    answer = await client.call(offset_commit.API, version, request)
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if version >= 10 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.partitions[0].error_code for each in answer.topics] == [
        ErrorCode.NONE, unknown,
    ]  # fmt: skip


@pytest.mark.parametrize("version", range(1, 11))
@virtual
async def test_offsets_are_fetched_in_every_version(version: int) -> None:
    client = (await edges_with_groups()).client()
    commit = commit_of("", -1, ("orders", 1, 42))
    await client.call(offset_commit.API, 9, commit)
    topic = offset_fetch.OffsetFetchRequestTopics("orders", topic_id("orders"), [0, 1])
    request = offset_fetch.OffsetFetchRequest(
        GROUP,
        [offset_fetch.OffsetFetchRequestTopic("orders", [0, 1])],
        groups=[offset_fetch.OffsetFetchRequestGroup(GROUP, topics=[topic])],
    )
    answer = await client.call(offset_fetch.API, version, request)
    told = answer if version < 8 else answer.groups[0]
    (orders,) = told.topics
    assert [
        (each.partition_index, each.committed_offset, each.metadata) for each in orders.partitions
    ] == [(0, -1, ""), (1, 42, "so far")]
    if version >= 5:
        assert orders.partitions[1].committed_leader_epoch == 5


@virtual
async def test_no_topic_has_the_id_of_zeros() -> None:
    """From version 10 on topics have no names, so it does not stand for a name."""
    client = (await edges_with_groups()).client()
    topic = offset_fetch.OffsetFetchRequestTopics("", bytes(16), [0])
    groups = [offset_fetch.OffsetFetchRequestGroup(GROUP, topics=[topic])]
    request = offset_fetch.OffsetFetchRequest(groups=groups)
    answer = await client.call(offset_fetch.API, 10, request)
    ((told,),) = (each.partitions for each in answer.groups[0].topics)
    assert told.error_code == ErrorCode.UNKNOWN_TOPIC_ID


@virtual
async def test_all_offsets_of_several_groups() -> None:
    client = (await edges_with_groups()).client()
    commit = commit_of("", -1, ("orders", 1, 42), ("orders", 2, 43))
    await client.call(offset_commit.API, 9, commit)
    groups = [offset_fetch.OffsetFetchRequestGroup(each, topics=None) for each in (GROUP, "b")]
    request = offset_fetch.OffsetFetchRequest(groups=groups)
    answer = await client.call(offset_fetch.API, 9, request)
    first, second = answer.groups
    assert [(t.name, len(t.partitions)) for t in first.topics] == [("orders", 2)]
    assert (second.error_code, second.topics) == (ErrorCode.NONE, [])


@virtual
async def test_offsets_are_deleted() -> None:
    client = (await edges_with_groups()).client()
    await client.call(offset_commit.API, 9, commit_of("", -1, ("orders", 1, 42)))
    topics = [
        offset_delete.OffsetDeleteRequestTopic(
            name, [offset_delete.OffsetDeleteRequestPartition(1)]
        )
        for name in ("orders", "unknown")
    ]
    request = offset_delete.OffsetDeleteRequest(GROUP, topics)
    answer = await client.call(offset_delete.API, 0, request)
    assert [each.partitions[0].error_code for each in answer.topics] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    groups = [offset_fetch.OffsetFetchRequestGroup(GROUP, topics=None)]
    fetch = offset_fetch.OffsetFetchRequest(groups=groups)
    assert (await client.call(offset_fetch.API, 8, fetch)).groups[0].topics == []


LONG = "t" * 249
PARTITIONS = 400


async def edges_with_many_offsets() -> Edges:
    """The group has more offsets than a batch can hold from then on."""
    edges = await edges_with_groups()
    edges.add_topic(LONG, [[1]] * PARTITIONS)
    request = commit_of("", -1, *((LONG, each, 1) for each in range(PARTITIONS)))
    await edges.client().call(offset_commit.API, 9, request)
    (log,) = edges.replicas.hosted_logs.values()
    log.max_batch_bytes = 20 * 1024
    return edges


@virtual
async def test_a_commit_that_no_batch_holds_is_refused() -> None:
    edges = await edges_with_many_offsets()
    (log,) = edges.replicas.hosted_logs.values()
    log.max_batch_bytes = 4 * 1024  # less than a part of the request
    request = commit_of("", -1, *((LONG, each, 2) for each in range(PARTITIONS)))
    answer = await edges.client().call(offset_commit.API, 9, request)
    errors = {each.error_code for topic in answer.topics for each in topic.partitions}
    assert errors == {ErrorCode.INVALID_COMMIT_OFFSET_SIZE}


@virtual
async def test_a_group_with_more_offsets_than_a_batch_holds_is_deleted() -> None:
    edges = await edges_with_many_offsets()
    request = delete_groups.DeleteGroupsRequest([GROUP])
    answer = await edges.client().call(delete_groups.API, 2, request)
    assert [each.error_code for each in answer.results] == [ErrorCode.NONE]
    assert edges.groups.offset_count == 0
    answer = await edges.client().call(delete_groups.API, 2, request)
    assert [each.error_code for each in answer.results] == [ErrorCode.GROUP_ID_NOT_FOUND]


@virtual
async def test_a_group_that_somebody_else_deletes_meanwhile_is_deleted() -> None:
    edges = await edges_with_many_offsets()
    request = delete_groups.DeleteGroupsRequest([GROUP, GROUP])
    answer = await edges.client().call(delete_groups.API, 2, request)
    assert [each.error_code for each in answer.results] == [ErrorCode.NONE] * 2
    assert edges.groups.offset_count == 0


@virtual
async def test_more_offsets_than_a_batch_holds_are_deleted() -> None:
    edges = await edges_with_many_offsets()
    topic = offset_delete.OffsetDeleteRequestTopic(
        LONG,
        [offset_delete.OffsetDeleteRequestPartition(each) for each in range(PARTITIONS + 1)],
    )
    request = offset_delete.OffsetDeleteRequest(GROUP, [topic])
    answer = await edges.client().call(offset_delete.API, 0, request)
    assert answer.error_code == ErrorCode.NONE
    errors = [each.error_code for topic in answer.topics for each in topic.partitions]
    assert errors == [ErrorCode.NONE] * (PARTITIONS + 1)
    assert edges.groups.offset_count == 0


@virtual
async def test_offsets_that_are_left_when_a_member_joins_get_the_error() -> None:
    edges = await edges_with_many_offsets()
    partitions = [offset_delete.OffsetDeleteRequestPartition(n) for n in range(PARTITIONS)]
    topic = offset_delete.OffsetDeleteRequestTopic(LONG, partitions)
    deletion = offset_delete.OffsetDeleteRequest(GROUP, [topic])
    joining = JoinGroupRequest(
        GROUP,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        protocol_type="connect",  # no group of consumers: all its offsets count as used
        protocols=[JoinGroupRequestProtocol("range", b"")],
    )
    deleting = asyncio.ensure_future(edges.client().call(offset_delete.API, 0, deletion))
    for _ in range(PARTITIONS // SLICE_STEPS + 1):  # the deletion first looks at them in slices
        await asyncio.sleep(0)
    await edges.client().call(join_group.API, 3, joining)
    answer = await deleting
    assert answer.error_code == ErrorCode.NONE
    errors = [each.error_code for each in answer.topics[0].partitions]
    left = errors.count(ErrorCode.NON_EMPTY_GROUP)
    assert errors == sorted(errors)
    assert errors.count(ErrorCode.NONE) + left == PARTITIONS
    assert 0 < left == edges.groups.offset_count


@virtual
async def test_offsets_of_a_deleted_topic_are_forgotten() -> None:
    edges = await edges_with_groups()
    client = edges.client()
    await client.call(offset_commit.API, 9, commit_of("", -1, ("orders", 1, 42)))
    edges.remove_topic("orders")
    groups = [offset_fetch.OffsetFetchRequestGroup(GROUP, topics=None)]
    fetch = offset_fetch.OffsetFetchRequest(groups=groups)
    while (await client.call(offset_fetch.API, 8, fetch)).groups[0].topics:
        pass  # each question takes a turn of the loop
