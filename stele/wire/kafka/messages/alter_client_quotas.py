"""AlterClientQuotas, API key 49. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import Api, ApiKey, Struct


class EntityData(Struct):
    __slots__ = ("entity_type", "entity_name")

    def __init__(self, entity_type: str = "", entity_name: str | None = None) -> None:
        self.entity_type = entity_type
        self.entity_name = entity_name


class OpData(Struct):
    __slots__ = ("key", "value", "remove")

    def __init__(self, key: str = "", value: float = 0.0, remove: bool = False) -> None:
        self.key = key
        self.value = value
        self.remove = remove


class EntryData(Struct):
    __slots__ = ("entity", "ops")

    def __init__(
        self,
        entity: list[EntityData] | None = None,
        ops: list[OpData] | None = None,
    ) -> None:
        self.entity: list[EntityData] = [] if entity is None else entity
        self.ops: list[OpData] = [] if ops is None else ops


class AlterClientQuotasRequest(Struct):
    __slots__ = ("entries", "validate_only")

    def __init__(self, entries: list[EntryData] | None = None, validate_only: bool = False) -> None:
        self.entries: list[EntryData] = [] if entries is None else entries
        self.validate_only = validate_only


class AlteredQuota(Struct):
    __slots__ = ("error_code", "error_message", "entity")

    def __init__(
        self,
        error_code: int = 0,
        error_message: str | None = None,
        entity: list[EntityData] | None = None,
    ) -> None:
        self.error_code = error_code
        self.error_message = error_message
        self.entity: list[EntityData] = [] if entity is None else entity


class AlterClientQuotasResponse(Struct):
    __slots__ = ("throttle_time_ms", "entries")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        entries: list[AlteredQuota] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.entries: list[AlteredQuota] = [] if entries is None else entries


API: Final = Api(
    ApiKey.ALTER_CLIENT_QUOTAS,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    (EntityData, OpData, EntryData, AlteredQuota),
    min_version=0,
    max_version=1,
    flexible_from=1,
)
