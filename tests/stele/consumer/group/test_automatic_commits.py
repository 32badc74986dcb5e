"""When a consumer commits by itself, and what, with a coordinator of prepared answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from stele.consumer.consumer import Consumer
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.wire.kafka.messages import offset_commit
from tests.stele.consumer.group.test_coordinator_answers import coordinating
from tests.stele.consumer.test_truncation import append
from tests.support.stele import Stage, on_stage

T0 = TopicPartition("t", 0)


class Commits:
    """The commits that the coordinator has received: when, and which offset."""

    def __init__(self, stage: Stage, records: int = 9) -> None:
        self.made: list[tuple[float, int]] = []
        self.error = ErrorCode.NONE
        self._began_s = stage.cluster.clock.monotonic()
        self._clock = stage.cluster.clock
        append(stage.cluster.create("t").partitions[0], *[b"v"] * records)
        coordinating(stage)
        stage.cluster.answer(offset_commit.API, self._commit)

    def _commit(self, broker: int, request: Any) -> Any:
        (topic,) = request.topics
        (part,) = topic.partitions
        at_s = round(self._clock.monotonic() - self._began_s, 1)
        self.made.append((at_s, part.committed_offset))
        told = offset_commit.OffsetCommitResponsePartition(0, self.error)
        answered = offset_commit.OffsetCommitResponseTopic(topic.topic_id, topic.name, [told])
        return offset_commit.OffsetCommitResponse(topics=[answered])


async def polled_for(consumer: Consumer, seconds: int, *, records: bool = True) -> None:
    """Poll one record each second."""
    for _ in range(seconds):
        found = await consumer.poll(1, timeout_ms=0)
        assert bool(found) == records
        await asyncio.sleep(1)


async def reading(consumer: Consumer) -> None:
    consumer.assign([T0])
    consumer.seek("t", 0, 0)
    await consumer.position("t", 0)
    await asyncio.sleep(0.5)  # the records are fetched


@on_stage
async def test_at_an_interval_it_commits_what_earlier_polls_returned(stage: Stage) -> None:
    commits = Commits(stage)
    async with stage.consumer(group_id="g") as consumer:
        await reading(consumer)
        await polled_for(consumer, 9)
        assert commits.made == [(5.5, 5)], "the poll at that time returns the sixth record"
        await polled_for(consumer, 10, records=False)
        assert commits.made == [(5.5, 5), (10.5, 9)], "without news it commits nothing"
        await consumer.commit()
        assert len(commits.made) == 3
    assert len(commits.made) == 3, "it is known already"


@on_stage
async def test_a_refusal_is_raised_by_the_next_poll_and_the_next_one_makes_up_for_it(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    commits = Commits(stage)
    commits.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    async with stage.consumer(group_id="g") as consumer:
        await reading(consumer)
        await polled_for(consumer, 6)
        with pytest.raises(ApiError, match="TOPIC_AUTHORIZATION_FAILED: the offset of t-0 was not"):
            await consumer.poll(1, timeout_ms=0)
        await polled_for(consumer, 1)
        assert commits.made == [(5.5, 5)]
        assert "offsets were not committed: " in caplog.text
        assert "TOPIC_AUTHORIZATION_FAILED" in caplog.text
        commits.error = ErrorCode.NONE
        await consumer.poll(timeout_ms=0)
        await polled_for(consumer, 6, records=False)
        assert commits.made[1:] == [(10.5, 9)]
        caplog.clear()
    assert not caplog.text


@on_stage
async def test_there_is_one_at_a_time(stage: Stage) -> None:
    """A coordinator that loads answers the first one late."""
    commits = Commits(stage)
    commits.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    options = {"retry_backoff_ms": 3_000, "retry_backoff_max_ms": 3_000}
    async with stage.consumer(group_id="g", auto_commit_interval_ms=1_000, **options) as consumer:
        await reading(consumer)
        await polled_for(consumer, 8)
        assert {offset for _, offset in commits.made} == {1}
        commits.error = ErrorCode.NONE
        await asyncio.sleep(4)
        await polled_for(consumer, 1)
    assert [offset for _, offset in commits.made][-2:] == [8, 9]


@on_stage
async def test_at_its_end_it_commits_what_was_returned(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    commits = Commits(stage)
    consumer = stage.consumer(group_id="g")
    await reading(consumer)
    await polled_for(consumer, 2)
    commits.error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    await consumer.close()
    assert [offset for _, offset in commits.made] == [2]
    assert "offsets were not committed: " in caplog.text


@on_stage
async def test_without_the_option_it_commits_nothing(stage: Stage) -> None:
    commits = Commits(stage)
    async with stage.consumer(group_id="g", enable_auto_commit=False) as consumer:
        await reading(consumer)
        await polled_for(consumer, 9)
    assert not commits.made
