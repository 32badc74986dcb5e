"""DescribeUserScramCredentials (50), version 0: the mechanisms of users (KIP-554).

Deviations: none known.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service.context import BrokerContext
from broker.service.scram_credentials import Credentials, describe_users
from stele.error_meanings import explain
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import describe_user_scram_credentials as messages
from stele.wire.kafka.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


async def handle(
    context: BrokerContext,
    request_context: RequestContext,
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse:
    users = [each.name for each in request.users or ()]
    try:
        found = describe_users(context, request_context.caller, context.image(), users)
    except ApiError as error:
        return DescribeUserScramCredentialsResponse(
            error_code=error.code, error_message=explain(error.code, error.message)
        )
    return DescribeUserScramCredentialsResponse(
        results=[_result(user, credentials) for user, credentials in found.items()]
    )


def _result(user: str, found: Credentials | ApiError) -> DescribeUserScramCredentialsResult:
    if isinstance(found, ApiError):
        return DescribeUserScramCredentialsResult(user, found.code, found.message)
    infos = [CredentialInfo(mechanism.number, iterations) for mechanism, iterations in found]
    return DescribeUserScramCredentialsResult(user, credential_infos=infos)


def refuse(
    request_context: RequestContext, request: DescribeUserScramCredentialsRequest, error: ErrorCode
) -> DescribeUserScramCredentialsResponse:
    return DescribeUserScramCredentialsResponse(error_code=error)


SERVED = Served(messages.API, refuse, handle_async=handle)
