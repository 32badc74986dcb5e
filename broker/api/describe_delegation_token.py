"""DescribeDelegationToken (41), versions 1-3, from this broker's metadata (KIP-48, KIP-373).

Deviations: a caller that does not own a token, may not renew it and has not created it is not told
its HMAC, whatever ACLs allow it to describe. It could log in as the owner.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import delegation_tokens
from broker.service.context import BrokerContext
from broker.service.delegation_tokens import ToldToken
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import describe_delegation_token as messages
from stele.wire.kafka.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


async def handle(
    context: BrokerContext,
    request_context: RequestContext,
    request: DescribeDelegationTokenRequest,
) -> DescribeDelegationTokenResponse:
    owners = request.owners
    names = (
        None
        if owners is None
        else [f"{each.principal_type}:{each.principal_name}" for each in owners]
    )
    try:
        found = await delegation_tokens.describe(
            context, request_context.caller, context.image(), names
        )
    except ApiError as error:
        return DescribeDelegationTokenResponse(error.code)
    return DescribeDelegationTokenResponse(tokens=list(map(_described, found)))


def _described(told: ToldToken) -> DescribedDelegationToken:
    token = told.token
    return DescribedDelegationToken(
        *_parts(token.owner),
        *_parts(token.requester),
        token.issue_ms,
        token.expiry_ms,
        token.max_ms,
        token.token_id,
        told.hmac,
        [DescribedDelegationTokenRenewer(*_parts(each)) for each in token.renewers],
    )


def _parts(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


def refuse(
    request_context: RequestContext, request: DescribeDelegationTokenRequest, error: ErrorCode
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error)


SERVED = Served(messages.API, refuse, handle_async=handle)
