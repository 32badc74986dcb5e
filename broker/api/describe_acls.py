"""DescribeAcls (29), versions 1-3: there are none, as at a broker of Kafka without an authorizer.

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import unbuilt
from broker.service.context import BrokerContext
from runtime.authorization.authorizer import Operation
from stele.error_meanings import explain
from stele.errors import ErrorCode
from stele.wire.kafka.messages import describe_acls as messages
from stele.wire.kafka.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


async def handle(
    context: BrokerContext, request_context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    why = unbuilt.acl_refusal(context, request_context.caller, Operation.DESCRIBE)
    return DescribeAclsResponse(error_code=why.code, error_message=explain(why.code, why.message))


def refuse(
    request_context: RequestContext, request: DescribeAclsRequest, error: ErrorCode
) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=error, error_message=explain(error))


SERVED = Served(messages.API, refuse, handle_async=handle)
