"""AddOffsetsToTxn (25), versions 0-4: make the offsets of a group part of a transaction.

Deviations: a client's request waits for the markers of its last transaction, for 100 ms at most.
"""

from __future__ import annotations

from broker.api.fenced import fencing_error
from broker.api.handler import RequestContext, Served
from broker.coordinator.transaction.types import TransactionRef
from broker.service import transactions
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import add_offsets_to_txn as messages
from stele.wire.kafka.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

_FENCED_FROM = 2


async def handle(
    context: BrokerContext, request_context: RequestContext, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    ref = TransactionRef(request.transactional_id, request.producer_id, request.producer_epoch)
    error = await transactions.add_offsets(context, request_context.caller, ref, request.group_id)
    knows_fenced = request_context.version >= _FENCED_FROM
    return AddOffsetsToTxnResponse(error_code=fencing_error(error, knows_fenced=knows_fenced))


def refuse(
    request_context: RequestContext, request: AddOffsetsToTxnRequest, error: ErrorCode
) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
