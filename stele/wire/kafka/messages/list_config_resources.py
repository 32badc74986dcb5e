"""ListConfigResources, API key 74. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import Api, ApiKey, Struct


class ListConfigResourcesRequest(Struct):
    __slots__ = ("resource_types",)

    def __init__(self, resource_types: list[int] | None = None) -> None:
        self.resource_types: list[int] = [] if resource_types is None else resource_types


class ConfigResource(Struct):
    __slots__ = ("resource_name", "resource_type")

    def __init__(self, resource_name: str = "", resource_type: int = 16) -> None:
        self.resource_name = resource_name
        self.resource_type = resource_type


class ListConfigResourcesResponse(Struct):
    __slots__ = ("throttle_time_ms", "error_code", "config_resources")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        config_resources: list[ConfigResource] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.config_resources: list[ConfigResource] = (
            [] if config_resources is None else config_resources
        )


API: Final = Api(
    ApiKey.LIST_CONFIG_RESOURCES,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    (ConfigResource,),
    min_version=0,
    max_version=1,
    flexible_from=0,
)
