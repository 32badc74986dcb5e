"""AlterPartitionReassignments and ListPartitionReassignments."""

from __future__ import annotations

from collections import Counter

import pytest

from stele.errors import ErrorCode
from stele.wire.kafka.messages import (
    alter_partition_reassignments as alter,
)
from stele.wire.kafka.messages import (
    list_partition_reassignments as listing,
)
from tests.support.broker_apis import Edges
from tests.support.worlds import virtual


def _alter(
    targets: dict[str, list[list[int] | None]], *, allow: bool = True
) -> alter.AlterPartitionReassignmentsRequest:
    return alter.AlterPartitionReassignmentsRequest(
        timeout_ms=5000,
        allow_replication_factor_change=allow,
        topics=[
            alter.ReassignableTopic(
                name=topic,
                partitions=[
                    alter.ReassignablePartition(partition_index=index, replicas=replicas)
                    for index, replicas in enumerate(partitions)
                ],
            )
            for topic, partitions in targets.items()
        ],
    )


@pytest.mark.parametrize("version", [0, 1])
@virtual
async def test_each_partition_is_answered_where_it_was_asked(version: int) -> None:
    edges = Edges()
    request = _alter({"a": [[2, 3], []], "b": [None]}, allow=False)
    answer = await edges.client().call(alter.API, version, request)
    assert answer.error_code == ErrorCode.NONE
    results = [
        (topic.name, each.partition_index, each.error_code, each.error_message)
        for topic in answer.responses
        for each in topic.partitions
    ]
    assert results == [
        ("a", 0, ErrorCode.NONE, None),
        ("a", 1, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "it names no broker"),
        ("b", 0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
    ]
    (sent,) = edges.controller.moved
    assert sent.keep_replication_factor == (version >= 1), "version 0 cannot say it"
    assert edges.controller.moves == {("a", 0): [2, 3]}


@virtual
async def test_many_partitions_are_several_decisions() -> None:
    edges = Edges()
    request = _alter({"a": [[2, 3]] * 700, "b": [[]] * 400})
    answer = await edges.client().call(alter.API, 1, request)
    results = [each.error_code for topic in answer.responses for each in topic.partitions]
    assert results == [ErrorCode.NONE] * 700 + [ErrorCode.INVALID_REPLICA_ASSIGNMENT] * 400
    assert [len(sent.partitions) for sent in edges.controller.moved] == [500, 500, 100]


@virtual
async def test_a_partition_named_twice_reaches_the_controller_in_one_request() -> None:
    edges = Edges()
    request = _alter({"a": [[2, 3]] * 700})
    request.topics.append(request.topics[0])
    await edges.client().call(alter.API, 1, request)
    moved = edges.controller.moved
    assert [len(sent.partitions) for sent in moved] == [500, 500, 400]
    for sent in moved:
        times = Counter(wish.partition for wish in sent.partitions)
        assert set(times.values()) == {2}


@virtual
async def test_what_a_later_decision_refuses_is_refused_in_its_place() -> None:
    edges = Edges()
    edges.controller.refuses_moves_after = 1
    answer = await edges.client().call(alter.API, 1, _alter({"a": [[2, 3]] * 700}))
    assert answer.error_code == ErrorCode.NONE
    results = [each.error_code for topic in answer.responses for each in topic.partitions]
    assert results == [ErrorCode.NONE] * 500 + [ErrorCode.POLICY_VIOLATION] * 200


@virtual
async def test_the_controller_s_moves_are_listed() -> None:
    edges = Edges()
    edges.controller.moves = {("a", 0): [2], ("a", 1): [3], ("b", 5): [2, 3]}
    client = edges.client()

    async def listed(
        topics: list[listing.ListPartitionReassignmentsTopics] | None,
    ) -> dict[tuple[str, int], tuple[list[int], list[int], list[int]]]:
        request = listing.ListPartitionReassignmentsRequest(timeout_ms=5000, topics=topics)
        answer = await client.call(listing.API, 0, request)
        assert answer.error_code == ErrorCode.NONE
        return {
            (topic.name, each.partition_index): (
                each.replicas,
                each.adding_replicas,
                each.removing_replicas,
            )
            for topic in answer.topics
            for each in topic.partitions
        }

    assert await listed(None) == {
        ("a", 0): ([2, 1], [2], [1]),
        ("a", 1): ([3, 1], [3], [1]),
        ("b", 5): ([2, 3, 1], [2, 3], [1]),
    }
    some = listing.ListPartitionReassignmentsTopics(name="a", partition_indexes=[1, 7])
    assert list(await listed([some])) == [("a", 1)]
    assert await listed([]) == {}, "none is not all"


@virtual
async def test_a_refusal_of_the_whole_is_passed_on() -> None:
    edges = Edges()
    edges.controller.refuse_with = ErrorCode.POLICY_VIOLATION
    client = edges.client()
    answer = await client.call(alter.API, 1, _alter({"a": [[2]]}))
    assert (answer.error_code, answer.responses) == (ErrorCode.POLICY_VIOLATION, [])
    request = listing.ListPartitionReassignmentsRequest(timeout_ms=5000)
    told = await client.call(listing.API, 0, request)
    assert (told.error_code, told.topics) == (ErrorCode.POLICY_VIOLATION, [])


@virtual
async def test_no_controller_answers() -> None:
    edges = Edges()
    edges.controller.refuse_with = ErrorCode.NOT_CONTROLLER
    client = edges.client()
    answer = await client.call(alter.API, 1, _alter({"a": [[2]]}))
    assert answer.error_code == ErrorCode.REQUEST_TIMED_OUT
    request = listing.ListPartitionReassignmentsRequest(timeout_ms=1000)
    told = await client.call(listing.API, 0, request)
    assert told.error_code == ErrorCode.REQUEST_TIMED_OUT
