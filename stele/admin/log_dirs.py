"""The log directories of brokers, and the moves of replicas between them (KIP-113)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from stele.admin.items import all_or_raise
from stele.admin.requests import AdminRequests
from stele.cluster.messages import error_code
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.wire.v1 import admin_pb2 as pb

AnswerT = TypeVar("AnswerT")

ReplicaPlace = tuple[str, int, int]
"""(topic, partition, broker id): one replica."""


@dataclass(frozen=True, slots=True)
class LogDirReplica:
    """One replica in a log directory."""

    partition: TopicPartition
    size_bytes: int  # -1: not known, because the directory is offline; so is the lag
    offset_lag: int
    """The records below the high watermark that it lacks. Of a copy: those of its log that it
    lacks."""
    is_future: bool  # a copy, to which the replica is being moved


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """One log directory of a broker."""

    broker_id: int
    path: str
    is_offline: bool
    total_bytes: int | None  # of its file system; None: not known
    usable_bytes: int | None
    replicas: tuple[LogDirReplica, ...]  # by topic and partition


class LogDirAdmin:
    """The part of ``stele.admin.admin.Admin`` for log directories."""

    def __init__(self, requests: AdminRequests) -> None:
        self._requests = requests

    async def describe(
        self, broker_ids: Sequence[int], partitions: Sequence[tuple[str, int]]
    ) -> list[LogDirDescription]:
        request = pb.DescribeLogDirsRequest()
        for topic, partition in partitions:
            request.partitions.add(topic=topic, partition=partition)
        found = []
        for broker_id in sorted(set(broker_ids or await self._requests.brokers())):
            answer = await self._requests.ask(
                "DescribeLogDirs",
                request,
                pb.DescribeLogDirsResponse.FromString,
                broker_id=broker_id,
            )
            found += [
                _directory(broker_id, each)
                for each in sorted(answer.directories, key=lambda each: each.path)
            ]
        return found

    async def alter(self, wanted: Mapping[ReplicaPlace, str]) -> set[ReplicaPlace]:
        awaited: set[ReplicaPlace] = set()
        accepted: list[ReplicaPlace] = []
        failed: dict[str, ApiError] = {}
        for broker_id in sorted({place[2] for place in wanted}):
            request = pb.AlterReplicaLogDirsRequest()
            for (topic, partition, owner), path in wanted.items():
                if owner == broker_id:
                    request.replicas.add(topic=topic, partition=partition, path=path)
            answer = await self._requests.ask(
                "AlterReplicaLogDirs",
                request,
                pb.AlterReplicaLogDirsResponse.FromString,
                broker_id=broker_id,
            )
            for each in answer.replicas:
                place = (each.topic, each.partition, broker_id)
                code = error_code(each.error)
                if code not in (ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE):
                    what = f"{each.topic}-{each.partition} on broker {broker_id}"
                    message = each.message or explain(code)
                    failed[what] = ApiError(code, f"{what} to {wanted[place]}: {message}")
                    continue
                accepted.append(place)
                if code is ErrorCode.REPLICA_NOT_AVAILABLE:
                    awaited.add(place)
        all_or_raise(failed, accepted)
        return awaited


def _directory(
    broker_id: int, directory: pb.DescribeLogDirsResponse.Directory
) -> LogDirDescription:
    return LogDirDescription(
        broker_id,
        directory.path,
        directory.error != ErrorCode.NONE,
        _known(directory.total_bytes),
        _known(directory.usable_bytes),
        tuple(
            sorted(
                (
                    LogDirReplica(
                        TopicPartition(each.topic, each.partition),
                        each.size_bytes,
                        each.offset_lag,
                        each.is_future,
                    )
                    for each in directory.replicas
                ),
                key=lambda each: (each.partition, each.is_future),
            )
        ),
    )


def _known(size_bytes: int) -> int | None:
    return size_bytes if size_bytes >= 0 else None
