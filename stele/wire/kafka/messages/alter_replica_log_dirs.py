"""AlterReplicaLogDirs, API key 34. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import Api, ApiKey, Struct


class AlterReplicaLogDirTopic(Struct):
    __slots__ = ("name", "partitions")

    def __init__(self, name: str = "", partitions: list[int] | None = None) -> None:
        self.name = name
        self.partitions: list[int] = [] if partitions is None else partitions


class AlterReplicaLogDir(Struct):
    __slots__ = ("path", "topics")

    def __init__(self, path: str = "", topics: list[AlterReplicaLogDirTopic] | None = None) -> None:
        self.path = path
        self.topics: list[AlterReplicaLogDirTopic] = [] if topics is None else topics


class AlterReplicaLogDirsRequest(Struct):
    __slots__ = ("dirs",)

    def __init__(self, dirs: list[AlterReplicaLogDir] | None = None) -> None:
        self.dirs: list[AlterReplicaLogDir] = [] if dirs is None else dirs


class AlterReplicaLogDirPartitionResult(Struct):
    __slots__ = ("partition_index", "error_code")

    def __init__(self, partition_index: int = 0, error_code: int = 0) -> None:
        self.partition_index = partition_index
        self.error_code = error_code


class AlterReplicaLogDirTopicResult(Struct):
    __slots__ = ("topic_name", "partitions")

    def __init__(
        self,
        topic_name: str = "",
        partitions: list[AlterReplicaLogDirPartitionResult] | None = None,
    ) -> None:
        self.topic_name = topic_name
        self.partitions: list[AlterReplicaLogDirPartitionResult] = (
            [] if partitions is None else partitions
        )


class AlterReplicaLogDirsResponse(Struct):
    __slots__ = ("throttle_time_ms", "results")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        results: list[AlterReplicaLogDirTopicResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[AlterReplicaLogDirTopicResult] = [] if results is None else results


API: Final = Api(
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    (
        AlterReplicaLogDirTopic,
        AlterReplicaLogDir,
        AlterReplicaLogDirPartitionResult,
        AlterReplicaLogDirTopicResult,
    ),
    min_version=1,
    max_version=2,
    flexible_from=2,
)
