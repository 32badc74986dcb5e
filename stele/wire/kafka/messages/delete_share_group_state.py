"""DeleteShareGroupState, API key 86. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import ZERO_UUID, Api, ApiKey, Struct


class PartitionData(Struct):
    __slots__ = ("partition",)

    def __init__(self, partition: int = 0) -> None:
        self.partition = partition


class DeleteStateData(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionData] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionData] = [] if partitions is None else partitions


class DeleteShareGroupStateRequest(Struct):
    __slots__ = ("group_id", "topics")

    def __init__(self, group_id: str = "", topics: list[DeleteStateData] | None = None) -> None:
        self.group_id = group_id
        self.topics: list[DeleteStateData] = [] if topics is None else topics


class PartitionResult(Struct):
    __slots__ = ("partition", "error_code", "error_message")

    def __init__(
        self,
        partition: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.partition = partition
        self.error_code = error_code
        self.error_message = error_message


class DeleteStateResult(Struct):
    __slots__ = ("topic_id", "partitions")

    def __init__(
        self,
        topic_id: bytes = ZERO_UUID,
        partitions: list[PartitionResult] | None = None,
    ) -> None:
        self.topic_id = topic_id
        self.partitions: list[PartitionResult] = [] if partitions is None else partitions


class DeleteShareGroupStateResponse(Struct):
    __slots__ = ("results",)

    def __init__(self, results: list[DeleteStateResult] | None = None) -> None:
        self.results: list[DeleteStateResult] = [] if results is None else results


API: Final = Api(
    ApiKey.DELETE_SHARE_GROUP_STATE,
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    (PartitionData, DeleteStateData, PartitionResult, DeleteStateResult),
    min_version=0,
    max_version=0,
    flexible_from=0,
)
