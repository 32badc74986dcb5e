"""GetTelemetrySubscriptions (71), version 0: which metrics a client is to push (KIP-714).

Only brokers with a ``telemetry.receiver`` serve it, since clients would push into the void.

Deviations: the names of metrics are sorted.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.context import BrokerContext
from broker.service.telemetry import ACCEPTED
from stele.errors import ErrorCode
from stele.wire.kafka.messages import get_telemetry_subscriptions as messages
from stele.wire.kafka.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


async def handle(
    context: BrokerContext,
    request_context: RequestContext,
    request: GetTelemetrySubscriptionsRequest,
) -> GetTelemetrySubscriptionsResponse:
    telemetry = context.telemetry
    assert telemetry is not None
    instance = await telemetry.ask(
        request_context.caller, request_context.connection, request.client_instance_id
    )
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance.instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(ACCEPTED),
        push_interval_ms=instance.wanted.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=True,
        requested_metrics=list(instance.wanted.metrics),
    )


def refuse(
    request_context: RequestContext, request: GetTelemetrySubscriptionsRequest, error: ErrorCode
) -> GetTelemetrySubscriptionsResponse:
    return GetTelemetrySubscriptionsResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
