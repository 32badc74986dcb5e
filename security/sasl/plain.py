"""The servers' half of PLAIN (RFC 4616), against a list of users or the SCRAM credentials."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

from metadata.scram_credentials import ScramUser
from security.sasl.dialogue import (
    CREDENTIALS_UNKNOWN,
    CheckPassword,
    CredentialStore,
    Failure,
    Step,
    Success,
    user_principal,
)
from stele.errors import SteleError
from stele.security.scram import (
    MECHANISMS,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
    ScramMechanism,
    salted_password,
)

_REFUSED: Final = "Authentication failed: Invalid username or password"
"""Kafka's own sentence, which clients and their users know."""

_MECHANISMS: Final = (SCRAM_SHA_512, SCRAM_SHA_256)


class PlainError(SteleError):
    """A token of PLAIN is malformed."""


def parse_token(token: bytes) -> tuple[str, str]:
    """User and password of ``[authzid] NUL user NUL password``. Raises PlainError."""
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError as error:
        raise PlainError("the token is not UTF-8") from error
    if len(parts) != 3:
        raise PlainError(f"the token has {len(parts)} parts and not 3")
    authzid, user, password = parts
    if not user:
        raise PlainError("the user's name is empty")
    if not password:
        raise PlainError(f"the password of user {user!r} is empty")
    if authzid not in ("", user):
        raise PlainError(f"user {user!r} asks to act as {authzid!r}")
    return user, password


class PlainDialogue:
    """One token of the client."""

    def __init__(self, users: Mapping[str, str], store: CredentialStore | None) -> None:
        """``users``: passwords by name. ``store``: asked for those who are not among them; None:
        nobody else is known."""
        self._users = users
        self._store = store
        self._user = ""
        # What the password is checked against: of the user's credential; None: there is none.
        self._checked: tuple[ScramMechanism, ScramCredential] | None = None

    def step(self, token: bytes) -> Step:
        try:
            user, password = parse_token(token)
        except PlainError as error:
            return Failure(_REFUSED, str(error))
        self._user = user
        known = self._users.get(user)
        if known is None and self._store is not None:
            return self._ask_store(self._store, user, password)
        # An unknown user costs a comparison, too.
        is_right = hmac.compare_digest((known or "").encode(), password.encode())
        if known is None:
            return Failure(_REFUSED, f"unknown user {user!r}")
        return self._decided(is_right)

    def resume(self, result: object) -> Step:
        if self._checked is None:
            return Failure(_REFUSED, f"unknown user {self._user!r}")
        assert self._store is not None
        mechanism, credential = self._checked
        if self._store.find(mechanism, self._user) != credential:
            return Failure(
                _REFUSED,
                f"the {mechanism.name} credential of user {self._user!r} was removed or changed "
                "during the login",
            )
        return self._decided(result is True, ScramUser(self._user, mechanism.number))

    def _decided(self, is_right: bool, basis: ScramUser | None = None) -> Step:
        if not is_right:
            return Failure(_REFUSED, f"wrong password of user {self._user!r}")
        return Success(user_principal(self._user), basis=basis)

    def _ask_store(self, store: CredentialStore, user: str, password: str) -> Step:
        if not store.is_loaded:
            return CREDENTIALS_UNKNOWN
        mechanism: ScramMechanism
        for mechanism in _MECHANISMS:
            credential = store.find(mechanism, user)
            if credential is not None:
                self._checked = mechanism, credential
                return CheckPassword(mechanism, password, credential)
        stand_in = store.stand_in(_MECHANISMS[-1], user)
        return CheckPassword(_MECHANISMS[-1], password, stand_in)


def password_is_right(
    mechanism: str, password: str, salt: bytes, stored_key: bytes, iterations: int
) -> bool:
    """The work of ``CheckPassword``, with plain values: it is done in another process."""
    found = MECHANISMS[mechanism]
    credential = ScramCredential(salt, stored_key, b"", iterations)
    return credential.accepts_salted(found, salted_password(found, password, salt, iterations))
