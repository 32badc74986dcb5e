"""Administration of delegation tokens: logins that their owner hands on."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

from stele.admin.part import AdminPart
from stele.wire.v1 import admin_pb2 as pb


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token by which its holder logs in as the owner. All times are since the Unix epoch."""

    token_id: str
    owner: str
    """``Type:name``."""
    requester: str
    """The principal that created the token."""
    renewers: tuple[str, ...]
    """The principals that may renew the token, and let it expire, besides the owner."""
    issue_ms: int
    expiry_ms: int
    max_ms: int
    """No renewal goes further."""
    hmac: bytes = field(repr=False)
    """The secret. Empty if the caller may see the token and not log in by it."""

    @property
    def password(self) -> str:
        """The password of a login by SCRAM with this token. The user is the token's id."""
        return base64.b64encode(self.hmac).decode()

    @property
    def jaas_config(self) -> str:
        """The option ``sasl_jaas_config`` of a client that logs in by this token.

        >>> Producer(servers, security_protocol="SASL_SSL", sasl_mechanism="SCRAM-SHA-512",
        ...          sasl_jaas_config=token.jaas_config)
        """
        return (
            "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{self.token_id}" password="{self.password}" tokenauth="true";'
        )


class TokenAdmin(AdminPart):
    """The part of ``stele.admin.admin.Admin`` for delegation tokens."""

    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Sequence[str] = (),
        max_lifetime_ms: int | None = None,
        request_id: bytes | None = None,
    ) -> DelegationToken:
        """Create a token. Every live broker lets its holder in when this returns.

        ``owner``: another user than the one who asks, which needs the permission CREATE_TOKENS on
        this user. ``max_lifetime_ms``: at most delegation.token.max.lifetime.ms, the default.
        Raises ApiError, for example DELEGATION_TOKEN_AUTH_DISABLED, or
        DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for a client that has not logged in, or has logged in
        by a token.

        >>> token = await admin.create_delegation_token(renewers=["User:scheduler"])
        """
        request = pb.CreateDelegationTokenRequest(
            owner=owner or "", renewers=renewers, max_lifetime_ms=max_lifetime_ms or 0
        )
        answer = await self._requests.change(
            "CreateDelegationToken",
            request,
            pb.CreateDelegationTokenResponse.FromString,
            request_id,
        )
        return _token(answer.token)

    async def renew_delegation_token(
        self,
        token_id: str,
        *,
        renew_period_ms: int | None = None,
        request_id: bytes | None = None,
    ) -> int:
        """Let a token expire later. Returns when it expires, in milliseconds since the Unix epoch.

        ``renew_period_ms``: from now on, at most delegation.token.expiry.time.ms, the default.
        Raises ApiError, for example DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED, or
        DELEGATION_TOKEN_OWNER_MISMATCH for a caller that is neither owner nor renewer.

        >>> await admin.renew_delegation_token(token.token_id)
        """
        request = pb.RenewDelegationTokenRequest(
            token_id=token_id, renew_period_ms=renew_period_ms or 0
        )
        answer = await self._requests.change(
            "RenewDelegationToken", request, pb.RenewDelegationTokenResponse.FromString, request_id
        )
        return answer.expiry_ms

    async def expire_delegation_token(
        self,
        token_id: str,
        *,
        expiry_period_ms: int | None = None,
        request_id: bytes | None = None,
    ) -> int:
        """Remove a token, or let it expire after some time from now on. Returns when it expires, in
        milliseconds since the Unix epoch.

        Brokers end the sessions of clients that are logged in by the token when it is gone. Raises
        ApiError as ``renew_delegation_token``.

        >>> await admin.expire_delegation_token(token.token_id)
        """
        request = pb.ExpireDelegationTokenRequest(
            token_id=token_id,
            expiry_period_ms=-1 if expiry_period_ms is None else expiry_period_ms,
        )
        answer = await self._requests.change(
            "ExpireDelegationToken",
            request,
            pb.ExpireDelegationTokenResponse.FromString,
            request_id,
        )
        return answer.expiry_ms

    async def describe_delegation_tokens(
        self, owners: Sequence[str] = (), *, linearizable: bool = True
    ) -> list[DelegationToken]:
        """The tokens that the caller may see: of these owners and renewers, by default all.

        Raises ApiError as ``create_delegation_token``.

        >>> await admin.describe_delegation_tokens(["User:orders-app"])
        """
        answer = await self._requests.ask(
            "DescribeDelegationTokens",
            pb.DescribeDelegationTokensRequest(
                owners=owners,
                min_metadata_offset=self._requests.changed_at,
                linearizable=linearizable,
            ),
            pb.DescribeDelegationTokensResponse.FromString,
        )
        return [_token(each) for each in answer.tokens]


def _token(message: pb.DelegationToken) -> DelegationToken:
    return DelegationToken(
        message.token_id,
        message.owner,
        message.requester,
        tuple(message.renewers),
        message.issue_ms,
        message.expiry_ms,
        message.max_ms,
        message.hmac,
    )
