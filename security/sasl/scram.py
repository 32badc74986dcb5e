"""The servers' half of SCRAM-SHA-256 and SCRAM-SHA-512.

An unknown user gets a challenge, too, and fails at the end like a wrong password: Kafka fails it at
once, and so tells who exists.
"""

from __future__ import annotations

from typing import Final

from security.sasl.dialogue import (
    CREDENTIALS_UNKNOWN,
    Challenge,
    CredentialStore,
    Failure,
    Step,
    Success,
    user_principal,
)
from stele.security import scram
from stele.security.scram import ScramCredential, ScramError, ScramMechanism

_REFUSED: Final = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"
)
"""Kafka's own sentence, which clients and their users know."""


class ScramDialogue:
    """Two tokens of the client: who it is, and the proof."""

    def __init__(self, mechanism: ScramMechanism, store: CredentialStore, nonce: str) -> None:
        """``nonce``: random, printable, without a comma."""
        self._mechanism = mechanism
        self._store = store
        self._nonce = nonce
        self._first: scram.ClientFirst | None = None  # None: the next token is the first
        self._challenge = scram.ServerFirst("", "", b"", 0)
        self._credential: ScramCredential | None = None  # None: the user has none

    def step(self, token: bytes) -> Step:
        try:
            if self._first is None:
                return self._begin(scram.ClientFirst.parse(token))
            return self._end(self._first, scram.ClientFinal.parse(token))
        except ScramError as error:
            return self._failure(str(error))

    def resume(self, result: object) -> Step:
        raise AssertionError("SCRAM asks for no work")

    def _failure(self, private: str) -> Failure:
        return Failure(_REFUSED.format(self._mechanism.name), private)

    def _begin(self, first: scram.ClientFirst) -> Step:
        if not first.user:
            raise ScramError("the user's name is empty")
        if first.authzid not in ("", first.user):
            raise ScramError(f"user {first.user!r} asks to act as {first.authzid!r}")
        if first.extensions.get(scram.TOKEN_EXTENSION, "").lower() == "true":
            raise ScramError("the client logs in by a delegation token, and there are none")
        if not self._store.is_loaded:
            return CREDENTIALS_UNKNOWN
        self._first = first
        self._credential = self._store.find(self._mechanism, first.user)
        shown = self._credential or self._store.stand_in(self._mechanism, first.user)
        nonce = first.nonce + self._nonce
        self._challenge = scram.ServerFirst.of(nonce, shown.salt, shown.iterations)
        return Challenge(self._challenge.encode())

    def _end(self, first: scram.ClientFirst, final: scram.ClientFinal) -> Step:
        if final.nonce != self._challenge.nonce:
            raise ScramError(f"user {first.user!r} does not repeat the server's nonce")
        if final.binding != first.gs2.encode():
            raise ScramError(f"user {first.user!r} does not repeat the header of its first message")
        shown = self._credential or self._store.stand_in(self._mechanism, first.user)
        message = scram.auth_message(first, self._challenge, final)
        proven = shown.accepts_proof(self._mechanism, final.proof, message)
        if self._credential is None:
            raise ScramError(f"user {first.user!r} has no {self._mechanism.name} credential")
        if not proven:
            raise ScramError(f"wrong password of user {first.user!r}")
        signature = scram.server_signature(self._mechanism, shown.server_key, message)
        return Success(user_principal(first.user), scram.server_final(signature))
