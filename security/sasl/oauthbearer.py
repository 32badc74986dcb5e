"""The servers' half of OAUTHBEARER (RFC 7628, KIP-255)."""

from __future__ import annotations

import re
from typing import Final

from security.sasl.dialogue import Challenge, CheckToken, Failure, Step, Success

_FIRST: Final = re.compile(
    rb"n,(?:a=(?P<authzid>[^,\x01]*))?,\x01(?P<pairs>(?:[A-Za-z]+=[^\x01]*\x01)+)\x01"
)
_BEARER: Final = re.compile(r"Bearer +(?P<token>[A-Za-z0-9._~+/=-]+)", re.IGNORECASE)

_INVALID_TOKEN: Final = b'{"status":"invalid_token"}'
_GOT_IT: Final = b"\x01"

_REFUSED: Final = "Authentication failed during authentication due to an invalid token"


class OauthBearerDialogue:
    """A token of the client, and after a refusal its answer that it has read the reason."""

    def __init__(self) -> None:
        self._authzid = ""
        self._refusal: Failure | None = None  # the client is told why, and has to answer

    def step(self, token: bytes) -> Step:
        if self._refusal is not None:
            return self._refusal
        found = _FIRST.fullmatch(token)
        if found is None:
            return Failure(_REFUSED, "the first message is malformed")
        pairs = [pair.partition(b"=") for pair in found["pairs"][:-1].split(b"\x01")]
        names = [name for name, _, _ in pairs]
        if names.count(b"auth") != 1:
            return Failure(_REFUSED, f"the first message has {names.count(b'auth')} values of auth")
        auth = next(value for name, _, value in pairs if name == b"auth")
        bearer = _BEARER.fullmatch(auth.decode(errors="replace"))
        if bearer is None:
            return Failure(_REFUSED, "auth is not of the form Bearer TOKEN")
        self._authzid = (found["authzid"] or b"").decode(errors="replace")
        return CheckToken(bearer["token"])

    def resume(self, result: object) -> Step:
        if isinstance(result, Success):
            name = result.principal.partition(":")[2]
            if self._authzid in ("", name):
                return result
            result = Failure("", f"{result.principal} asks to act as {self._authzid!r}")
        assert isinstance(result, Failure)
        if result.is_retriable:
            return result
        self._refusal = Failure(_REFUSED, result.private)
        return Challenge(_INVALID_TOKEN)
