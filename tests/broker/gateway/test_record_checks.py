"""What a leader would refuse a batch for is refused for its one record."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.gateway.record_checks import Writable, fault_of
from metadata.topic_config import TopicConfig
from metadata.topics import Topic
from stele.errors import ErrorCode

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


def test_records_without_a_key_go_to_partitions_with_a_leader_if_there_are_any() -> None:
    assert writable(-1, 0, 2).available == [1, 2]
    assert writable(-1, -1).available == [0, 1]
