"""CreateAcls (30), versions 1-3. The answer comes when every live broker has applied the rules.

Deviations: a principal that is not ``Type:name``, and a host that is neither an address nor ``*``,
are refused. Kafka keeps such rules, which match nothing.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.changes import accepted_change, error_code
from broker.service.context import BrokerContext
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import create_acls as messages
from stele.wire.kafka.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from stele.wire.v1 import admin_pb2 as pb

_TIMEOUT_S = 10.0
"""The request carries no time-out of its own."""


async def handle(
    context: BrokerContext, request_context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    wanted = pb.CreateAclsRequest(
        acls=[
            pb.Acl(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                pattern_type=each.resource_pattern_type,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission=each.permission_type,
            )
            for each in request.creations
        ]
    )
    caller = request_context.caller
    try:
        answer = await accepted_change(context, caller, wanted, timeout_s=_TIMEOUT_S)
    except ApiError as why:
        return _refused(request, why)
    return CreateAclsResponse(
        results=[
            AclCreationResult(error_code(each.error), each.message or None)
            for each in answer.results
        ]
    )


def _refused(request: CreateAclsRequest, why: ApiError) -> CreateAclsResponse:
    message = explain(why.code, why.message)
    return CreateAclsResponse(
        results=[AclCreationResult(why.code, message) for _ in request.creations]
    )


def refuse(
    request_context: RequestContext, request: CreateAclsRequest, error: ErrorCode
) -> CreateAclsResponse:
    return _refused(request, ApiError(error))


SERVED = Served(messages.API, refuse, handle_async=handle)
