"""The delegation tokens in an image (KIP-48).

The secret that the holder of a token proves to know follows from the token's id and
``delegation.token.secret.key`` (``security.delegation_tokens``). It stands in no record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from metadata.image_part import MapDelta, MapPart
from metadata.records import MetadataError
from stele.wire.v1 import metadata_pb2 as pb

TOKEN_RECORDS: Final = 7
"""The level of metadata.version from which on there are delegation tokens."""


class DelegationToken(NamedTuple):
    """Whoever knows its secret logs in as its owner. All times are since the Unix epoch."""

    token_id: str
    owner: str  # Type:name
    requester: str  # who made it
    renewers: tuple[str, ...]
    """The principals that may renew and expire it besides the owner."""
    issue_ms: int
    expiry_ms: int
    """Never after ``max_ms``. Renewals change it."""
    max_ms: int

    def is_expired(self, now_ms: int) -> bool:
        """As in Kafka, the token is valid until the end of its last millisecond."""
        return self.expiry_ms < now_ms

    def may_be_renewed_by(self, principal: str) -> bool:
        """Whether the principal may renew the token, or expire it."""
        return principal == self.owner or principal in self.renewers

    def concerns(self, principal: str) -> bool:
        """Whether the principal owns the token, may renew it, or has made it."""
        return self.may_be_renewed_by(principal) or principal == self.requester


class DelegationTokens(MapPart[str, DelegationToken]):
    """By id."""

    def sorted(self) -> list[DelegationToken]:
        """All tokens, by id."""
        return [self.map[token_id] for token_id in sorted(self.map)]

    def begin(self) -> DelegationTokensDelta:
        return DelegationTokensDelta(self)

    def records(self) -> Iterator[pb.MetadataRecord]:
        return map(token_record, self.sorted())


class DelegationTokensDelta(MapDelta[str, DelegationToken, DelegationTokens]):
    """Tokens that were made, renewed and removed."""

    def replay(self, record: pb.DelegationTokenRecord) -> None:
        token = DelegationToken(
            record.token_id,
            record.owner,
            record.requester,
            tuple(record.renewers),
            record.issue_ms,
            record.expiry_ms,
            record.max_ms,
        )
        self.set(token.token_id, token)

    def remove(self, record: pb.RemoveDelegationTokenRecord) -> None:
        """Raises MetadataError if there is no such token."""
        if record.token_id not in self.map:
            raise MetadataError(f"there is no delegation token {record.token_id!r} to be removed")
        self.delete(record.token_id)


def token_record(token: DelegationToken) -> pb.MetadataRecord:
    """The record of a token that is new, or has another expiry."""
    return pb.MetadataRecord(
        delegation_token=pb.DelegationTokenRecord(
            token_id=token.token_id,
            owner=token.owner,
            requester=token.requester,
            renewers=token.renewers,
            issue_ms=token.issue_ms,
            expiry_ms=token.expiry_ms,
            max_ms=token.max_ms,
        )
    )


def removal_record(token_id: str) -> pb.MetadataRecord:
    """The record that removes a token."""
    return pb.MetadataRecord(
        remove_delegation_token=pb.RemoveDelegationTokenRecord(token_id=token_id)
    )
