"""Delegation tokens (KIP-48): described from this broker's metadata, changed by the active
controller.

The HMAC of a token is the password of whoever logs in by it. Brokers make it from the token's id:
the metadata and the controllers do not have it.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from broker.service.changes import accepted_change, check_named
from broker.service.context import BrokerContext
from broker.service.metadata import present_image
from metadata.delegation_tokens import DelegationToken
from metadata.image import MetadataImage
from runtime.administration.permissions import Asked, of_tokens
from runtime.authorization.authorizer import Operation, token_resource, user_resource
from runtime.authorization.caller import Caller
from security.delegation_tokens import token_hmac
from stele.errors import ApiError, ErrorCode
from stele.wire.v1 import admin_pb2 as pb
from storage.turns import in_slices

TIMEOUT_S: Final = 10.0
"""Kafka's requests about tokens carry no time-out of their own."""


class ToldToken(NamedTuple):
    """A token as its reader may see it."""

    token: DelegationToken
    hmac: bytes  # b"": the reader may not log in by the token


def check_served(context: BrokerContext, caller: Caller) -> None:
    """Raises ApiError DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for a caller that may not ask about
    tokens at all, and DELEGATION_TOKEN_AUTH_DISABLED if this broker can make none."""
    why = of_tokens(Asked(context.authorizer, caller, context.image()))
    if why is not None:
        raise why
    if not context.config.security.token_secret:
        raise ApiError(
            ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
            f"broker {context.broker_id} has no delegation tokens: set delegation.token.secret.key "
            "on every node",
        )


def add_hmac(
    context: BrokerContext, caller: Caller, answer: pb.CreateDelegationTokenResponse
) -> None:
    """Tell the caller the secret of the token that it has created.

    A request with an id that was made before is answered with its first outcome. Raises ApiError
    INVALID_REQUEST if that was somebody else's.
    """
    if answer.token.requester != caller.principal:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"the request id belongs to {answer.token.requester}: make a new id for each request",
        )
    answer.token.hmac = _hmac(context, answer.token.token_id)


async def create(
    context: BrokerContext,
    caller: Caller,
    request: pb.CreateDelegationTokenRequest,
    *,
    timeout_s: float,
) -> pb.DelegationToken:
    """A new token with its HMAC. Raises ApiError."""
    check_served(context, caller)
    answer = await accepted_change(context, caller, request, timeout_s=timeout_s)
    add_hmac(context, caller, answer)
    token: pb.DelegationToken = answer.token
    return token


async def id_of(
    context: BrokerContext, caller: Caller, wanted_hmac: bytes, *, timeout_s: float
) -> str:
    """The id of the token with this HMAC, by which Kafka's clients name a token.

    Raises ApiError as ``check_served``, and DELEGATION_TOKEN_NOT_FOUND.
    """
    check_served(context, caller)
    image = await present_image(context, min_offset=0, linearizable=True, patience_s=timeout_s)
    found = await in_slices(
        lambda token_id: hmac.compare_digest(_hmac(context, token_id), wanted_hmac),
        image.delegation_tokens,
    )
    for token_id, is_wanted in zip(image.delegation_tokens, found, strict=True):
        if is_wanted:
            return token_id
    raise ApiError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, "no delegation token has this HMAC")


async def change_expiry(
    context: BrokerContext,
    caller: Caller,
    wanted_hmac: bytes,
    change_of: Callable[[str], pb.RenewDelegationTokenRequest | pb.ExpireDelegationTokenRequest],
) -> int:
    """Change when the token with this HMAC expires. ``change_of`` makes the change from its id.
    Returns the new time of expiry. Raises ApiError as ``id_of``."""
    token_id = await id_of(context, caller, wanted_hmac, timeout_s=TIMEOUT_S)
    answer = await accepted_change(context, caller, change_of(token_id), timeout_s=TIMEOUT_S)
    return int(answer.expiry_ms)


async def describe(
    context: BrokerContext, caller: Caller, image: MetadataImage, owners: Sequence[str] | None
) -> list[ToldToken]:
    """The tokens that one of these principals owns, may renew or has created, by id; with
    ``owners`` None, of anybody. Only those that the caller may see. Raises ApiError as
    ``check_served``, and POLICY_VIOLATION for too many names.

    A caller with nothing but the permission to DESCRIBE a token is not told the HMAC, other than in
    Kafka: it could log in as the owner.
    """
    check_served(context, caller)
    wanted = None if owners is None else set(owners)
    check_named(len(wanted or ()), "owners")

    def told(token: DelegationToken) -> ToldToken | None:
        if wanted is not None and not wanted & {token.owner, token.requester, *token.renewers}:
            return None
        if token.concerns(caller.principal):
            return ToldToken(token, _hmac(context, token.token_id))
        return ToldToken(token, b"") if _may_describe(context, caller, token) else None

    found = await in_slices(told, image.delegation_tokens.sorted())
    return [each for each in found if each is not None]


def _may_describe(context: BrokerContext, caller: Caller, token: DelegationToken) -> bool:
    may = context.authorizer.allows
    return may(caller, Operation.DESCRIBE, token_resource(token.token_id)) or may(
        caller, Operation.DESCRIBE_TOKENS, user_resource(token.owner)
    )


def _hmac(context: BrokerContext, token_id: str) -> bytes:
    return token_hmac(context.config.security.token_secret, token_id)
