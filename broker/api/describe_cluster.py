"""DescribeCluster (60), versions 0-2: the brokers, as seen from the listener asked.

Deviations: beside Kafka's endpoint type 1 (brokers) there is 3: the brokers' gRPC endpoints on
the listener of the same name. This is how an Admin finds them from ``bootstrap.servers``.
"""

from __future__ import annotations

from broker.api.handler import NO_OPERATIONS, RequestContext, Served
from broker.service.cluster import any_live_broker, cluster_operations, endpoints
from broker.service.context import BrokerContext
from runtime.authorization.caller import Plane
from stele.errors import ErrorCode
from stele.wire.kafka.messages import describe_cluster as messages
from stele.wire.kafka.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

BROKERS = 1
CONTROLLERS = 2
GRPC_BROKERS = 3

_PLANES = {BROKERS: Plane.KAFKA, GRPC_BROKERS: Plane.GRPC}


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    if request.endpoint_type == CONTROLLERS:
        return refuse(request_context, request, ErrorCode.MISMATCHED_ENDPOINT_TYPE)
    plane = _PLANES.get(request.endpoint_type)
    if plane is None:
        return refuse(request_context, request, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)
    operations = NO_OPERATIONS
    if request.include_cluster_authorized_operations:
        operations = cluster_operations(context, request_context.caller)
    return DescribeClusterResponse(
        endpoint_type=request.endpoint_type,
        cluster_id=context.cluster_id,
        controller_id=any_live_broker(context),
        brokers=[
            DescribeClusterBroker(
                broker_id=registration.broker_id,
                host=endpoint.host,
                port=endpoint.port,
                rack=registration.rack,
                is_fenced=registration.fenced,
            )
            for registration, endpoint in endpoints(
                context, request_context.caller, plane, with_fenced=request.include_fenced_brokers
            )
        ],
        cluster_authorized_operations=operations,
    )


def refuse(
    request_context: RequestContext, request: DescribeClusterRequest, error: ErrorCode
) -> DescribeClusterResponse:
    messages_ = {
        ErrorCode.MISMATCHED_ENDPOINT_TYPE: "this is a broker's endpoint, not a controller's",
        ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: f"there is no endpoint type {request.endpoint_type}",
    }
    return DescribeClusterResponse(
        error_code=error,
        error_message=messages_.get(error, error.name),
        endpoint_type=request.endpoint_type,
    )


SERVED = Served(messages.API, refuse, handle_async=handle)
