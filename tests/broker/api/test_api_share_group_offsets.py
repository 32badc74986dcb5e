"""The offsets of share groups: described, set anew and deleted (APIs 90 to 92)."""

from __future__ import annotations

from typing import Any

import pytest

from runtime.authorization.authorizer import Operation, group_resource, topic_resource
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.kafka.messages import (
    alter_share_group_offsets,
    delete_share_group_offsets,
    describe_share_group_offsets,
    list_offsets,
)
from tests.support.broker_apis import Edges
from tests.support.share_members import (
    ACCEPT,
    ORDERS,
    Member,
    acquired,
    edges_with_sharing,
)
from tests.support.timing import until
from tests.support.worlds import virtual

UNKNOWN = -1


async def described(
    edges: Edges,
    *names: str,
    group_id: str = "g",
    version: int = 1,
    numbers: list[int] | None = None,
) -> Any:
    """The answer about one group."""
    numbers = [0, 1] if numbers is None else numbers
    topics = [
        describe_share_group_offsets.DescribeShareGroupOffsetsRequestTopic(each, numbers)
        for each in names
    ]
    group = describe_share_group_offsets.DescribeShareGroupOffsetsRequestGroup(
        group_id, topics or None
    )
    request = describe_share_group_offsets.DescribeShareGroupOffsetsRequest([group])
    answer = await edges.client().call(describe_share_group_offsets.API, version, request)
    return answer.groups[0]


async def positions(edges: Edges, **options: Any) -> list[tuple[int, int, int]]:
    """Partition, start offset and lag of what the group has read."""
    group = await described(edges, **options)
    assert group.error_code == ErrorCode.NONE, group.error_message
    return [
        (each.partition_index, each.start_offset, each.lag)
        for topic in group.topics
        for each in topic.partitions
    ]


async def altered(edges: Edges, *offsets: tuple[str, int, int], group_id: str = "g") -> Any:
    topics = [
        alter_share_group_offsets.AlterShareGroupOffsetsRequestTopic(
            name, [alter_share_group_offsets.AlterShareGroupOffsetsRequestPartition(number, offset)]
        )
        for name, number, offset in offsets
    ]
    request = alter_share_group_offsets.AlterShareGroupOffsetsRequest(group_id, topics)
    return await edges.client().call(alter_share_group_offsets.API, 0, request)


def errors_of(answer: Any) -> list[int]:
    assert answer.error_code == ErrorCode.NONE, answer.error_message
    return [each.error_code for topic in answer.responses for each in topic.partitions]


async def deleted(edges: Edges, *names: str, group_id: str = "g") -> Any:
    topics = [
        delete_share_group_offsets.DeleteShareGroupOffsetsRequestTopic(each) for each in names
    ]
    request = delete_share_group_offsets.DeleteShareGroupOffsetsRequest(group_id, topics)
    return await edges.client().call(delete_share_group_offsets.API, 0, request)


async def a_group_that_has_read(edges: Edges, *, stays: bool = False) -> Member:
    """Its member has accepted the records 0, 1 and 3 of 5. It leaves unless it stays."""
    member = Member(edges)
    log = await member.begin()
    for _ in range(5):
        log.append()
    assert len(acquired(await member.fetch())) == 5
    data = await member.fetch((0, 1, ACCEPT), (3, 3, ACCEPT))
    assert data.acknowledge_error_code == ErrorCode.NONE
    if not stays:
        await leave(member)
    return member


async def leave(member: Member) -> None:
    member.session_epoch = -1
    await member.fetch()
    assert (await member.heartbeat(-1)).error_code == ErrorCode.NONE
    await until(lambda: not list(member.edges.sharing.partitions))


@virtual
async def test_start_offsets_and_lags_are_described() -> None:
    edges = await edges_with_sharing()
    await a_group_that_has_read(edges, stays=True)
    # The start offset rests on what was persisted before the last write.
    ((zero, start, lag), one) = await positions(edges)
    assert (zero, lag) == (0, 2)
    assert start in (0, 2)
    assert one == (1, UNKNOWN, UNKNOWN)  # no member has fetched from it
    assert await positions(edges, version=0) == [(0, start, UNKNOWN), one]
    group = await described(edges, "orders", numbers=[0, 7])
    known, unknown = group.topics[0].partitions
    assert (group.topics[0].topic_id, known.leader_epoch) == (ORDERS, 5)
    assert known.error_code == ErrorCode.NONE
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await edges.sharing.stop()


