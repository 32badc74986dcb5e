"""AddPartitionsToTxn (24), versions 0-5: make partitions part of a transaction.

Producers send versions 0 to 3. Brokers send versions 4 and 5: for the producers of
``transaction.version`` 2, or only to ask whether partitions are part of a transaction (KIP-890).
Deviations: a client's request waits for the markers of its last transaction, for 100 ms at most.
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
from storage.turns import SLICE_STEPS, Slices

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
    partitions = await _partitions(request.v3_and_below_topics)
    errors = await transactions.add_partitions(context, request_context.caller, ref, partitions)
    knows_fenced = request_context.version >= _FENCED_FROM
    told = (fencing_error(each, knows_fenced=knows_fenced) for each in errors)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=await _results(request.v3_and_below_topics, told)
    )


async def _of_broker(
    context: BrokerContext, request_context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    transactions.check_node(context, request_context.caller)
    slices = Slices(SLICE_STEPS)
    asked = []
    for each in request.transactions:
        ref = TransactionRef(each.transactional_id, each.producer_id, each.producer_epoch)
        partitions = tuple(await _partitions(each.topics))
        asked.append(
            AddPartitionsRequest(
                ref, partitions, each.verify_only, client_version=_TRANSACTION_VERSION_OF_BROKERS
            )
        )
        await slices.step()
    answers = await transactions.verify(context, asked)
    results = []
    for each, errors in zip(request.transactions, answers, strict=True):
        told = (_error(request_context, error) for error in errors)
        topics = await _results(each.topics, told)
        results.append(AddPartitionsToTxnResult(each.transactional_id, topics))
        await slices.step()
    return AddPartitionsToTxnResponse(results_by_transaction=results)


def _error(request_context: RequestContext, error: ErrorCode) -> ErrorCode:
    if error is ErrorCode.TRANSACTION_ABORTABLE and request_context.version < _ABORTABLE_FROM:
        return ErrorCode.INVALID_TXN_STATE
    return error


async def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    found = []
    slices = Slices(SLICE_STEPS)
    for topic in topics:
        for number in topic.partitions:
            found.append(TopicPartition(topic.name, number))
            await slices.step()
        await slices.step()
    return found


async def _results(
    topics: Iterable[AddPartitionsToTxnTopic], errors: Iterator[ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    results = []
    slices = Slices(SLICE_STEPS)
    for topic in topics:
        result = AddPartitionsToTxnTopicResult(topic.name)
        results.append(result)
        for number in topic.partitions:
            told = AddPartitionsToTxnPartitionResult(number, next(errors))
            result.results_by_partition.append(told)
            await slices.step()
        await slices.step()
    return results


async def refuse(
    request_context: RequestContext, request: AddPartitionsToTxnRequest, error: ErrorCode
) -> AddPartitionsToTxnResponse:
    if request_context.version >= _OF_BROKERS_FROM:
        return AddPartitionsToTxnResponse(error_code=error)
    slices = Slices(SLICE_STEPS)
    return AddPartitionsToTxnResponse(
        results_by_topic_v3_and_below=[
            AddPartitionsToTxnTopicResult(
                topic.name,
                await slices.map(
                    lambda number: AddPartitionsToTxnPartitionResult(number, error),
                    topic.partitions,
                ),
            )
            for topic in request.v3_and_below_topics
        ]
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
