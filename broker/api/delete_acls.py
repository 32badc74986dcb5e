"""DeleteAcls (31), versions 1-3. The answer comes when every live broker has dropped the rules.

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.changes import accepted_change, error_code
from broker.service.context import BrokerContext
from runtime.administration.acls import filter_message
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import delete_acls as messages
from stele.wire.kafka.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from stele.wire.v1 import admin_pb2 as pb

_TIMEOUT_S = 10.0
"""The request carries no time-out of its own."""


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DeleteAclsRequest
) -> DeleteAclsResponse:
    wanted = pb.DeleteAclsRequest(
        filters=[
            filter_message(
                each.resource_type_filter,
                each.resource_name_filter,
                each.pattern_type_filter,
                each.principal_filter,
                each.host_filter,
                each.operation,
                each.permission_type,
            )
            for each in request.filters
        ]
    )
    caller = request_context.caller
    try:
        answer = await accepted_change(context, caller, wanted, timeout_s=_TIMEOUT_S)
    except ApiError as why:
        return _refused(request, why)
    return DeleteAclsResponse(filter_results=[_result(each) for each in answer.results])


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


def _refused(request: DeleteAclsRequest, why: ApiError) -> DeleteAclsResponse:
    message = explain(why.code, why.message)
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(why.code, message) for _ in request.filters]
    )


def refuse(
    request_context: RequestContext, request: DeleteAclsRequest, error: ErrorCode
) -> DeleteAclsResponse:
    return _refused(request, ApiError(error))


SERVED = Served(messages.API, refuse, handle_async=handle)