@virtual
async def test_topics_that_the_group_has_not_read_have_no_start_offset() -> None:
    edges = await edges_with_sharing()
    edges.add_topic("other", [[1]])
    await Member(edges).begin()
    (other, missing) = (await described(edges, "other", "missing", numbers=[0])).topics
    assert (other.partitions[0].start_offset, other.partitions[0].lag) == (UNKNOWN, UNKNOWN)
    assert other.partitions[0].error_code == ErrorCode.NONE
    assert missing.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [each.topic_name for each in (await described(edges)).topics] == ["orders"]
    await edges.sharing.stop()


@virtual
async def test_the_lag_needs_the_leader_and_the_rest_does_not() -> None:
    edges = await edges_with_sharing()
    await a_group_that_has_read(edges)
    edges.change_leader("orders", 0, leader=2)
    ((_, start, lag), _) = await positions(edges)
    assert lag == UNKNOWN
    assert start in (0, 2)

    def answer(request: Any) -> Any:
        (topic,) = request.topics
        return list_offsets.ListOffsetsResponse(
            topics=[
                list_offsets.ListOffsetsTopicResponse(
                    topic.name,
                    [
                        list_offsets.ListOffsetsPartitionResponse(
                            each.partition_index, offset=100 if each.timestamp == -1 else 0
                        )
                        for each in topic.partitions
                    ],
                )
            ]
        )

    edges.nodes.answers[list_offsets.ListOffsetsRequest] = answer
    assert (await positions(edges))[0] == (0, start, 97)
    await edges.sharing.stop()


@virtual
async def test_an_empty_group_begins_where_it_is_told() -> None:
    edges = await edges_with_sharing()
    await a_group_that_has_read(edges)
    assert errors_of(await altered(edges, ("orders", 0, 1))) == [ErrorCode.NONE]
    assert (await positions(edges))[0] == (0, 1, 4)
    member = Member(edges, "other")
    assert await member.join() == {ORDERS: [0, 1]}
    await member.fetch(add=True)
    await until(lambda: all(each.machine for each in edges.sharing.partitions))
    # Also what was acknowledged is delivered again, as for the first time.
    assert acquired(await member.fetch()) == [(n, n, 1) for n in range(1, 5)]
    await edges.sharing.stop()


@virtual
async def test_each_alteration_counts_also_to_the_same_offset() -> None:
    edges = await edges_with_sharing()
    await a_group_that_has_read(edges)
    for offset in (4, 0, 4, 4, 2):
        assert errors_of(await altered(edges, ("orders", 0, offset))) == [ErrorCode.NONE]
        assert (await positions(edges))[0] == (0, offset, 5 - offset)
    await edges.sharing.stop()


@virtual
async def test_a_group_gets_a_start_offset_for_a_topic_before_it_reads_it() -> None:
    edges = await edges_with_sharing()
    edges.add_topic("other", [[1]])
    await a_group_that_has_read(edges)
    assert errors_of(await altered(edges, ("other", 0, 3))) == [ErrorCode.NONE]
    (group,) = [(await described(edges, "other", numbers=[0])).topics[0]]
    assert (group.partitions[0].start_offset, group.partitions[0].leader_epoch) == (3, UNKNOWN)
    await edges.sharing.stop()


@virtual
async def test_partitions_that_cannot_be_altered_hold_up_no_others() -> None:
    edges = await edges_with_sharing()
    await a_group_that_has_read(edges)
    answer = await altered(
        edges,
        ("orders", 0, 1),
        ("orders", 9, 1),
        ("missing", 0, 1),
        ("orders", 1, -1),
    )
    assert errors_of(answer) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    ]
    assert [each.topic_id for each in answer.responses] == [ORDERS, ORDERS, bytes(16), ORDERS]
    twice = errors_of(await altered(edges, ("orders", 0, 2), ("orders", 0, 3)))
    assert twice == [ErrorCode.INVALID_REQUEST] * 2
    assert [each[1] for each in await positions(edges)] == [1, UNKNOWN]
    await edges.sharing.stop()


