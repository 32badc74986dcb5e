"""The SCRAM credentials in an image, and the stand-ins for users without any."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from immutables import Map

from metadata.records import MetadataError
from stele.security.scram import (
    DEFAULT_ITERATIONS,
    MECHANISMS_BY_NUMBER,
    SALT_BYTES,
    ScramCredential,
    ScramMechanism,
)
from stele.wire.v1 import metadata_pb2 as pb

SCRAM_RECORDS: Final = 6
"""The level of metadata.version from which on there are SCRAM credentials."""

SECRET_BYTES: Final = 32


class ScramUser(NamedTuple):
    """The key of a credential: a user has one for each mechanism."""

    name: str
    mechanism: int  # its number


_NO_CREDENTIALS: Map[ScramUser, ScramCredential] = Map()


@dataclass(frozen=True, slots=True)
class ScramCredentials:
    """Immutable. ``map`` has an order that differs from process to process: use ``sorted``."""

    map: Map[ScramUser, ScramCredential] = _NO_CREDENTIALS
    # Of the cluster: it makes the salts of stand-ins. Empty before the first credential.
    secret: bytes = field(default=b"", repr=False)

    def __len__(self) -> int:
        return len(self.map)

    def sorted(self) -> list[tuple[ScramUser, ScramCredential]]:
        """All credentials, by user and mechanism."""
        return [(user, self.map[user]) for user in sorted(self.map)]

    def find(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        """The user's credential; None: there is none."""
        return self.map.get(ScramUser(user, mechanism.number))

    def stand_in(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        """A credential that nobody can prove, for a user who has none.

        It looks like one that Stele's tools make, and is the same each time and on every node: a
        salt that changed would tell that there is no such user.
        """
        text = f"{mechanism.name}\0{user}".encode()
        salt = hmac.digest(self.secret, b"salt\0" + text, "sha256")[:SALT_BYTES]
        stored = hmac.digest(self.secret, b"stored\0" + text, mechanism.hash_name)
        server = hmac.digest(self.secret, b"server\0" + text, mechanism.hash_name)
        return ScramCredential(salt, stored, server, DEFAULT_ITERATIONS)

    def of_users(self) -> dict[str, list[tuple[ScramMechanism, int]]]:
        """The mechanisms of each user with their iterations, both sorted."""
        found: dict[str, list[tuple[ScramMechanism, int]]] = {}
        for user, credential in self.sorted():
            mechanism = MECHANISMS_BY_NUMBER[user.mechanism]
            found.setdefault(user.name, []).append((mechanism, credential.iterations))
        return found

    def of_user(self, name: str) -> list[tuple[ScramMechanism, int]]:
        """The mechanisms of one user with their iterations."""
        return [
            (mechanism, credential.iterations)
            for _, mechanism in sorted(MECHANISMS_BY_NUMBER.items())
            if (credential := self.find(mechanism, name)) is not None
        ]

    def begin(self) -> ScramCredentialsDelta:
        return ScramCredentialsDelta(self)

    def records(self) -> Iterator[pb.MetadataRecord]:
        if self.secret:
            yield secret_record(self.secret)
        for user, credential in self.sorted():
            yield credential_record(user, credential)


class ScramCredentialsDelta:
    """Credentials that were set and removed."""

    def __init__(self, before: ScramCredentials) -> None:
        self._result = before
        self._map, self._secret = before.map, before.secret

    def set_secret(self, record: pb.ScramSecretRecord) -> None:
        self._secret = record.secret

    def replay(self, record: pb.UserScramCredentialRecord) -> None:
        """Raises MetadataError for a mechanism that is not known."""
        if record.mechanism not in MECHANISMS_BY_NUMBER:
            raise MetadataError(f"there is no SCRAM mechanism {record.mechanism}")
        credential = ScramCredential(
            record.salt, record.stored_key, record.server_key, record.iterations
        )
        self._map = self._map.set(ScramUser(record.name, record.mechanism), credential)

    def remove(self, record: pb.RemoveUserScramCredentialRecord) -> None:
        """Raises MetadataError if there is no such credential."""
        user = ScramUser(record.name, record.mechanism)
        if user not in self._map:
            raise MetadataError(f"user {record.name!r} has no SCRAM credential to be removed")
        self._map = self._map.delete(user)

    def clear(self) -> None:
        """A lower level of metadata.version has no credentials. A downgrade is refused while there
        are any, so this is about the secret."""
        self._map, self._secret = _NO_CREDENTIALS, b""

    def skip_to(self, after: ScramCredentials) -> None:
        self._result = after
        self._map, self._secret = after.map, after.secret

    def apply(self) -> ScramCredentials:
        before = self._result
        if before.map is not self._map or before.secret != self._secret:
            self._result = ScramCredentials(self._map, self._secret)
        return self._result


def secret_record(secret: bytes) -> pb.MetadataRecord:
    """The record of the secret of stand-ins."""
    return pb.MetadataRecord(scram_secret=pb.ScramSecretRecord(secret=secret))


def credential_record(user: ScramUser, credential: ScramCredential) -> pb.MetadataRecord:
    """The record that gives a user a credential."""
    return pb.MetadataRecord(
        user_scram_credential=pb.UserScramCredentialRecord(
            name=user.name,
            mechanism=user.mechanism,
            salt=credential.salt,
            stored_key=credential.stored_key,
            server_key=credential.server_key,
            iterations=credential.iterations,
        )
    )


def removal_record(user: ScramUser) -> pb.MetadataRecord:
    """The record that takes a credential from a user."""
    return pb.MetadataRecord(
        remove_user_scram_credential=pb.RemoveUserScramCredentialRecord(
            name=user.name, mechanism=user.mechanism
        )
    )
