"""DeleteTopics, API key 20. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import ZERO_UUID, Api, ApiKey, Struct


class DeleteTopicState(Struct):
    __slots__ = ("name", "topic_id")

    def __init__(self, name: str | None = None, topic_id: bytes = ZERO_UUID) -> None:
        self.name = name
        self.topic_id = topic_id


class DeleteTopicsRequest(Struct):
    __slots__ = ("topics", "topic_names", "timeout_ms")

    def __init__(
        self,
        topics: list[DeleteTopicState] | None = None,
        topic_names: list[str] | None = None,
        timeout_ms: int = 0,
    ) -> None:
        self.topics: list[DeleteTopicState] = [] if topics is None else topics
        self.topic_names: list[str] = [] if topic_names is None else topic_names
        self.timeout_ms = timeout_ms


class DeletableTopicResult(Struct):
    __slots__ = ("name", "topic_id", "error_code", "error_message")

    def __init__(
        self,
        name: str | None = None,
        topic_id: bytes = ZERO_UUID,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.error_code = error_code
        self.error_message = error_message


class DeleteTopicsResponse(Struct):
    __slots__ = ("throttle_time_ms", "responses")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        responses: list[DeletableTopicResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.responses: list[DeletableTopicResult] = [] if responses is None else responses


API: Final = Api(
    ApiKey.DELETE_TOPICS,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    (DeleteTopicState, DeletableTopicResult),
    min_version=1,
    max_version=6,
    flexible_from=4,
)