@virtual
async def test_a_group_with_members_keeps_its_offsets() -> None:
    edges = await edges_with_sharing()
    member = await a_group_that_has_read(edges, stays=True)
    before = await positions(edges)
    refused = await altered(edges, ("orders", 0, 1))
    assert refused.error_code == ErrorCode.NON_EMPTY_GROUP
    assert "stop them first" in refused.error_message
    assert (await deleted(edges, "orders")).error_code == ErrorCode.NON_EMPTY_GROUP
    assert await positions(edges) == before
    # The leader goes on with what it has loaded.
    assert (await member.fetch()).responses == []
    await edges.sharing.stop()


@virtual
async def test_a_deleted_topic_begins_anew() -> None:
    edges = await edges_with_sharing()
    edges.add_topic("other", [[1]])
    await a_group_that_has_read(edges)
    answer = await deleted(edges, "orders", "other", "missing")
    assert answer.error_code == ErrorCode.NONE
    told = [(each.topic_name, each.error_code) for each in answer.responses]
    assert told == [
        ("orders", ErrorCode.NONE),
        ("other", ErrorCode.NONE),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    assert answer.responses[0].topic_id == ORDERS
    (states,) = edges.sharing.coordinators.active
    assert states.count == 0
    assert await positions(edges) == []
    assert (await deleted(edges, "orders")).responses[0].error_code == ErrorCode.NONE
    late = Member(edges, "late")
    heard = await late.heartbeat(0, subscribed_topic_names=["orders"])
    assert heard.error_code == ErrorCode.NONE, "the group is open as soon as nothing is deleted"
    assert await late.join() == {ORDERS: [0, 1]}
    assert await positions(edges) == [(0, UNKNOWN, UNKNOWN), (1, UNKNOWN, UNKNOWN)]
    await edges.sharing.stop()


@virtual
async def test_groups_that_there_are_not() -> None:
    edges = await edges_with_sharing()
    assert (await described(edges, group_id="h")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (await altered(edges, group_id="h")).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    refused = await deleted(edges, "orders", group_id="h")
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert refused.error_message == "there is no share group h"
    await edges.sharing.stop()


@virtual
async def test_without_the_feature_there_are_no_offsets() -> None:
    edges = await edges_with_sharing(level=0)
    assert (await described(edges)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await altered(edges)).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert (await deleted(edges)).error_code == ErrorCode.UNSUPPORTED_VERSION
    await edges.sharing.stop()


@virtual
async def test_topics_that_the_caller_may_not_see() -> None:
    edges = await edges_with_sharing()
    await a_group_that_has_read(edges)
    orders = topic_resource("orders")
    edges.authorizer.denied |= {(Operation.DESCRIBE, orders), (Operation.READ, orders)}
    assert await positions(edges) == []
    (told,) = (await described(edges, "orders", numbers=[0])).topics
    assert told.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert told.topic_id == bytes(16)
    denied = [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert errors_of(await altered(edges, ("orders", 0, 0))) == denied
    assert [each.error_code for each in (await deleted(edges, "orders")).responses] == denied
    await edges.sharing.stop()


@pytest.mark.parametrize("operation", [Operation.DESCRIBE, Operation.READ, Operation.DELETE])
@virtual
async def test_groups_that_the_caller_may_not_touch(operation: Operation) -> None:
    edges = await edges_with_sharing()
    edges.authorizer.denied.add((operation, group_resource("h")))
    told = {
        Operation.DESCRIBE: (await described(edges, group_id="h")).error_code,
        Operation.READ: (await altered(edges, group_id="h")).error_code,
        Operation.DELETE: (await deleted(edges, group_id="h")).error_code,
    }
    assert told.pop(operation) == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert set(told.values()) == {ErrorCode.GROUP_ID_NOT_FOUND}
    await edges.sharing.stop()


@virtual
async def test_the_last_member_of_a_broker_leaves_no_share_partition_behind() -> None:
    edges = await edges_with_sharing()
    one, other = Member(edges, "one"), Member(edges, "other")
    await one.begin()
    await other.fetch(add=True)
    one.client.disconnect()
    assert len(list(edges.sharing.partitions)) == 1
    other.client.disconnect()
    assert list(edges.sharing.partitions) == []
    assert edges.replicas.shared_logs[PartitionId(ORDERS, 0)].watchers == 0
    await edges.sharing.stop()
