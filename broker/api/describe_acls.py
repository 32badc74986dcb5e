"""DescribeAcls (29), versions 1-3.

Deviations: none known.
"""

from __future__ import annotations

from itertools import groupby

from broker.api.handler import RequestContext, Served
from broker.service import acls
from broker.service.context import BrokerContext
from metadata.acl import Acl
from runtime.administration.acls import filter_message, filter_of
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import describe_acls as messages
from stele.wire.kafka.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    try:
        acls.check_described(context, request_context.caller)
        wanted = filter_of(
            filter_message(
                request.resource_type_filter,
                request.resource_name_filter,
                request.pattern_type_filter,
                request.principal_filter,
                request.host_filter,
                request.operation,
                request.permission_type,
            )
        )
        found = await acls.describe(context, request_context.caller, wanted)
    except ApiError as why:
        message = explain(why.code, why.message)
        return DescribeAclsResponse(error_code=why.code, error_message=message)
    by_resource = groupby(found, lambda acl: acl[:3])
    return DescribeAclsResponse(resources=[_resource(list(each)) for _, each in by_resource])


def _resource(found: list[Acl]) -> DescribeAclsResource:
    """Rules of one pattern."""
    return DescribeAclsResource(
        found[0].resource_type,
        found[0].resource_name,
        found[0].pattern_type,
        [AclDescription(acl.principal, acl.host, acl.operation, acl.permission) for acl in found],
    )


def refuse(
    request_context: RequestContext, request: DescribeAclsRequest, error: ErrorCode
) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error, error_message=explain(error))


SERVED = Served(messages.API, refuse, handle_async=handle)
