"""Delegation tokens (KIP-48): created, renewed, expired, and removed once they have expired.

A decision knows no secret. The answer to a request is remembered in the metadata log, and a reader
of the log must not become the holder of a token. So the broker that was asked adds the HMAC.

Deviations: a token of another type than User is refused, and so are tokens beyond the bounds below.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from controller.machine import Context, ControllerResult, Decision
from metadata.delegation_tokens import (
    TOKEN_RECORDS,
    DelegationToken,
    removal_record,
    token_record,
)
from metadata.features import require
from metadata.node_settings import NodeSettings
from metadata.security_settings import TOKEN_SECRET
from runtime.administration.acls import check_principal
from stele.errors import ApiError, ErrorCode
from stele.ids import encode_uuid
from stele.wire.v1.admin_pb2 import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from stele.wire.v1.admin_pb2 import DelegationToken as TokenMessage

TOKENS_MAX: Final = 10_000
"""The most tokens of a cluster. Whoever logs in may create some without any permission."""

REQUESTER_TOKENS_MAX: Final = 1000
"""The most tokens that one principal has created and that are still there."""

RECORD_BYTES_MAX: Final = 16 * 1024
"""The longest record of a token: the names of its owner, its requester and its renewers."""

END_OF_TIME_MS: Final = 253_402_300_799_999
"""The end of the year 9999. A setting may be so long that a later time would fit into no record."""

_USER: Final = "User"
_ID_BYTES: Final = 16


def create_delegation_token(
    context: Context, request: CreateDelegationTokenRequest
) -> ControllerResult[CreateDelegationTokenResponse]:
    """Raises ApiError DELEGATION_TOKEN_AUTH_DISABLED without a secret key, INVALID_PRINCIPAL_TYPE
    for owners and renewers that are no users, and POLICY_VIOLATION for too much."""
    _check_enabled(context)
    owner = request.owner or context.principal
    for principal in (owner, *request.renewers):
        _check_user(principal)
    lifetime_ms = _at_most(
        request.max_lifetime_ms, NodeSettings.delegation_token_max_lifetime_ms.read(context.static)
    )
    max_ms = min(context.now_ms + lifetime_ms, END_OF_TIME_MS)
    expiry_ms = context.now_ms + _renewal_ms(context)
    token = DelegationToken(
        _new_id(context),
        owner,
        context.principal,
        tuple(request.renewers),
        context.now_ms,
        min(expiry_ms, max_ms),
        max_ms,
    )
    record = token_record(token)
    if record.ByteSize() > RECORD_BYTES_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"the names of owner and renewers have more than {RECORD_BYTES_MAX} bytes together: "
            "name fewer renewers",
        )
    _check_number(context)
    decision = Decision(context)
    decision.extend_asked([record])
    return decision.result(CreateDelegationTokenResponse(token=message_of(token)))


def renew_delegation_token(
    context: Context, request: RenewDelegationTokenRequest
) -> ControllerResult[RenewDelegationTokenResponse]:
    """Give a token another expiry, from now on. As in Kafka it may be an earlier one.

    Raises ApiError DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED, or
    DELEGATION_TOKEN_OWNER_MISMATCH for a caller that may not renew the token.
    """
    token = _found(context, request.token_id)
    period_ms = _at_most(request.renew_period_ms, _renewal_ms(context))
    decision = Decision(context)
    expiry_ms = _expire_at(decision, token, context.now_ms + period_ms)
    return decision.result(RenewDelegationTokenResponse(expiry_ms=expiry_ms))


def expire_delegation_token(
    context: Context, request: ExpireDelegationTokenRequest
) -> ControllerResult[ExpireDelegationTokenResponse]:
    """Let a token expire after some time, or remove it at once. Raises as
    ``renew_delegation_token``.

    The sessions of its holders end with it (``runtime.logins.sessions``).
    """
    token = _found(context, request.token_id)
    decision = Decision(context)
    if request.expiry_period_ms < 0:
        decision.extend_asked([removal_record(token.token_id)])
        return decision.result(ExpireDelegationTokenResponse(expiry_ms=context.now_ms))
    expiry_ms = _expire_at(decision, token, context.now_ms + request.expiry_period_ms)
    return decision.result(ExpireDelegationTokenResponse(expiry_ms=expiry_ms))


def remove_expired(context: Context, token_ids: Iterable[str]) -> ControllerResult[int]:
    """Remove the tokens that have expired. Returns the number of removed tokens."""
    decision = Decision(context)
    expired = [
        removal_record(token_id)
        for token_id in token_ids
        if (token := context.image.delegation_tokens.get(token_id)) is not None
        and token.is_expired(context.now_ms)
    ]
    decision.extend(expired)
    return decision.result(len(expired))


def message_of(token: DelegationToken) -> TokenMessage:
    """The token for its readers, without its HMAC."""
    return TokenMessage(**token._asdict())


def _check_enabled(context: Context) -> None:
    if not context.static.get(TOKEN_SECRET.name, "").strip():
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
            f"there are no delegation tokens: set {TOKEN_SECRET.name} on every node",
        )
    require(context.image, TOKEN_RECORDS, "a delegation token")


def _check_user(principal: str) -> None:
    check_principal(principal)
    if principal.partition(":")[0] != _USER:
        raise ApiError(
            ErrorCode.INVALID_PRINCIPAL_TYPE,
            f"{principal} is not of the type {_USER}: owners and renewers of delegation tokens are",
        )


def _check_number(context: Context) -> None:
    tokens = context.image.delegation_tokens
    own = sum(each.requester == context.principal for each in tokens.values())
    if own >= REQUESTER_TOKENS_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"{context.principal} has created {own} delegation tokens, the most that one principal "
            "may have: expire some, or wait until they expire",
        )
    if len(tokens) >= TOKENS_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"there are {len(tokens)} delegation tokens, the most that a cluster may have: expire "
            "some, or wait until they expire",
        )


def _found(context: Context, token_id: str) -> DelegationToken:
    """The token that the caller may renew and expire."""
    _check_enabled(context)
    token = context.image.delegation_tokens.get(token_id)
    if token is None:
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_NOT_FOUND, f"there is no delegation token {token_id!r}"
        )
    if token.is_expired(context.now_ms):
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_EXPIRED,
            f"the delegation token {token_id} has expired: create another one",
        )
    if not token.may_be_renewed_by(context.principal):
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
            f"{context.principal} is neither the owner nor a renewer of the token {token_id}",
        )
    return token


def _expire_at(decision: Decision, token: DelegationToken, expiry_ms: int) -> int:
    """Give the token this expiry, or the last one that it may have. Returns it."""
    changed = token._replace(expiry_ms=min(expiry_ms, token.max_ms))
    decision.extend_asked([token_record(changed)])
    return changed.expiry_ms


def _at_most(asked_ms: int, most_ms: int) -> int:
    """The time asked for; nothing asked for: the longest."""
    return min(asked_ms, most_ms) if asked_ms > 0 else most_ms


def _renewal_ms(context: Context) -> int:
    return NodeSettings.delegation_token_expiry_time_ms.read(context.static)


def _new_id(context: Context) -> str:
    """Random, as Kafka's. It never begins with a dash, which commands would take for an option."""
    while True:
        token_id = encode_uuid(context.rng.randbytes(_ID_BYTES))
        if not token_id.startswith("-"):
            return token_id
