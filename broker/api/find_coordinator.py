"""FindCoordinator (10), versions 0-6: which broker coordinates a group or a transactional id.

The first client that asks has the internal topic made. Deviations: while a cluster has no share
groups, their keys are refused with an error that ends the matter, because clients ask for ever
after COORDINATOR_NOT_AVAILABLE.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.context import BrokerContext
from broker.service.coordinators import GROUPS, SHARES, TRANSACTIONS, Coordinators
from broker.service.share_groups import check_version
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import find_coordinator as messages
from stele.wire.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from storage.turns import SLICE_STEPS, Slices, in_slices

_GROUP, _TRANSACTION, _SHARE_GROUP = 0, 1, 2
_SEVERAL_FROM = 4

_KINDS = {_GROUP: GROUPS, _TRANSACTION: TRANSACTIONS}


async def handle(
    context: BrokerContext, request_context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    version = request_context.version
    keys = request.coordinator_keys if version >= _SEVERAL_FROM else [request.key]
    # Version 0 knows groups only.
    key_type = request.key_type if version >= 1 else _GROUP
    coordinators = _coordinators(context, request_context, key_type)
    slices = Slices(SLICE_STEPS)
    found = []
    for key in keys:
        found.append(await _coordinator(coordinators, key))
        await slices.step()
    return _response(request_context, found)


def _coordinators(
    context: BrokerContext, request_context: RequestContext, key_type: int
) -> Coordinators | ApiError:
    kind = _KINDS.get(key_type)
    if kind is not None:
        return Coordinators(context, request_context.caller, kind)
    if key_type == _SHARE_GROUP:
        try:
            check_version(context)
        except ApiError as error:
            return error
        return Coordinators(context, request_context.caller, SHARES)
    return ApiError(ErrorCode.INVALID_REQUEST, f"key type {key_type}")


async def _coordinator(coordinators: Coordinators | ApiError, key: str) -> Coordinator:
    try:
        if isinstance(coordinators, ApiError):
            raise coordinators
        if coordinators.kind is SHARES and key.count(":") < 2:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"{key} names no share partition: group:topic id:number"
            )
        registration, endpoint = await coordinators.of(key)
    except ApiError as error:
        return _refused(key, error.code, error.message)
    return Coordinator(
        key,
        node_id=registration.broker_id,
        host=endpoint.host,
        port=endpoint.port,
        error_code=ErrorCode.NONE,
        error_message="",
    )


def _refused(key: str, error: ErrorCode, message: str) -> Coordinator:
    return Coordinator(
        key, node_id=-1, host="", port=-1, error_code=error, error_message=message or error.name
    )


def _response(request_context: RequestContext, found: list[Coordinator]) -> FindCoordinatorResponse:
    """Up to version 3 the answer is itself the one coordinator."""
    if request_context.version >= _SEVERAL_FROM:
        return FindCoordinatorResponse(coordinators=found)
    (one,) = found
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or ErrorCode.NONE.name,  # Kafka's words of a success
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def refuse(
    request_context: RequestContext, request: FindCoordinatorRequest, error: ErrorCode
) -> FindCoordinatorResponse:
    keys = request.coordinator_keys if request_context.version >= _SEVERAL_FROM else [request.key]
    refused = await in_slices(lambda key: _refused(key, error, error.name), keys)
    return _response(request_context, refused)


SERVED = Served(messages.API, refuse, handle_async=handle)
