"""DescribeClientQuotas, API key 48. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import Api, ApiKey, Struct


class ComponentData(Struct):
    __slots__ = ("entity_type", "match_type", "match")

    def __init__(
        self,
        entity_type: str = "",
        match_type: int = 0,
        match: str | None = None,
    ) -> None:
        self.entity_type = entity_type
        self.match_type = match_type
        self.match = match


class DescribeClientQuotasRequest(Struct):
    __slots__ = ("components", "strict")

    def __init__(self, components: list[ComponentData] | None = None, strict: bool = False) -> None:
        self.components: list[ComponentData] = [] if components is None else components
        self.strict = strict


class EntityData(Struct):
    __slots__ = ("entity_type", "entity_name")

    def __init__(self, entity_type: str = "", entity_name: str | None = None) -> None:
        self.entity_type = entity_type
        self.entity_name = entity_name


class ValueData(Struct):
    __slots__ = ("key", "value")

    def __init__(self, key: str = "", value: float = 0.0) -> None:
        self.key = key
        self.value = value


class EntryData(Struct):
    __slots__ = ("entity", "values")

    def __init__(
        self,
        entity: list[EntityData] | None = None,
        values: list[ValueData] | None = None,
    ) -> None:
        self.entity: list[EntityData] = [] if entity is None else entity
        self.values: list[ValueData] = [] if values is None else values


class DescribeClientQuotasResponse(Struct):
    __slots__ = ("throttle_time_ms", "error_code", "error_message", "entries")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        error_message: str | None = None,
        entries: list[EntryData] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.error_message = error_message
        self.entries = entries


API: Final = Api(
    ApiKey.DESCRIBE_CLIENT_QUOTAS,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    (ComponentData, EntityData, ValueData, EntryData),
    min_version=0,
    max_version=1,
    flexible_from=1,
)
