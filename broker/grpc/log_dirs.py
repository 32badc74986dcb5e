"""The log directories of this broker in ``stele.v1.Admin`` (KIP-113)."""

from __future__ import annotations

from broker.replication.descriptions import DirectoryDescription
from broker.service.context import BrokerContext
from broker.service.directories import alter_directories, describe_directories
from runtime.authorization.caller import Caller
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.ids import TopicPartition
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import in_slices


class LogDirs:
    """Describes the directories, and moves replicas between them."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    async def describe(
        self, caller: Caller, request: pb.DescribeLogDirsRequest
    ) -> pb.DescribeLogDirsResponse:
        wanted: set[tuple[str, int]] = set()
        await in_slices(lambda each: wanted.add((each.topic, each.partition)), request.partitions)
        try:
            directories = await describe_directories(self._context, caller, wanted or None)
        except ApiError as error:
            return pb.DescribeLogDirsResponse(error=error.code, message=error.message)
        return pb.DescribeLogDirsResponse(directories=[_directory(each) for each in directories])

    async def alter(
        self, caller: Caller, request: pb.AlterReplicaLogDirsRequest
    ) -> pb.AlterReplicaLogDirsResponse:
        """If a partition is named twice, its last directory counts."""
        wanted = dict(
            await in_slices(
                lambda each: (TopicPartition(each.topic, each.partition), each.path),
                request.replicas,
            )
        )
        errors = await alter_directories(self._context, caller, wanted)
        answer = pb.AlterReplicaLogDirsResponse()

        def tell(told: tuple[TopicPartition, ErrorCode]) -> None:
            name, error = told
            answer.replicas.add(
                topic=name.topic,
                partition=name.partition,
                error=error,
                message=explain(error) if error else "",
            )

        await in_slices(tell, errors.items())
        return answer


def _directory(directory: DirectoryDescription) -> pb.DescribeLogDirsResponse.Directory:
    return pb.DescribeLogDirsResponse.Directory(
        path=directory.path,
        error=directory.error,
        message=explain(directory.error) if directory.error else "",
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
        replicas=[
            pb.DescribeLogDirsResponse.Replica(
                topic=each.topic,
                partition=each.partition,
                size_bytes=each.size_bytes,
                offset_lag=each.offset_lag,
                is_future=each.is_future,
            )
            for each in directory.replicas
        ],
    )
