"""The clients' SASL dialogues, pure: a token goes out, a challenge comes in, until it is done."""

from __future__ import annotations

import functools
import hmac
from collections.abc import Mapping
from typing import Final, Protocol

from stele.errors import SteleError
from stele.security import scram
from stele.security.client_security import SaslCredentials
from stele.security.scram import ScramError, ScramMechanism

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"

_ITERATIONS_MAX: Final = 1_000_000
"""A server that demands more would stop the client for seconds."""


class LoginRefusedError(SteleError):
    """The server refused the login, or could not prove who it is."""


class ClientDialogue(Protocol):
    """One login. Each token is the answer to the challenge before it."""

    def first(self) -> bytes:
        """The token that opens the dialogue."""
        ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The next token; None: the dialogue is done, and the server has proven what it must.
        Raises LoginRefusedError."""
        ...


class PlainDialogue:
    """PLAIN (RFC 4616): user and password in clear."""

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def first(self) -> bytes:
        return self._token

    def answer(self, challenge: bytes) -> bytes | None:
        return None


@functools.lru_cache(64)
def _salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """A server has one salt for a user, so a client with many connections computes this once."""
    return scram.salted_password(mechanism, password, salt, iterations)


class ScramDialogue:
    """SCRAM: neither side learns the password from the other, and each proves that it knows it."""

    def __init__(
        self,
        mechanism: ScramMechanism,
        user: str,
        password: str,
        nonce: str,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        """``nonce``: random, printable, without a comma."""
        self._mechanism = mechanism
        self._password = password
        self._first = scram.ClientFirst.of(user, nonce, extensions)
        self._signature: bytes | None = None  # that the server has to send; None: not asked yet

    def first(self) -> bytes:
        return self._first.encode()

    def answer(self, challenge: bytes) -> bytes | None:
        try:
            if self._signature is None:
                return self._prove(scram.ServerFirst.parse(challenge))
            signature = scram.parse_server_final(challenge)
        except ScramError as error:
            raise LoginRefusedError(str(error)) from error
        if not hmac.compare_digest(signature, self._signature):
            raise LoginRefusedError("the server does not know the user's credential")
        return None

    def _prove(self, challenge: scram.ServerFirst) -> bytes:
        nonce = self._first.nonce
        if not challenge.nonce.startswith(nonce) or len(challenge.nonce) == len(nonce):
            raise ScramError("the server's nonce does not continue the client's")
        if not scram.MIN_ITERATIONS <= challenge.iterations <= _ITERATIONS_MAX:
            raise ScramError(
                f"the server demands {challenge.iterations} iterations, and this client does "
                f"{scram.MIN_ITERATIONS} to {_ITERATIONS_MAX}"
            )
        mechanism = self._mechanism
        final = scram.ClientFinal.of(self._first.gs2, challenge.nonce)
        salted = _salted_password(mechanism, self._password, challenge.salt, challenge.iterations)
        message = scram.auth_message(self._first, challenge, final)
        key = scram.server_key(mechanism, salted)
        self._signature = scram.server_signature(mechanism, key, message)
        return final.encode(scram.client_proof(mechanism, salted, message))


class OauthBearerDialogue:
    """OAUTHBEARER (RFC 7628, KIP-255): a token, and extensions that the server may look at."""

    def __init__(self, token: str, extensions: Mapping[str, str] | None = None) -> None:
        pairs = {"auth": f"Bearer {token}", **(extensions or {})}
        self._token = "".join(
            ("n,,\x01", *(f"{name}={value}\x01" for name, value in pairs.items()), "\x01")
        ).encode()
        self._refusal: str | None = None

    def first(self) -> bytes:
        return self._token

    def answer(self, challenge: bytes) -> bytes | None:
        """A server that refuses says why, and expects one more token before it fails the login."""
        if self._refusal is not None:
            raise LoginRefusedError(self._refusal)
        if not challenge:
            return None
        self._refusal = f"the server refused the token: {challenge.decode(errors='replace')}"
        return b"\x01"


def dialogue_of(credentials: SaslCredentials, nonce: str, token: str = "") -> ClientDialogue:
    """The login by these credentials. ``nonce``: random, printable, without a comma. ``token``: of
    OAUTHBEARER, one that is valid now."""
    mechanism = credentials.mechanism
    if mechanism == PLAIN:
        return PlainDialogue(credentials.username, credentials.password)
    if mechanism == OAUTHBEARER:
        return OauthBearerDialogue(token)
    extensions = {scram.TOKEN_EXTENSION: "true"} if credentials.is_delegation_token else None
    return ScramDialogue(
        scram.MECHANISMS[mechanism],
        credentials.username,
        credentials.password,
        nonce,
        extensions,
    )
