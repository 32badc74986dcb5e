"""CreateAcls (30), versions 1-3: refused, as by a broker of Kafka without an authorizer.

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import unbuilt
from broker.service.changes import check_named
from broker.service.context import BrokerContext
from runtime.authorization.authorizer import Operation
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import create_acls as messages
from stele.wire.kafka.messages.create_acls import (
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


async def handle(
    context: BrokerContext, request_context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    check_named(len(request.creations), "ACLs")
    return _refused(request, unbuilt.acl_refusal(context, request_context.caller, Operation.ALTER))


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
