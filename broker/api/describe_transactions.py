"""DescribeTransactions (65), version 0: transactional ids that this broker coordinates (KIP-664).

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.coordinator.transaction.types import DescribedTransaction
from broker.service import transactions
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.wire.kafka.messages import describe_transactions as messages
from stele.wire.kafka.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from storage.turns import in_slices


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    found = await transactions.describe(context, request_context.caller, request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=await in_slices(_state, found))


def _state(found: DescribedTransaction) -> TransactionState:
    if found.error is not ErrorCode.NONE:
        return _refused(found.transactional_id, found.error)
    topics: dict[str, TopicData] = {}
    for name, number in found.partitions:
        topics.setdefault(name, TopicData(name)).partitions.append(number)
    return TransactionState(
        error_code=ErrorCode.NONE,
        transactional_id=found.transactional_id,
        transaction_state=found.state.label,
        transaction_timeout_ms=found.timeout_ms,
        transaction_start_time_ms=found.start_time_ms,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        topics=list(topics.values()),
    )


def _refused(transactional_id: str, error: ErrorCode) -> TransactionState:
    return TransactionState(error_code=error, transactional_id=transactional_id)


async def refuse(
    request_context: RequestContext, request: DescribeTransactionsRequest, error: ErrorCode
) -> DescribeTransactionsResponse:
    refused = await in_slices(lambda each: _refused(each, error), request.transactional_ids)
    return DescribeTransactionsResponse(transaction_states=refused)


SERVED = Served(messages.API, refuse, handle_async=handle)
