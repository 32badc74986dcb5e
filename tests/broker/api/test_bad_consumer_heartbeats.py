"""What members of the consumer protocol do wrong, and Kafka's errors for it."""

from __future__ import annotations

from typing import Any

import pytest

from metadata.features import GROUP_VERSION
from metadata.internal_topics import GROUP_TOPIC
from stele.errors import ErrorCode
from stele.wire.kafka.messages.consumer_group_heartbeat import (
    API,
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from tests.support.broker_apis import Client, Edges, topic_id
from tests.support.timing import until
from tests.support.worlds import virtual

GROUP = "readers"
ALL = TopicPartitions(topic_id("orders"), [0, 1, 2])
LONG = "x" * 32_001
JOIN: dict[str, Any] = {
    "group_id": GROUP,
    "member_id": "m",
    "member_epoch": 0,
    "rebalance_timeout_ms": 1_000,
    "subscribed_topic_names": ["orders"],
    "topic_partitions": [],
}


async def edges_with_groups(**settings: str) -> Edges:
    edges = Edges(**settings)
    edges.finalize(GROUP_VERSION, 1)
    edges.add_topic("orders", [[1]] * 3)
    edges.add_topic(GROUP_TOPIC, [[1]])
    await until(lambda: len(edges.groups.active) == 1)
    return edges


async def beat(client: Client, **fields: Any) -> Any:
    return await client.call(API, 1, ConsumerGroupHeartbeatRequest(**fields))


async def code(client: Client, **fields: Any) -> ErrorCode:
    answer = await beat(client, **fields)
    error = ErrorCode(answer.error_code)
    assert bool(answer.error_message) == (error is not ErrorCode.NONE), "it says why"
    return error


NO_JOINS: list[tuple[dict[str, Any], ErrorCode]] = [
    ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
    ({"instance_id": ""}, ErrorCode.INVALID_REQUEST),
    ({"rack_id": ""}, ErrorCode.INVALID_REQUEST),
    ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST),
    ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST),
    ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST),
    ({"topic_partitions": [ALL]}, ErrorCode.INVALID_REQUEST),
    ({"member_epoch": -3}, ErrorCode.INVALID_REQUEST),
    ({"member_epoch": -(2**31)}, ErrorCode.INVALID_REQUEST),
    ({"member_epoch": -2}, ErrorCode.INVALID_REQUEST),  # without an instance id
    ({"member_epoch": 2**31 - 1}, ErrorCode.UNKNOWN_MEMBER_ID),
    ({"server_assignor": "sticky"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ({"server_assignor": ""}, ErrorCode.UNSUPPORTED_ASSIGNOR),
    ({"subscribed_topic_regex": "(" * 1_000}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ({"subscribed_topic_regex": "a{1,2000}"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ({"subscribed_topic_regex": "[z-a]"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ({"subscribed_topic_regex": "\\1"}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ({"member_id": LONG}, ErrorCode.INVALID_REQUEST),
    ({"instance_id": LONG}, ErrorCode.INVALID_REQUEST),
    ({"subscribed_topic_regex": LONG}, ErrorCode.INVALID_REGULAR_EXPRESSION),
]


@pytest.mark.parametrize(("fields", "error"), NO_JOINS)
@virtual
async def test_joins_that_are_refused(fields: dict[str, Any], error: ErrorCode) -> None:
    edges = await edges_with_groups()
    client = edges.client()
    assert await code(client, **{**JOIN, **fields}) is error
    (log,) = edges.replicas.hosted_logs.values()
    assert log.batches == []
    assert await code(client, **JOIN) is ErrorCode.NONE


HELD = {"group_id": GROUP, "member_id": "m"}
STALE: list[tuple[dict[str, Any], ErrorCode]] = [
    ({"member_id": "other", "member_epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
    ({"member_id": "other", "member_epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
    ({"group_id": "none", "member_epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID),
    ({"group_id": "none", "member_epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ({"member_epoch": 2}, ErrorCode.FENCED_MEMBER_EPOCH),
    ({"member_epoch": 1, "instance_id": "j"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ({"member_id": "n", "member_epoch": 1, "instance_id": "i"}, ErrorCode.FENCED_INSTANCE_ID),
    ({"member_id": "n", "member_epoch": -1, "instance_id": "i"}, ErrorCode.FENCED_INSTANCE_ID),
    ({"member_id": "n", "member_epoch": -2, "instance_id": "i"}, ErrorCode.FENCED_INSTANCE_ID),
    (
        {**JOIN, "member_id": "n", "instance_id": "i"},
        ErrorCode.UNRELEASED_INSTANCE_ID,
    ),
]


@pytest.mark.parametrize(("fields", "error"), STALE)
@virtual
async def test_heartbeats_of_others_and_of_the_past(
    fields: dict[str, Any], error: ErrorCode
) -> None:
    """The member that is there notices nothing."""

    edges = await edges_with_groups()
    client = edges.client()
    joined = await beat(client, **{**JOIN, "instance_id": "i"})
    assert joined.member_epoch == 1
    assert await code(client, **{**HELD, **fields}) is error
    again = await beat(client, **HELD, member_epoch=1, instance_id="i", topic_partitions=[ALL])
    assert (again.error_code, again.member_epoch, again.assignment) == (0, 1, None)


@virtual
async def test_a_retry_with_the_epoch_before_is_fenced_if_it_owns_something_else() -> None:
    edges = await edges_with_groups(group_consumer_assignment_interval_ms="0")
    client = edges.client()
    await beat(client, **JOIN)
    await beat(client, **{**JOIN, "member_id": "n"})
    told = await beat(client, **HELD, member_epoch=1, topic_partitions=[ALL])
    assert told.error_code == ErrorCode.NONE
    kept = told.assignment.topic_partitions
    moved = await beat(client, **HELD, member_epoch=1, topic_partitions=kept)
    assert moved.member_epoch == 2
    fenced = ErrorCode.FENCED_MEMBER_EPOCH
    assert await code(client, **HELD, member_epoch=1, topic_partitions=[ALL]) is fenced
    assert await code(client, **HELD, member_epoch=1) is fenced, "it says nothing"
    retried = await beat(client, **HELD, member_epoch=1, topic_partitions=kept)
    assert (retried.error_code, retried.member_epoch) == (0, 2)


@pytest.mark.parametrize(
    "owned",
    [
        [TopicPartitions(bytes(16), [0])],
        [TopicPartitions(topic_id("orders"), [-1, 2**31 - 1])],
        [ALL, ALL],
        [TopicPartitions(topic_id("orders"), list(range(10_000)))],
    ],
)
@virtual
async def test_what_a_member_owns_may_be_nonsense(owned: list[TopicPartitions]) -> None:
    """The answer is that of an honest member, or FENCED_MEMBER_EPOCH."""

    edges = await edges_with_groups()
    client = edges.client()
    await beat(client, **JOIN)
    error = await code(client, **HELD, member_epoch=1, topic_partitions=owned)
    assert error in (ErrorCode.NONE, ErrorCode.FENCED_MEMBER_EPOCH)
    assert await code(client, **HELD, member_epoch=1) is ErrorCode.NONE


@virtual
async def test_a_hostile_expression_costs_no_more_than_others() -> None:
    """The matcher is linear: this one takes a backtracking matcher for ever."""

    edges = await edges_with_groups()
    for number in range(20):
        edges.add_topic("a" * 200 + str(number), [[1]])
    asked = {**JOIN, "subscribed_topic_regex": "(a|aa)+(a*)*b", "subscribed_topic_names": []}
    answer = await beat(edges.client(), **asked)
    assert (answer.error_code, answer.assignment.topic_partitions) == (0, [])


@virtual
async def test_a_full_group() -> None:
    edges = await edges_with_groups(group_consumer_max_size="1")
    client = edges.client()
    await beat(client, **JOIN)
    full = ErrorCode.GROUP_MAX_SIZE_REACHED
    assert await code(client, **{**JOIN, "member_id": "n"}) is full


@virtual
async def test_a_coordinator_that_is_elsewhere() -> None:
    edges = Edges()
    edges.finalize(GROUP_VERSION, 1)
    edges.add_topic("orders", [[1]] * 3)
    edges.add_topic(GROUP_TOPIC, [[2]])
    answer = await beat(edges.client(), **JOIN)
    assert answer.error_code == ErrorCode.NOT_COORDINATOR
