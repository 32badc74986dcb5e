"""ListTransactions (66), versions 0-2: transactional ids that this broker coordinates (KIP-664).

Deviations: a regular expression (KIP-1152) is read as those of consumer groups are
(``metadata.name_pattern``).
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.coordinator.transaction.types import ListRequest
from broker.service import transactions
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import list_transactions as messages
from stele.wire.kafka.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)


async def handle(
    context: BrokerContext, request_context: RequestContext, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    wanted = ListRequest(
        states=tuple(request.state_filters),
        producer_ids=tuple(request.producer_id_filters),
        duration_ms=request.duration_filter,
    )
    answer = await transactions.list_transactions(
        context, request_context.caller, wanted, request.transactional_id_pattern or ""
    )
    return ListTransactionsResponse(
        unknown_state_filters=list(answer.unknown_states),
        transaction_states=[
            TransactionState(each.transactional_id, each.producer_id, each.state.label)
            for each in answer.transactions
        ],
    )


def refuse(
    request_context: RequestContext, request: ListTransactionsRequest, error: ErrorCode
) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
