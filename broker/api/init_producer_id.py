"""InitProducerId (22), versions 0-6: an id for an idempotent or a transactional producer.

An idempotent producer that asks for a higher epoch gets another id instead. Kafka does the same.
"""

from __future__ import annotations

from broker.api.fenced import fencing_error
from broker.api.handler import RequestContext, Served
from broker.coordinator.transaction.types import InitAnswer, InitRequest
from broker.service import transactions
from broker.service.context import BrokerContext
from broker.service.producers import new_producer_id
from stele.errors import ErrorCode
from stele.wire.kafka.messages import init_producer_id as messages
from stele.wire.kafka.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

_FENCED_FROM = 4


async def handle(
    context: BrokerContext, request_context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    answer = await _init(context, request_context, request)
    if answer.error is not ErrorCode.NONE:
        knows_fenced = request_context.version >= _FENCED_FROM
        error = fencing_error(answer.error, knows_fenced=knows_fenced)
        return refuse(request_context, request, error)
    return InitProducerIdResponse(
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
        ongoing_txn_producer_id=answer.ongoing_producer_id,
        ongoing_txn_producer_epoch=answer.ongoing_producer_epoch,
    )


async def _init(
    context: BrokerContext, request_context: RequestContext, request: InitProducerIdRequest
) -> InitAnswer:
    caller = request_context.caller
    if request.transactional_id is None:
        producer_id = await new_producer_id(context, caller)
        return InitAnswer(ErrorCode.NONE, producer_id, 0)
    return await transactions.init_producer_id(
        context,
        caller,
        InitRequest(
            transactional_id=request.transactional_id,
            transaction_timeout_ms=request.transaction_timeout_ms,
            expected_producer_id=request.producer_id,
            expected_producer_epoch=request.producer_epoch,
            enable_two_phase_commit=request.enable2_pc,
            keep_prepared=request.keep_prepared_txn,
        ),
    )


def refuse(
    request_context: RequestContext, request: InitProducerIdRequest, error: ErrorCode
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=-1)


SERVED = Served(messages.API, refuse, handle_async=handle, explains=True)
