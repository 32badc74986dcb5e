"""InitProducerId (22), versions 0-5: an id for an idempotent producer.

Deviations: a transactional id is refused with TRANSACTIONAL_ID_AUTHORIZATION_FAILED, which every
client takes for final, as there are no transactions; a producer that asks for a higher epoch gets
another id instead, as in Kafka; who may write to a topic, but not IDEMPOTENT_WRITE, gets none.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.context import BrokerContext
from broker.service.producers import init_producer_id
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import init_producer_id as messages
from stele.wire.kafka.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)


async def handle(
    context: BrokerContext, request_context: RequestContext, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if request.transactional_id == "":
        return refuse(request_context, request, ErrorCode.INVALID_REQUEST)
    try:
        producer_id = await init_producer_id(
            context, request_context.caller, is_transactional=request.transactional_id is not None
        )
        return InitProducerIdResponse(producer_id=producer_id)
    except ApiError as error:
        return refuse(request_context, request, error.code)


def refuse(
    request_context: RequestContext, request: InitProducerIdRequest, error: ErrorCode
) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error, producer_epoch=-1)


SERVED = Served(messages.API, refuse, handle_async=handle, max_version=5)
