"""FindCoordinator (10), versions 0-6: which broker coordinates a group or a transaction.

Deviations: there are neither groups nor transactions, so the answer is always
COORDINATOR_NOT_AVAILABLE, which clients try again later.
"""

from __future__ import annotations

from broker.api.call import Call, Served
from broker.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import find_coordinator as messages
from stele.wire.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_KEY_TYPES = (0, 1, 2)  # group, transaction, share group
_MESSAGE = "this cluster has no coordinators for groups and transactions"


async def handle(
    context: BrokerContext, call: Call, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if request.key_type not in _KEY_TYPES:
        return refuse(call, request, ErrorCode.INVALID_REQUEST)
    return refuse(call, request, ErrorCode.COORDINATOR_NOT_AVAILABLE)


def refuse(
    call: Call, request: FindCoordinatorRequest, error: ErrorCode
) -> FindCoordinatorResponse:
    """The error where the version has it: of the whole answer, or of each key."""
    message = _MESSAGE if error is ErrorCode.COORDINATOR_NOT_AVAILABLE else error.name
    if call.version < 4:
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
