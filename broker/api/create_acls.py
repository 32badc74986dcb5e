"""CreateAcls (30), versions 1-3. The answer comes when every live broker has applied the rules.

Deviations: a principal that is not ``Type:name``, and a host that is neither an address nor ``*``,
are refused. Kafka keeps such rules, which match nothing.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.changes import accepted_change, check_named
from broker.service.context import BrokerContext
from runtime.administration.parts import error_code
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import create_acls as messages
from stele.wire.kafka.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import in_slices

_TIMEOUT_S = 10.0
"""The request carries no time-out of its own."""


async def handle(
    context: BrokerContext, request_context: RequestContext, request: CreateAclsRequest
) -> CreateAclsResponse:
    caller = request_context.caller
    try:
        check_named(len(request.creations), "ACLs")
        wanted = pb.CreateAclsRequest(acls=await in_slices(_wish, request.creations))
        answer = await accepted_change(context, caller, wanted, timeout_s=_TIMEOUT_S)
    except ApiError as why:
        return await _refused(request, why)
    return CreateAclsResponse(results=await in_slices(_result, answer.results))


def _wish(creation: AclCreation) -> pb.Acl:
    return pb.Acl(
        resource_type=creation.resource_type,
        resource_name=creation.resource_name,
        pattern_type=creation.resource_pattern_type,
        principal=creation.principal,
        host=creation.host,
        operation=creation.operation,
        permission=creation.permission_type,
    )


def _result(told: pb.CreateAclsResponse.Result) -> AclCreationResult:
    return AclCreationResult(error_code(told.error), told.message or None)


async def _refused(request: CreateAclsRequest, why: ApiError) -> CreateAclsResponse:
    message = explain(why.code, why.message)
    return CreateAclsResponse(
        results=await in_slices(lambda _: AclCreationResult(why.code, message), request.creations)
    )


async def refuse(
    request_context: RequestContext, request: CreateAclsRequest, error: ErrorCode
) -> CreateAclsResponse:
    return await _refused(request, ApiError(error))


SERVED = Served(messages.API, refuse, handle_async=handle)
