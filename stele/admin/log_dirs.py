"""The log directories of brokers, and the moves of replicas between them (KIP-113)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from stele.admin.grpc_calls import Message, call
from stele.admin.items import all_or_raise
from stele.cluster.messages import error_code
from stele.cluster.view import ClusterView
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

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    async def describe(
        self, broker_ids: Sequence[int], partitions: Sequence[tuple[str, int]]
    ) -> list[LogDirDescription]:
        request = pb.DescribeLogDirsRequest()
        for topic, partition in partitions:
            request.partitions.add(topic=topic, partition=partition)
        found = []
        for broker_id in sorted(set(broker_ids or await self._in_service())):
            answer = await self._ask(
                broker_id, "DescribeLogDirs", request, pb.DescribeLogDirsResponse.FromString
            )
            if answer.error:
                code = error_code(answer.error)
                raise ApiError(code, f"broker {broker_id}: {answer.message or explain(code)}")
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
            answer = await self._ask(
                broker_id, "AlterReplicaLogDirs", request, pb.AlterReplicaLogDirsResponse.FromString
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

    async def _in_service(self) -> list[int]:
        async def attempt() -> list[int]:
            await self._view.refresh()
            return self._view.broker_ids()

        return await self._keep_asking(attempt, "finding the brokers")

    async def _ask(
        self,
        broker_id: int,
        method: str,
        request: Message,
        parse: Callable[[bytes], AnswerT],
    ) -> AnswerT:
        async def attempt() -> AnswerT:
            await self._view.refresh()
            if broker_id not in self._view.broker_ids():
                raise ApiError(
                    ErrorCode.BROKER_NOT_AVAILABLE, f"there is no broker {broker_id} in service"
                )
            return await self._view.ask(
                broker_id,
                call(f"/stele.v1.Admin/{method}", request, parse),
                timeout_s=self._view.attempt_s,
            )

        return await self._keep_asking(attempt, f"{method} of broker {broker_id}")

    async def _keep_asking(self, attempt: Callable[[], Awaitable[AnswerT]], what: str) -> AnswerT:
        timeout_s = self._view.config.default_api_timeout_ms / 1000
        return await self._view.keep_asking(attempt, what, timeout_s)


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
