"""FindCoordinator (10), versions 0-6: which broker coordinates a group or a transaction.

Deviations: there are neither groups nor transactions, so every key is refused, with an error that
ends the matter: COORDINATOR_NOT_AVAILABLE would be asked again for ever. librdkafka gives up a
transactional producer for no other code than TRANSACTIONAL_ID_AUTHORIZATION_FAILED; the message
says what is meant. A librdkafka consumer asks for its group also when its partitions are assigned:
it passes the error on once, and reads.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import find_coordinator as messages
from stele.wire.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_GROUP, _TRANSACTION, _SHARE_GROUP = 0, 1, 2

_REFUSALS = {
    _GROUP: (
        ErrorCode.UNSUPPORTED_VERSION,
        "consumer groups are not supported: assign partitions instead of subscribing to topics",
    ),
    _TRANSACTION: (
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        "transactions are not supported: set no transactional.id",
    ),
    _SHARE_GROUP: (ErrorCode.UNSUPPORTED_VERSION, "share groups are not supported"),
}


async def handle(
    context: BrokerContext, request_context: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    # Version 0 knows groups only.
    key_type = request.key_type if request_context.version >= 1 else _GROUP
    unknown = ErrorCode.INVALID_REQUEST, f"key type {key_type}"
    return _refused(request_context, request, *_REFUSALS.get(key_type, unknown))


def refuse(
    request_context: RequestContext, request: FindCoordinatorRequest, error: ErrorCode
) -> FindCoordinatorResponse:
    return _refused(request_context, request, error, error.name)


def _refused(
    request_context: RequestContext, request: FindCoordinatorRequest, error: ErrorCode, message: str
) -> FindCoordinatorResponse:
    """The answer with the error in the field that its version has: one for all, or one for each
    key."""
    if request_context.version < 4:
        return FindCoordinatorResponse(
            error_code=error, error_message=message, node_id=-1, host="", port=-1
        )
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key, node_id=-1, host="", port=-1, error_code=error, error_message=message)
            for key in request.coordinator_keys
        ]
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
