"""CreateDelegationToken (38), versions 1-3, forwarded to the active controller (KIP-48, KIP-373).

Deviations: an owner that is no user is refused with INVALID_PRINCIPAL_TYPE, as such a renewer is. A
cluster has at most 10000 tokens, and a principal has made at most 1000 of them: POLICY_VIOLATION.
"""

from __future__ import annotations

from broker.api.handler import RequestContext, Served
from broker.service import delegation_tokens
from broker.service.context import BrokerContext
from stele.errors import ApiError, ErrorCode
from stele.wire.kafka.messages import create_delegation_token as messages
from stele.wire.kafka.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from stele.wire.v1 import admin_pb2 as pb


async def handle(
    context: BrokerContext, request_context: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    wanted = pb.CreateDelegationTokenRequest(
        owner=_owner(request),
        renewers=[f"{each.principal_type}:{each.principal_name}" for each in request.renewers],
        max_lifetime_ms=request.max_lifetime_ms,
    )
    try:
        token = await delegation_tokens.create(
            context, request_context.caller, wanted, timeout_s=delegation_tokens.TIMEOUT_S
        )
    except ApiError as error:
        return refuse(request_context, request, error.code)
    return CreateDelegationTokenResponse(
        0,
        *_parts(token.owner),
        *_parts(token.requester),
        token.issue_ms,
        token.expiry_ms,
        token.max_ms,
        token.token_id,
        token.hmac,
    )


def refuse(
    request_context: RequestContext, request: CreateDelegationTokenRequest, error: ErrorCode
) -> CreateDelegationTokenResponse:
    requester = request_context.caller.principal
    return CreateDelegationTokenResponse(
        error, *_parts(_owner(request) or requester), *_parts(requester)
    )


def _owner(request: CreateDelegationTokenRequest) -> str:
    """The owner that the request names; "": the caller."""
    if not request.owner_principal_name:
        return ""
    return f"{request.owner_principal_type or ''}:{request.owner_principal_name}"


def _parts(principal: str) -> tuple[str, str]:
    kind, _, name = principal.partition(":")
    return kind, name


SERVED = Served(messages.API, refuse, handle_async=handle)
