"""ApiVersions (18), versions 0-4: which APIs and versions this broker serves, and which features.

Deviations: there is ``stele.metadata.version``, with Stele's own levels, in the place of Kafka's
``metadata.version``: its levels are releases of Kafka.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from broker.api.handler import RequestContext, Served
from metadata.features import KAFKA_NAMES, SUPPORTED
from metadata.image import MetadataImage
from stele.errors import ErrorCode
from stele.wire.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

# KIP-511: the allowed characters of a client's software name and version.
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.\-]*[a-zA-Z0-9])?")

_LEVEL_0_FROM = 4
"""Older clients cannot read a supported feature that begins at level 0 (KAFKA-17492)."""


def respond(
    served: Iterable[Served],
    request_context: RequestContext,
    request: ApiVersionsRequest,
    image: MetadataImage,
) -> ApiVersionsResponse:
    """The answer; before the first metadata no feature is finalized."""
    if request_context.version >= 3 and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(
        api_keys=advertised(served),
        supported_features=[
            SupportedFeatureKey(
                KAFKA_NAMES.get(each.name, each.name), each.min_level, each.max_level
            )
            for _, each in sorted(SUPPORTED.items())
            if each.min_level or request_context.version >= _LEVEL_0_FROM
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(
                KAFKA_NAMES.get(name, name), max_version_level=level, min_version_level=level
            )
            for name, level in sorted(image.features.items())
        ],
    )


def advertised(served: Iterable[Served]) -> list[ApiVersion]:
    return [ApiVersion(each.api.key, *each.versions) for each in served]


def refuse(
    request_context: RequestContext, request: ApiVersionsRequest, error: ErrorCode
) -> ApiVersionsResponse:
    return ApiVersionsResponse(error_code=error)
