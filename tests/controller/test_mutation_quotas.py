"""``controller_mutation_rate``: topics and partitions that come too fast (KIP-599)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from runtime.authorization.caller import NODE_ITSELF
from runtime.metrics.registry import MetricsRegistry
from stele.errors import ErrorCode
from stele.wire.v1 import admin_pb2 as admin
from stele.wire.v1.caller_pb2 import OnBehalfOf
from tests.controller.test_service import World, with_controller
from tests.support.client_quotas import entry

THROTTLED = ErrorCode.THROTTLING_QUOTA_EXCEEDED


async def change(world: World, request: Any, response: Any, **caller: Any) -> Any:
    """By default for user ann, whose client knows the refusal."""
    request.on_behalf_of.CopyFrom(OnBehalfOf(**({"principal": "User:ann"} | caller)))
    method = f"/stele.v1.Admin/{type(request).__name__.removesuffix('Request')}"
    return await world.brokers[1].call(method, request, response)


async def limit(world: World, rate: float) -> None:
    """For every user."""
    await world.start(1)
    request = admin.AlterClientQuotasRequest(
        entries=[entry({"user": None}, controller_mutation_rate=rate)]
    )
    answer = await change(world, request, admin.AlterClientQuotasResponse)
    assert [each.error for each in answer.entries] == [0]


async def create(world: World, *topics: tuple[str, int], **caller: Any) -> Any:
    request = creation(*topics)
    return await change(world, request, admin.CreateTopicsResponse, **caller)


def creation(*topics: tuple[str, int], validate_only: bool = False) -> admin.CreateTopicsRequest:
    made = [
        admin.NewTopic(name=name, partitions=count, replication_factor=1) for name, count in topics
    ]
    return admin.CreateTopicsRequest(topics=made, validate_only=validate_only)


def errors(answer: Any) -> list[int]:
    return [each.error for each in answer.topics]


@with_controller
async def test_topics_above_the_quota_are_refused_until_there_is_no_debt(world: World) -> None:
    await limit(world, 1.0)
    first = await create(world, ("a", 8))
    second = await create(world, ("b", 8))
    assert errors(first) == errors(second) == [0]
    assert first.throttle_time_ms == second.throttle_time_ms == 0
    third = await create(world, ("c", 1))
    assert errors(third) == [THROTTLED]
    assert 4_500 < third.throttle_time_ms <= 5_000
    assert "of default user is 1 partitions per second" in third.topics[0].message
    assert errors(await create(world, ("d", 8), principal="User:bob")) == [0]
    await asyncio.sleep(third.throttle_time_ms / 1000)
    assert errors(await create(world, ("c", 1))) == [0]


@with_controller
async def test_what_clients_have_changed_can_be_seen(world: World) -> None:
    await limit(world, 1.0)
    registry = MetricsRegistry()
    world.controller.service.changes.mutations.declare(registry)
    await create(world, ("a", 8))
    await create(world, ("b", 8))
    await create(world, ("c", 1))
    await create(world, ("d", 0), principal="User:bob")
    values, ann = registry.values(), '{user="ann",client_id=""}'
    assert -5 <= values["stele_mutation_quota_tokens" + ann] < -4.5
    assert values["stele_mutation_quota_partitions" + ann] == 16
    assert 4.5 < values["stele_mutation_quota_throttled_seconds" + ann] <= 5
    assert values['stele_mutation_quota_throttled_seconds{user="bob",client_id=""}'] == 0


@with_controller
async def test_within_a_request_only_topics_that_come_too_late_are_refused(world: World) -> None:
    await limit(world, 1.0)
    answer = await create(world, ("a", 10), ("b", 2), ("c", 1), ("d", 1))
    assert errors(answer) == [0, 0, THROTTLED, THROTTLED]
    assert [each.name for each in answer.topics] == ["a", "b", "c", "d"]
    assert 0 < answer.throttle_time_ms <= 1_000
    assert world.controller.service.image.topic("b") is not None
    assert world.controller.service.image.topic("c") is None


@with_controller
async def test_an_older_client_gets_everything_and_waits_afterwards(world: World) -> None:
    await limit(world, 1.0)
    first = await create(world, ("a", 12), ("b", 2), may_exceed_quota=True)
    assert errors(first) == [0, 0]
    assert 2_500 < first.throttle_time_ms <= 3_000
    second = await create(world, ("c", 1), may_exceed_quota=True)
    assert errors(second) == [0]
    assert second.throttle_time_ms > first.throttle_time_ms


@with_controller
async def test_what_is_not_done_counts_for_nothing(world: World) -> None:
    await limit(world, 1.0)
    await create(world, ("a", 1))
    for _ in range(4):
        validated = creation(("b", 10), validate_only=True)
        answer = await change(world, validated, admin.CreateTopicsResponse)
        assert errors(answer) == [0]
        refused = await create(world, ("a", 10), ("no name", 10))
        assert THROTTLED not in errors(refused)
    repeated = creation(("c", 6))
    repeated.request_id = b"i" * 16
    for number in range(3):
        answer = await change(world, repeated, admin.CreateTopicsResponse)
        assert (errors(answer), answer.already_done) == ([0], number > 0)
    assert errors(await create(world, ("d", 1))) == [0]


@with_controller
async def test_a_change_that_is_refused_whole_counts_for_nothing(world: World) -> None:
    await limit(world, 1.0)
    for _ in range(2):
        many = ((f"t{number}", 1) for number in range(10_001))
        answer = await create(world, *many, may_exceed_quota=True)
        assert answer.error == ErrorCode.POLICY_VIOLATION
    assert errors(await create(world, ("a", 1), ("b", 1))) == [0, 0]


@with_controller
async def test_deletions_and_more_partitions_count_as_well(world: World) -> None:
    await limit(world, 1.0)
    await create(world, ("a", 6), ("b", 4))
    wishes = [admin.CreatePartitionsRequest.Topic(name=name, count=7) for name in ("a", "b", "a")]
    grown = await change(
        world, admin.CreatePartitionsRequest(topics=wishes[:2]), admin.CreatePartitionsResponse
    )
    assert errors(grown) == [0, 0], "1 of 1 that is left, and 3 more on credit"
    grown = await change(
        world, admin.CreatePartitionsRequest(topics=wishes[2:]), admin.CreatePartitionsResponse
    )
    assert errors(grown) == [ErrorCode.INVALID_PARTITIONS], "it would change nothing"
    deletion = admin.DeleteTopicsRequest(names=["gone", "a"])
    deleted = await change(world, deletion, admin.DeleteTopicsResponse)
    assert errors(deleted) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, THROTTLED]
    assert 2_500 < deleted.throttle_time_ms <= 3_000
    await asyncio.sleep(3.0)
    topic = world.controller.service.image.topic("a")
    assert topic is not None
    deletion = admin.DeleteTopicsRequest(topic_ids=[topic.topic_id])
    assert errors(await change(world, deletion, admin.DeleteTopicsResponse)) == [0]
    throttled = await create(world, ("c", 1))
    assert errors(throttled) == [THROTTLED]
    assert 6_500 < throttled.throttle_time_ms <= 7_000


@pytest.mark.parametrize("principal", [NODE_ITSELF])
@with_controller
async def test_nodes_are_exempt(world: World, principal: str) -> None:
    await limit(world, 1.0)
    for name in "abc":
        assert errors(await create(world, (name, 20), principal=principal)) == [0]
