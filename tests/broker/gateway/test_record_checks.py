"""What a leader would refuse a batch for is refused for its one record."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.gateway.record_checks import RecordChecks, Writable, fault_of
from broker.gateway.refusals import Refusal
from metadata.topic_config import TopicConfig
from metadata.topics import Topic
from runtime.authorization.authorizer import Operation, topic_resource
from runtime.authorization.caller import NODE_ITSELF, Caller, Plane
from stele.errors import ErrorCode
from tests.support.authorizer import FakeAuthorizer
from tests.support.broker_apis import Edges
from tests.support.worlds import virtual

NOW_MS = 1_000_000
DEFAULTS: dict[str, Any] = {
    "cleanup_policy": ["delete"],
    "max_message_bytes": 500,
    "message_timestamp_type": "CreateTime",
    "message_timestamp_after_max_ms": 100,
    "message_timestamp_before_max_ms": 1000,
}


def writable(*leaders: int, **config: Any) -> Writable:
    """A topic whose partitions have these leaders; -1: none."""
    partitions = [SimpleNamespace(leader=each) for each in leaders or (1, 2)]
    topic = SimpleNamespace(topic_id=b"t" * 16, name="t", partitions=partitions)
    return Writable(
        cast(Topic, topic), cast(TopicConfig, SimpleNamespace(**{**DEFAULTS, **config}))
    )


@pytest.mark.parametrize(
    ("record", "config", "code"),
    [
        ({}, {}, None),
        ({"partition": 1}, {}, None),
        ({"partition": 2}, {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"partition": -1}, {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ({"key": None}, {}, None),
        ({"key": None}, {"cleanup_policy": ["compact", "delete"]}, ErrorCode.INVALID_RECORD),
        ({"size": 500}, {}, None),
        ({"size": 501}, {}, ErrorCode.MESSAGE_TOO_LARGE),
        ({"timestamp_ms": 0}, {"message_timestamp_before_max_ms": NOW_MS}, None),
        ({"timestamp_ms": -1}, {}, ErrorCode.INVALID_TIMESTAMP),
        ({"timestamp_ms": -1}, {"message_timestamp_type": "LogAppendTime"}, "before 1970"),
        ({"timestamp_ms": NOW_MS + 100}, {}, None),
        ({"timestamp_ms": NOW_MS + 101}, {}, "in the future"),
        ({"timestamp_ms": NOW_MS - 1000}, {}, None),
        ({"timestamp_ms": NOW_MS - 1001}, {}, "too long ago"),
        ({"timestamp_ms": NOW_MS + 101}, {"message_timestamp_type": "LogAppendTime"}, None),
        ({"timestamp_ms": NOW_MS - 1001}, {"message_timestamp_type": "LogAppendTime"}, None),
    ],
)
def test_faults(
    record: dict[str, Any], config: dict[str, Any], code: ErrorCode | str | None
) -> None:
    given = {"key": b"k", "timestamp_ms": None, "partition": None, "size": 1, **record}
    found = fault_of(writable(**config), now_ms=NOW_MS, **given)
    if isinstance(code, str):
        assert found is not None
        assert found.code is ErrorCode.INVALID_TIMESTAMP
        assert code in found.message
    else:
        assert (None if found is None else found.code) is code


def test_the_refusal_of_a_partition_names_the_ones_there_are() -> None:
    found = fault_of(writable(), key=b"k", timestamp_ms=None, partition=2, size=1, now_ms=NOW_MS)
    assert found is not None
    assert found.message == "topic 't' has partitions 0 to 1, not 2"


def test_records_without_a_key_go_to_partitions_with_a_leader_if_there_are_any() -> None:
    assert writable(-1, 0, 2).available == [1, 2]
    assert writable(-1, -1).available == [0, 1]


# ------------------------------------------------------------------ topics that come late


CALLER = Caller(NODE_ITSELF, "thin", "EXTERNAL", Plane.GRPC, "")


async def waited_s(checks: RecordChecks, name: str) -> float:
    """How long a record of a message waits for the topic, which is not there."""
    checks.begin()
    began = asyncio.get_running_loop().time()
    found = await checks.topic(name)
    assert isinstance(found, Refusal)
    assert found.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return asyncio.get_running_loop().time() - began


@virtual
async def test_a_topic_that_was_just_created_is_waited_for() -> None:
    edges = Edges()
    checks = RecordChecks(edges.context, CALLER)
    asyncio.get_running_loop().call_later(0.5, edges.add_topic, "late", [[1]])
    found = await checks.topic("late")
    assert isinstance(found, Writable)
    assert asyncio.get_running_loop().time() < 0.9


@virtual
async def test_a_name_that_is_no_topic_delays_a_stream_once() -> None:
    """Otherwise a client with a wrong name would wait for each of its messages."""
    checks = RecordChecks(Edges().context, CALLER)
    waits = [await waited_s(checks, name) for name in ("a", "b", "a", "b")]
    assert waits == pytest.approx([1.0, 1.0, 0.0, 0.0], abs=0.1)


@virtual
async def test_a_topic_that_may_not_be_written_is_not_waited_for() -> None:
    """The time would tell whether it is there."""
    authorizer = FakeAuthorizer()
    edges = Edges(authorizer)
    edges.add_topic("there", [[1]])
    for name in ("there", "nowhere"):
        authorizer.denied.add((Operation.WRITE, topic_resource(name)))
    checks = RecordChecks(edges.context, CALLER)
    for name in ("there", "nowhere"):
        found = await checks.topic(name)
        assert isinstance(found, Refusal)
        assert found.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert asyncio.get_running_loop().time() < 0.1


@virtual
async def test_a_stream_waits_for_a_bounded_number_of_names() -> None:
    """The names are remembered, and a client may think up any number of them."""
    checks = RecordChecks(Edges().context, CALLER)
    waits = [await waited_s(checks, f"t{number}") for number in range(1_002)]
    assert waits == pytest.approx([1.0] * 1_000 + [0.0] * 2, abs=0.1)


@virtual
async def test_a_topic_that_is_there_is_looked_up_once_for_a_message() -> None:
    edges = Edges()
    edges.add_topic("t", [[1]])
    checks = RecordChecks(edges.context, CALLER)
    assert checks.known("t") is None
    found = await checks.topic("t")
    assert checks.known("t") is found
    checks.begin()
    assert checks.known("t") is None
    assert await checks.topic("t") is found
    edges.remove_topic("t")
    checks.begin()
    assert isinstance(await checks.topic("t"), Refusal)
