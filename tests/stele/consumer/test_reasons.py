"""Why a partition gives no records: one line for each state."""

from __future__ import annotations

from typing import Any

import pytest

from stele.cluster.leader_requests import PartitionRetry
from stele.cluster.messages import Leader
from stele.cluster.view import ClusterView
from stele.config import ConsumerConfig
from stele.consumer.positions import EARLIEST, PartitionPosition
from stele.consumer.reasons import Surroundings, why_idle
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from tests.support.stele import Stage, on_stage

NAME = TopicPartition("t", 0)
NOW = 100.0
LEADER = Leader(2, 1)
CALM = Surroundings(LEADER, ErrorCode.NONE, NOW, NOW, "", reads_committed=False, is_full=False)


def position(stage: Stage, **values: Any) -> PartitionPosition:
    view = ClusterView(ConsumerConfig(), stage.world)
    made = PartitionPosition(NAME, PartitionRetry(NAME, view))
    made.seek(7)
    for name, value in values.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize(
    ("values", "around", "text"),
    [
        ({}, {}, "about to be fetched from broker 2"),
        (
            {"fetch_until": 7},
            {},
            "read up to offset 7, the end that fetch_until() has set",
        ),
        (
            {},
            {"broker_ready_at": 103.5, "throttled_until": 103.5},
            (
                "broker 2 reads nothing from this client for 3.5 s, because it is above its quota "
                "of consumer_byte_rate or request_percentage (stele quotas why USER --client-id "
                "ID says which)"
            ),
        ),
        (
            {
                "in_flight": True,
                "last_stable_offset": 7,
                "high_watermark": 9,
                "sent_to": 2,
                "sent_at": 99.0,
            },
            {"reads_committed": True},
            (
                "at the last stable offset, 7: an open transaction holds back what is there up to "
                "9; broker 2 was asked 1.0 s ago"
            ),
        ),
        (
            {
                "in_flight": True,
                "last_stable_offset": 7,
                "high_watermark": 9,
                "sent_to": 2,
                "sent_at": 99.0,
            },
            {},
            "offset 7: broker 2 was asked 1.0 s ago, and has not answered",
        ),
        (
            {
                "in_flight": True,
                "last_stable_offset": 8,
                "high_watermark": 9,
                "sent_to": 2,
                "sent_at": 99.0,
            },
            {"reads_committed": True},
            "offset 7: broker 2 was asked 1.0 s ago, and has not answered",
        ),
        ({"paused": True}, {}, "paused: resume() reads on"),
        (
            {"error": ApiError(ErrorCode.CORRUPT_MESSAGE, "so")},
            {},
            "stopped, and poll raises it: CORRUPT_MESSAGE: so",
        ),
        (
            {"awaits_committed": True, "offset": None},
            {"committed_waits_for": "a broker"},
            "the group's committed offset is looked up; last: a broker",
        ),
        ({"offset": None, "reset_to": EARLIEST}, {}, "its earliest offset is looked up"),
        ({"offset": None}, {}, "its latest offset is looked up"),
        (
            {"offset": None},
            {"leader": None, "topic_error": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
            "its leader is not known (UNKNOWN_TOPIC_OR_PARTITION)",
        ),
        (
            {"in_flight": True, "sent_to": 2, "sent_at": NOW - 3, "high_watermark": 9},
            {},
            "offset 7: broker 2 was asked 3.0 s ago, and has not answered",
        ),
        (
            {"in_flight": True, "sent_to": 2, "sent_at": NOW - 3, "high_watermark": 7},
            {},
            "at the end, offset 7: broker 2 was asked 3.0 s ago for new records",
        ),
        ({}, {"leader": None}, "its leader is not known"),
        (
            {},
            {"is_full": True},
            "not fetched: prefetch_bytes are fetched of other partitions, and not polled",
        ),
        ({}, {"broker_ready_at": NOW + 2}, "broker 2 gets no requests for 2.0 s"),
    ],
)
@on_stage
async def test_one_line(
    stage: Stage, values: dict[str, Any], around: dict[str, Any], text: str
) -> None:
    assert why_idle(position(stage, **values), CALM._replace(**around), NOW) == text


@on_stage
async def test_after_a_failure(stage: Stage) -> None:
    failed = position(stage)
    failed.retry.postpone("broker 2 answers so", NOW)
    failed.retry.failed_leader = LEADER
    text = why_idle(failed, CALM, NOW)
    assert text.startswith("asked again in 0.")
    assert text.endswith("after: broker 2 answers so")
    elsewhere = CALM._replace(leader=Leader(3, 2))
    assert why_idle(failed, elsewhere, NOW) == (
        "about to be fetched from broker 3; last: broker 2 answers so"
    )


@on_stage
async def test_a_consumer_says_it_of_each_partition(stage: Stage) -> None:
    stage.cluster.create("t", 2)
    async with stage.consumer() as consumer, stage.producer() as producer:
        await producer.send("t", b"v", partition=0)
        await producer.flush()
        consumer.assign([("t", 0), ("t", 1)])
        while not (records := await consumer.poll(timeout_ms=100)):
            pass
        assert len(records) == 1
        await consumer.poll(timeout_ms=100)
        consumer.pause(("t", 1))
        found = consumer.why()
        assert list(found) == consumer.assignment()
        assert found["t", 0].startswith("at the end, offset 1: broker 1 was asked")  # type: ignore[index]
        assert found["t", 1] == "paused: resume() reads on"  # type: ignore[index]
        assert consumer.why(("t", 5)) == {("t", 5): "not assigned to this consumer"}
