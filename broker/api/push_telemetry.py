"""PushTelemetry (72), version 0: metrics of a client (KIP-714).

Only brokers with a ``telemetry.receiver`` serve it.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.context import BrokerContext
from broker.telemetry.instances import Push
from stele.errors import ErrorCode
from stele.wire.kafka.messages import push_telemetry as messages
from stele.wire.kafka.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


async def handle(
    context: BrokerContext, request_context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    assert context.telemetry is not None
    push = Push(
        request.client_instance_id,
        request.subscription_id,
        request.terminating,
        request.compression_type,
        len(request.metrics),
    )
    await context.telemetry.push(
        request_context.caller, request_context.connection, push, request.metrics
    )
    return PushTelemetryResponse()


def refuse(
    request_context: RequestContext, request: PushTelemetryRequest, error: ErrorCode
) -> PushTelemetryResponse:
    return PushTelemetryResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
