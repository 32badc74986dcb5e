"""ApiVersions (18), versions 0-4: which APIs and versions this broker serves.

Deviations: no features are told, neither supported nor finalized: with ``transaction.version``
clients would add partitions to transactions implicitly, and there are no transactions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from broker.api.call import Call, Served
from stele.errors import ErrorCode
from stele.wire.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)

# KIP-511: what may name a client's software and its version.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.\-]*[a-zA-Z0-9])?")


def respond(
    served: Iterable[Served], call: Call, request: ApiVersionsRequest
) -> ApiVersionsResponse:
    """The answer; it needs no broker behind it."""
    if call.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(api_keys=advertised(served))


def advertised(served: Iterable[Served]) -> list[ApiVersion]:
    return [ApiVersion(each.api.key, *each.versions) for each in served]


def refuse(call: Call, request: ApiVersionsRequest, error: ErrorCode) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error)
