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
from stele.wire.v1 import groups_pb2 as pb
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

    def find(broker: int, request: bytes) -> pb.FindCoordinatorResponse:
        answer = pb.FindCoordinatorResponse()
        for group in pb.FindCoordinatorRequest.FromString(request).groups:
            answer.coordinators.add(group=group, broker_id=1, grpc_host="127.0.0.1", grpc_port=9101)
        return answer

    def commit(broker: int, request: bytes) -> pb.OffsetCommitResponse:
        answer = pb.OffsetCommitResponse()
        for each in pb.OffsetCommitRequest.FromString(request).partitions:
            kept[TopicPartition(each.topic, each.partition)] = each.offset
            answer.partitions.add(topic=each.topic, partition=each.partition)
        return answer

    def committed(broker: int, request: bytes) -> pb.OffsetFetchResponse:
        answer = pb.OffsetFetchResponse()
        for topic in pb.OffsetFetchRequest.FromString(request).topics:
            for number in topic.partitions:
                offset = kept.get(TopicPartition(topic.topic, number), -1)
                answer.partitions.add(topic=topic.topic, partition=number, offset=offset)
        return answer

    cluster.others.update(FindCoordinator=find, OffsetCommit=commit, OffsetFetch=committed)


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
