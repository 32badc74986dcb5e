"""DeleteAcls (31), versions 1-3. The answer comes when every live broker has dropped the rules.

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.changes import accepted_change, check_named
from broker.service.context import BrokerContext
from runtime.administration.acls import filter_message
from runtime.administration.parts import error_code
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import delete_acls as messages
from stele.wire.kafka.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import in_slices

_TIMEOUT_S = 10.0
"""The request carries no time-out of its own."""


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    caller = request_context.caller
    try:
        check_named(len(request.filters), "filters of ACLs")
        wanted = pb.DeleteAclsRequest(filters=await in_slices(_wish, request.filters))
        answer = await accepted_change(context, caller, wanted, timeout_s=_TIMEOUT_S)
    except ApiError as why:
        return await _refused(request, why)
    return DeleteAclsResponse(filter_results=await in_slices(_result, answer.results))


def _wish(wanted: DeleteAclsFilter) -> pb.AclFilter:
    return filter_message(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )


def _result(told: pb.DeleteAclsResponse.Result) -> DeleteAclsFilterResult:
    return DeleteAclsFilterResult(
        error_code(told.error),
        told.message or None,
        [
            DeleteAclsMatchingAcl(
                ErrorCode.NONE,
                None,
                acl.resource_type,
                acl.resource_name,
                acl.pattern_type,
                acl.principal,
                acl.host,
                acl.operation,
                acl.permission,
            )
            for acl in told.acls
        ],
    )


async def _refused(request: DeleteAclsRequest, why: ApiError) -> DeleteAclsResponse:
    message = explain(why.code, why.message)
    refused = await in_slices(lambda _: DeleteAclsFilterResult(why.code, message), request.filters)
    return DeleteAclsResponse(filter_results=refused)


async def refuse(
    request_context: RequestContext, request: DeleteAclsRequest, error: ErrorCode
) -> DeleteAclsResponse:
    return await _refused(request, ApiError(error))


SERVED = Served(messages.API, refuse, handle_async=handle)
