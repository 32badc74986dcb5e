"""The servers' half of SCRAM-SHA-256 and SCRAM-SHA-512, for users and for delegation tokens.

An unknown user gets a challenge, too, and fails at the end like a wrong password: Kafka fails it at
once, and so tells who exists. The same holds for a token: its credential follows from its id alone,
and only the end of the login asks whether there is such a token.
"""

from __future__ import annotations

from typing import Final

from metadata.scram_credentials import ScramUser
from security.delegation_tokens import token_password, token_salt
from security.sasl.dialogue import (
    CREDENTIALS_UNKNOWN,
    Challenge,
    CredentialStore,
    DeriveKeys,
    Failure,
    HeldToken,
    Step,
    Success,
    TokenStore,
    user_principal,
)
from stele.security import scram
from stele.security.scram import (
    DEFAULT_ITERATIONS,
    ScramCredential,
    ScramError,
    ScramMechanism,
)

_REFUSED: Final = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism {}"
)
"""Kafka's own sentence, which clients and their users know."""


class ScramDialogue:
    """Two tokens of the client: who it is, and the proof."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        store: CredentialStore,
        nonce: str,
        tokens: TokenStore | None = None,
    ) -> None:
        """``nonce``: random, printable, without a comma. ``tokens`` None: there are none."""
        self._mechanism = mechanism
        self._store = store
        self._tokens = tokens
        self._nonce = nonce
        self._first: scram.ClientFirst | None = None  # None: the next token is the first
        self._challenge = scram.ServerFirst("", "", b"", 0)
        self._shown: ScramCredential | None = None  # None: nothing was shown yet
        self._is_real = False  # whether somebody can prove what was shown
        self._by_token = False  # whether the user is the id of a delegation token

    def step(self, token: bytes) -> Step:
        try:
            if self._first is None:
                return self._begin(scram.ClientFirst.parse(token))
            return self._end(self._first, scram.ClientFinal.parse(token))
        except ScramError as error:
            return self._failure(str(error))

    def resume(self, result: object) -> Step:
        """Take the keys of a delegation token."""
        assert isinstance(result, tuple)
        assert self._first is not None
        assert self._tokens is not None
        stored_key, server_key = result
        salt = token_salt(self._tokens.hmac_of(self._first.user))
        self._is_real = True
        return self._show(
            self._first, ScramCredential(salt, stored_key, server_key, DEFAULT_ITERATIONS)
        )

    def _failure(self, private: str) -> Failure:
        return Failure(_REFUSED.format(self._mechanism.name), private)

    def _begin(self, first: scram.ClientFirst) -> Step:
        if not first.user:
            raise ScramError("the user's name is empty")
        if first.authzid not in ("", first.user):
            raise ScramError(f"user {first.user!r} asks to act as {first.authzid!r}")
        if first.extensions.get(scram.TOKEN_EXTENSION, "").lower() == "true":
            return self._begin_by_token(first)
        if not self._store.is_loaded:
            return CREDENTIALS_UNKNOWN
        self._first = first
        known = self._store.find(self._mechanism, first.user)
        self._is_real = known is not None
        return self._show(first, known or self._store.stand_in(self._mechanism, first.user))

    def _begin_by_token(self, first: scram.ClientFirst) -> Step:
        if self._tokens is None:
            raise ScramError(
                "the client logs in by a delegation token, and there are none: "
                "delegation.token.secret.key is not set"
            )
        if not self._tokens.is_loaded:
            return CREDENTIALS_UNKNOWN
        self._first = first
        self._by_token = True
        found = self._tokens.hmac_of(first.user)
        return DeriveKeys(
            self._mechanism, token_password(found), token_salt(found), DEFAULT_ITERATIONS
        )

    def _show(self, first: scram.ClientFirst, shown: ScramCredential) -> Step:
        self._shown = shown
        nonce = first.nonce + self._nonce
        self._challenge = scram.ServerFirst.of(nonce, shown.salt, shown.iterations)
        return Challenge(self._challenge.encode())

    def _end(self, first: scram.ClientFirst, final: scram.ClientFinal) -> Step:
        assert self._shown is not None
        if final.nonce != self._challenge.nonce:
            raise ScramError(f"user {first.user!r} does not repeat the server's nonce")
        if final.binding != first.gs2.encode():
            raise ScramError(f"user {first.user!r} does not repeat the header of its first message")
        message = scram.auth_message(first, self._challenge, final)
        proven = self._shown.accepts_proof(self._mechanism, final.proof, message)
        if not self._is_real:
            raise ScramError(f"user {first.user!r} has no {self._mechanism.name} credential")
        if not proven:
            what = "HMAC of delegation token" if self._by_token else "password of user"
            raise ScramError(f"wrong {what} {first.user!r}")
        signature = scram.server_signature(self._mechanism, self._shown.server_key, message)
        told = scram.server_final(signature)
        if self._by_token:
            return self._by_valid_token(first.user, told)
        return self._by_present_credential(first.user, told)

    def _by_present_credential(self, user: str, told: bytes) -> Success:
        """Raises ScramError if the credential was removed or changed during the login."""
        if self._store.find(self._mechanism, user) != self._shown:
            raise ScramError(
                f"the {self._mechanism.name} credential of user {user!r} was removed or changed "
                "during the login"
            )
        return Success(user_principal(user), told, basis=ScramUser(user, self._mechanism.number))

    def _by_valid_token(self, token_id: str, told: bytes) -> Success:
        """The holder of a token is its owner. Raises ScramError if the token is gone or over."""
        assert self._tokens is not None
        token = self._tokens.find(token_id)
        if token is None:
            raise ScramError(f"there is no delegation token {token_id!r}")
        if token.is_expired(self._tokens.now_ms):
            raise ScramError(f"the delegation token {token_id!r} of {token.owner} has expired")
        return Success(token.owner, told, expires_ms=token.expiry_ms, basis=HeldToken(token_id))
