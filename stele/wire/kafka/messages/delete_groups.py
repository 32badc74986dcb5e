"""DeleteGroups, API key 42. Generated: scripts/generate-kafka."""

from __future__ import annotations

from typing import Final

from stele.wire.kafka.api import Api, ApiKey, Struct


class DeleteGroupsRequest(Struct):
    __slots__ = ("groups_names",)

    def __init__(self, groups_names: list[str] | None = None) -> None:
        self.groups_names: list[str] = [] if groups_names is None else groups_names


class DeletableGroupResult(Struct):
    __slots__ = ("group_id", "error_code")

    def __init__(self, group_id: str = "", error_code: int = 0) -> None:
        self.group_id = group_id
        self.error_code = error_code


class DeleteGroupsResponse(Struct):
    __slots__ = ("throttle_time_ms", "results")

    def __init__(
        self,
        throttle_time_ms: int = 0,
        results: list[DeletableGroupResult] | None = None,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.results: list[DeletableGroupResult] = [] if results is None else results


API: Final = Api(
    ApiKey.DELETE_GROUPS,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    (DeletableGroupResult,),
    min_version=0,
    max_version=2,
    flexible_from=2,
)
