"""FindCoordinator, API key 10. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import Api, ApiKey, Struct


class FindCoordinatorRequest(Struct):
    __slots__ = ("key", "key_type", "coordinator_keys")

    def __init__(
        self,
        key: str = "",
        key_type: int = 0,
        coordinator_keys: list[str] | None = None,
    ) -> None:
        self.key = key
        self.key_type = key_type
        self.coordinator_keys: list[str] = [] if coordinator_keys is None else coordinator_keys


class Coordinator(Struct):
    __slots__ = ("key", "node_id", "host", "port", "error_code", "error_message")

    def __init__(
        self,
        key: str = "",
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
    ) -> None:
        self.key = key
        self.node_id = node_id
        self.host = host
        self.port = port
        self.error_code = error_code
        self.error_message = error_message


class FindCoordinatorResponse(Struct):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "error_message",
        "node_id",
        "host",
        "port",
        "coordinators",
    )

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        node_id: int = 0,
        host: str = "",
        port: int = 0,
        coordinators: list[Coordinator] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.node_id = node_id
        self.host = host
        self.port = port
        self.coordinators: list[Coordinator] = [] if coordinators is None else coordinators


API: Final = Api(
    ApiKey.FIND_COORDINATOR,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    (Coordinator,),
    min_version=0,
    max_version=6,
    flexible_from=3,
)
