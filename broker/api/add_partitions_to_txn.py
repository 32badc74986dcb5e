"""AddPartitionsToTxn (24), versions 0-5: make partitions part of a transaction.

Producers send versions 0 to 3. Brokers send versions 4 and 5: for the producers of
``transaction.version`` 2, or only to ask whether partitions are part of a transaction (KIP-890).
Deviations: none known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from broker.api.fenced import fencing_error
from broker.api.handler import RequestContext, Served
from broker.coordinator.transaction.types import AddPartitionsRequest, TransactionRef
from broker.service import transactions
from broker.service.context import BrokerContext
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.wire.kafka.messages import add_partitions_to_txn as messages
from stele.wire.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)

_FENCED_FROM = 2
_OF_BROKERS_FROM = 4
_ABORTABLE_FROM = 5
_TRANSACTION_VERSION_OF_BROKERS = 2


async def handle(
    context: BrokerContext, request_context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    if request_context.version >= _OF_BROKERS_FROM:
        return await _of_broker(context, request_context, request)
    ref = TransactionRef(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    )
    partitions = _partitions(request.v3_and_below_topics)
    errors = await transactions.add_partitions(context, request_context.caller, ref, partitions)
    knows_fenced = request_context.version >= _FENCED_FROM
    told = (fencing_error(each, knows_fenced=knows_fenced) for each in errors)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_results(request.v3_and_below_topics, told)
    )


async def _of_broker(
    context: BrokerContext, request_context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    transactions.check_node(context, request_context.caller)
    answers = await transactions.verify(
        context,
        [
            AddPartitionsRequest(
                TransactionRef(each.transactional_id, each.producer_id, each.producer_epoch),
                _partitions(each.topics),
                verify_only=each.verify_only,
                client_version=_TRANSACTION_VERSION_OF_BROKERS,
            )
            for each in request.transactions
        ],
    )
    return AddPartitionsToTxnResponse(
        results_by_transaction=[
            AddPartitionsToTxnResult(
                each.transactional_id,
                _results(each.topics, (_error(request_context, error) for error in errors)),
            )
            for each, errors in zip(request.transactions, answers, strict=True)
        ]
    )


def _error(request_context: RequestContext, error: ErrorCode) -> ErrorCode:
    if error is ErrorCode.TRANSACTION_ABORTABLE and request_context.version < _ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return error


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.name, number) for topic in topics for number in topic.partitions
    )


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], errors: Iterator[ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            topic.name,
            [
                AddPartitionsToTxnPartitionResult(number, next(errors))
                for number in topic.partitions
            ],
        )
        for topic in topics
    ]


def refuse(
    request_context: RequestContext, request: AddPartitionsToTxnRequest, error: ErrorCode
) -> AddPartitionsToTxnResponse:
    if request_context.version >= _OF_BROKERS_FROM:
        return AddPartitionsToTxnResponse(error_code=error)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=_results(
            request.v3_and_below_topics, iter(lambda: error, None)
        )
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
