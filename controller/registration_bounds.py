"""The bounds of a registration, which stands in every image and every snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from stele.errors import ApiError, ErrorCode
from stele.wire.v1.controller_pb2 import RegisterBrokerRequest

ENDPOINTS_MAX: Final = 100
LOG_DIRECTORIES_MAX: Final = 1000
FEATURES_MAX: Final = 1000
TEXT_MAX: Final = 1000
"""Bytes of each text, such as a host, a rack or the name of a listener."""


def check_bounds(request: RegisterBrokerRequest) -> None:
    """Raises ApiError INVALID_REGISTRATION, which names the bound and the setting."""
    for count, most, what in (
        (len(request.endpoints), ENDPOINTS_MAX, "endpoints (advertised.listeners)"),
        (len(request.log_directories), LOG_DIRECTORIES_MAX, "log directories (log.dirs)"),
        (len(request.features), FEATURES_MAX, "features"),
    ):
        if count > most:
            raise _refused(request, f"has {count} {what}: {most} are the most")
    for what, text in _texts(request):
        size = len(text if isinstance(text, bytes) else text.encode())
        if size > TEXT_MAX:
            raise _refused(request, f"has a {what} of {size} bytes: {TEXT_MAX} are the most")


def _texts(request: RegisterBrokerRequest) -> Iterator[tuple[str, str | bytes]]:
    yield "incarnation id", request.incarnation_id
    yield "rack (broker.rack)", request.rack
    yield "listener name (inter.broker.listener.name)", request.inter_broker_listener
    for endpoint in request.endpoints:
        yield "listener name (advertised.listeners)", endpoint.listener
        yield "host (advertised.listeners)", endpoint.host
        yield "protocol (advertised.listeners)", endpoint.protocol
    for directory in request.log_directories:
        yield "log directory id", directory
    for feature in request.features:
        yield "feature name", feature.name


def _refused(request: RegisterBrokerRequest, fault: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REGISTRATION, f"broker {request.broker_id} {fault}")
