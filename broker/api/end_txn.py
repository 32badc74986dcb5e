"""EndTxn (26), versions 0-5: commit or abort a transaction.

It is answered when the decision is on disk on every in-sync replica, before the markers are
written. A client of version 5 gets the producer id and epoch to go on with (KIP-890).
Deviations: none known.
"""

from __future__ import annotations

from broker.api.fenced import fencing_error
from broker.api.handler import RequestContext, Served
from broker.coordinator.transaction.types import EndRequest, TransactionRef
from broker.service import transactions
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import end_txn as messages
from stele.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse

_FENCED_FROM = 2
_NEW_EPOCH_FROM = 5


async def handle(
    context: BrokerContext, request_context: RequestContext, request: EndTxnRequest
) -> EndTxnResponse:
    version = request_context.version
    ref = TransactionRef(request.transactional_id, request.producer_id, request.producer_epoch)
    answer = await transactions.end(
        context,
        request_context.caller,
        EndRequest(ref, request.committed, client_version=2 if version >= _NEW_EPOCH_FROM else 0),
    )
    error = fencing_error(answer.error, knows_fenced=version >= _FENCED_FROM)
    if error is not ErrorCode.NONE:
        return EndTxnResponse(error_code=error)
    return EndTxnResponse(producer_id=answer.producer_id, producer_epoch=answer.producer_epoch)


def refuse(
    request_context: RequestContext, request: EndTxnRequest, error: ErrorCode
) -> EndTxnResponse:
    return EndTxnResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle, explains=True)
