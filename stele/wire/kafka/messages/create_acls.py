"""CreateAcls, API key 30. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import Api, ApiKey, Struct


class AclCreation(Struct):
    __slots__ = (
        "resource_type",
        "resource_name",
        "resource_pattern_type",
        "principal",
        "host",
        "operation",
        "permission_type",
    )

    def __init__(
        self,
        resource_type: int = 0,
        resource_name: str = "",
        resource_pattern_type: int = 3,
        principal: str = "",
        host: str = "",
        operation: int = 0,
        permission_type: int = 0,
    ) -> None:
        self.resource_type = resource_type
        self.resource_name = resource_name
        self.resource_pattern_type = resource_pattern_type
        self.principal = principal
        self.host = host
        self.operation = operation
        self.permission_type = permission_type


class CreateAclsRequest(Struct):
    __slots__ = ("creations",)

    def __init__(self, creations: list[AclCreation] | None = None) -> None:
        self.creations: list[AclCreation] = [] if creations is None else creations


class AclCreationResult(Struct):
    __slots__ = ("error_code", "error_message")

    def __init__(self, error_code: int = 0, error_message: str | None = None) -> None:
        self.error_code = error_code
        self.error_message = error_message


class CreateAclsResponse(Struct):
    __slots__ = ("throttle_time_ms", "results")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        results: list[AclCreationResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[AclCreationResult] = [] if results is None else results


API: Final = Api(
    ApiKey.CREATE_ACLS,
    CreateAclsRequest,
    CreateAclsResponse,
    (AclCreation, AclCreationResult),
    min_version=1,
    max_version=3,
    flexible_from=2,
)
