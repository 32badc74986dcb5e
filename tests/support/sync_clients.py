"""Synchronous clients of a cluster in memory, in real time, and signals at any point of a call."""

from __future__ import annotations

import _weakrefset
import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeVar

import stele
from stele.config import ClientWorld
from stele.ids import TopicPartition
from stele.real import RealClock
from stele.wire.batch import BatchBuilder, stamp
from stele.wire.kafka.messages import find_coordinator, offset_commit, offset_fetch
from tests.support.stele import FakeCluster, FakePartition

T = TypeVar("T")

_WEAK_SETS = _weakrefset.__file__


class InMemory:
    """A cluster that keeps records and the committed offsets of groups without members."""

    def __init__(self) -> None:
        clock = RealClock()
        self.cluster = FakeCluster(clock)
        self.cluster.stream_answers_take_s = 0.0
        self.world = ClientWorld(clock, self.cluster, random.Random(1))
        self.committed: dict[TopicPartition, int] = {}
        keep_offsets(self.cluster, self.committed)

    def consumer(self, **options: Any) -> stele.Consumer:
        options = {"auto_offset_reset": "earliest", "on_wait": lambda _: None, **options}
        return stele.Consumer(self.cluster.bootstrap_servers, world=self.world, **options)

    def producer(self, **options: Any) -> stele.Producer:
        options = {"on_wait": lambda _: None, "linger_ms": 0, **options}
        return stele.Producer(self.cluster.bootstrap_servers, world=self.world, **options)

    def fill(self, count: int, topic: str = "t", batch: int = 4) -> FakePartition:
        """A new topic of one partition with the records 0, 1, ..."""
        partition = self.cluster.create(topic).partitions[0]
        add_records(partition, count, batch)
        return partition


def add_records(partition: FakePartition, count: int, batch: int = 4) -> None:
    """The records 0, 1, ... in batches of so many."""
    for first in range(0, count, batch):
        builder = BatchBuilder()
        for number in range(first, min(first + batch, count)):
            builder.append(None, b"%d" % number, timestamp_ms=1)
        data = builder.build()
        stamp(data, 0, base_offset=partition.end_offset, leader_epoch=0)
        partition.batches.append(data)
        partition.end_offset += builder.record_count


def keep_offsets(cluster: FakeCluster, kept: dict[TopicPartition, int]) -> None:
    """Have broker 1 coordinate all groups, and keep the offsets that they commit."""

    def find(
        broker: int, request: find_coordinator.FindCoordinatorRequest
    ) -> find_coordinator.FindCoordinatorResponse:
        found = [find_coordinator.Coordinator(each, 1) for each in request.coordinator_keys]
        return find_coordinator.FindCoordinatorResponse(coordinators=found)

    def name_of(topic_id: bytes, name: str) -> str:
        names = {topic.topic_id: name for name, topic in cluster.topics.items()}
        return name or names[topic_id]

    def commit(
        broker: int, request: offset_commit.OffsetCommitRequest
    ) -> offset_commit.OffsetCommitResponse:
        answer = offset_commit.OffsetCommitResponse()
        for topic in request.topics:
            name = name_of(topic.topic_id, topic.name)
            told = offset_commit.OffsetCommitResponseTopic(topic.topic_id, topic.name)
            answer.topics.append(told)
            for each in topic.partitions:
                kept[TopicPartition(name, each.partition_index)] = each.committed_offset
                told.partitions.append(
                    offset_commit.OffsetCommitResponsePartition(each.partition_index)
                )
        return answer

    def committed(
        broker: int, request: offset_fetch.OffsetFetchRequest
    ) -> offset_fetch.OffsetFetchResponse:
        (group,) = request.groups
        told = offset_fetch.OffsetFetchResponseGroup(group.group_id)
        for topic in group.topics or ():
            name = name_of(topic.topic_id, topic.name)
            offsets = [
                offset_fetch.OffsetFetchResponsePartitions(
                    number, kept.get(TopicPartition(name, number), -1)
                )
                for number in topic.partition_indexes
            ]
            told.topics.append(
                offset_fetch.OffsetFetchResponseTopics(topic.name, topic.topic_id, offsets)
            )
        return offset_fetch.OffsetFetchResponse(groups=[told])

    cluster.answer(find_coordinator.API, find)
    cluster.answer(offset_commit.API, commit)
    cluster.answer(offset_fetch.API, committed)


class Signalled(BaseException):
    """What a signal handler raises."""


def signalled_at(point: int, call: Callable[[], T]) -> tuple[bool, T | None]:
    """Call, and raise Signalled at the point with this number. Python runs signal handlers where a
    function begins, and where a call of a C function has returned or waits. Returns whether the
    call got that far, and what it returned if it did not."""
    left = point

    def at_event(frame: FrameType, event: str, function: object) -> None:
        nonlocal left
        file = frame.f_code.co_filename
        if file == _WEAK_SETS or "site-packages" in file:
            return  # Python ignores what the collector's callbacks and weak references' raise
        waits = event == "c_call" and getattr(function, "__name__", "") in ("get", "acquire")
        if event not in ("call", "c_return") and not waits:
            return
        left -= 1
        if left < 0:
            sys.setprofile(None)
            raise Signalled

    sys.setprofile(at_event)
    try:
        result = call()
    except Signalled:
        return True, None
    finally:
        sys.setprofile(None)
    return False, result
