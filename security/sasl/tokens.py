"""Whether a JSON Web Token is valid, and of whom (RFC 7519, KIP-768). Pure.

The keys of the issuer say which algorithm belongs to each of them. What the token says of itself is
only used to find its key.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import jwt

from security.sasl.dialogue import Failure, Success, user_principal
from stele.errors import SteleError

_ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512", "ES256K"),
    "OKP": ("EdDSA",),
}
"""The algorithms with a public and a private key, by the type of the key. With any other algorithm
every reader of the key could make tokens."""

RSA_BITS_MIN: Final = 2048
"""A shorter RSA key may be broken, and then anybody makes tokens (RFC 7518). Kafka refuses it,
too."""

_RSA_BITS_MAX: Final = 16_384
"""OpenSSL uses no longer ones."""

_UNSIGNED: Final = "none"

_END_OF_TIME_S: Final = 1e11
"""No time is later, in seconds."""


class KeysError(SteleError):
    """The issuer's keys cannot be read."""


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A public key, and the algorithms for which it may be used."""

    key: Any
    algorithms: tuple[str, ...]


Keys = Mapping[str, IssuerKey]
"""By key id; "" for a key without one."""


def parse_keys(text: bytes) -> Keys:
    """The keys of a JSON Web Key Set that can verify signatures. Others are left out, whatever they
    are: an issuer has keys for other purposes, too (RFC 7517). Raises KeysError."""
    try:
        entries = list(json.loads(text)["keys"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise KeysError(f"no JSON Web Key Set: {type(error).__name__}: {error}") from error
    keys: dict[str, IssuerKey] = {}
    left_out: list[str] = []
    for entry in entries:
        try:
            key_id, key = _usable(entry)
        except Exception as error:  # of a library, for what a stranger may have written
            left_out.append(str(error) or type(error).__name__)
        else:
            keys[key_id] = key
    if not keys:
        why = f" ({left_out[0]})" if left_out else ""
        raise KeysError(f"the JSON Web Key Set has no public key that can verify signatures{why}")
    return keys


def _usable(entry: dict[str, Any]) -> tuple[str, IssuerKey]:
    """A key with its id. Raises KeysError, or what the library raises, for one that cannot verify
    signatures, such as one on an unknown curve."""
    if "d" in entry:
        raise KeysError("a private key: every reader of it can make tokens")
    if (use := entry.get("use", "sig")) != "sig":
        raise KeysError(f"a key for the use {use!r}")
    key = jwt.PyJWK(entry)
    allowed = _ALGORITHMS.get(entry["kty"], ())
    if "alg" in entry or entry["kty"] != "RSA":
        allowed = tuple(each for each in allowed if each == key.algorithm_name)
    if not allowed:
        raise KeysError(f"a key of the type {entry['kty']} for {key.algorithm_name}")
    if entry["kty"] == "RSA" and not RSA_BITS_MIN <= key.key.key_size <= _RSA_BITS_MAX:
        raise KeysError(f"an RSA key of {key.key.key_size} bits, {RSA_BITS_MIN} are the least")
    return str(entry.get("kid", "")), IssuerKey(key.key, allowed)


class UnknownKeyError(SteleError):
    """The token names a key that is not known. The issuer may have a new one."""


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say."""

    audiences: tuple[str, ...] = ()  # it must be for one of them; none: for anybody
    issuer: str = ""  # empty: anybody
    skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"

    def verify(self, token: str, keys: Keys, now_ms: int) -> Success | Failure:
        """Whom the token is of. Raises UnknownKeyError."""
        try:
            header = jwt.get_unverified_header(token)
            key: IssuerKey | None
            if "kid" not in header and len(keys) == 1:
                (key,) = keys.values()
            else:
                key = keys.get(str(header.get("kid", "")))
            if key is None:
                raise UnknownKeyError(f"the issuer has no key {header.get('kid')!r}")
            claims = jwt.decode(token, key.key, list(key.algorithms), options=_SIGNATURE_ONLY)
        except UnknownKeyError:
            raise
        except Exception as error:  # of a library, for bytes that a stranger has made up
            return Failure("", f"the token is not valid: {type(error).__name__}: {error}")
        return self._check(claims, now_ms)

    def read_unsecured(self, token: str, now_ms: int) -> Success | Failure:
        """Whom an unsigned token says that it is of: anybody can make one."""
        header, _, rest = token.partition(".")
        content, _, signature = rest.partition(".")
        try:
            told, claims = json.loads(_decoded(header)), json.loads(_decoded(content))
            if told["alg"] != _UNSIGNED or signature or not isinstance(claims, dict):
                return Failure("", "the token is signed, and only unsigned ones are accepted")
        except (ValueError, KeyError, TypeError, binascii.Error, RecursionError) as error:
            return Failure("", f"the token is malformed: {error}")
        return self._check(claims, now_ms)

    def _check(self, claims: Mapping[str, Any], now_ms: int) -> Success | Failure:
        refusal = self._refusal(claims, now_ms / 1000)
        if refusal is not None:
            return Failure("", refusal)
        name = claims[self.subject_claim].strip()
        return Success(user_principal(name), expires_ms=int(claims["exp"] * 1000))

    def _refusal(self, claims: Mapping[str, Any], now_s: float) -> str | None:
        name = claims.get(self.subject_claim)
        if not isinstance(name, str) or not name.strip():
            return f"the token names nobody in its claim {self.subject_claim!r}"
        for claim in ("exp", "iat", "nbf"):
            time_s = claims.get(claim)
            if time_s is None and claim == "nbf":
                continue
            if (
                not isinstance(time_s, int | float)
                or isinstance(time_s, bool)
                or not 0 <= time_s < _END_OF_TIME_S
            ):
                return f"the token of {name!r} has no time in its claim {claim!r}"
        if claims["exp"] + self.skew_s <= now_s:
            return f"the token of {name!r} expired {now_s - claims['exp']:.0f} s ago"
        for claim in ("iat", "nbf"):
            ahead_s = (claims.get(claim) or 0) - now_s
            if ahead_s > self.skew_s:
                return f"the token of {name!r} is valid in {ahead_s:.0f} s only ({claim})"
        if self.issuer and claims.get("iss") != self.issuer:
            return f"the token of {name!r} is issued by {claims.get('iss')!r}, not {self.issuer!r}"
        audience = claims.get("aud")
        told = audience if isinstance(audience, list) else [audience]
        if self.audiences and not any(each in self.audiences for each in told):
            return f"the token of {name!r} is for {audience!r}, not for {self.audiences!r}"
        return self._scope_refusal(name, claims.get(self.scope_claim))

    def _scope_refusal(self, name: str, scope: object) -> str | None:
        is_list = isinstance(scope, list) and all(isinstance(each, str) for each in scope)
        if scope is None or isinstance(scope, str) or is_list:
            return None
        return f"the token of {name!r} has no text or list in its claim {self.scope_claim!r}"


_SIGNATURE_ONLY: Final[Any] = {
    "verify_signature": True,
    **dict.fromkeys(
        ("verify_exp", "verify_nbf", "verify_iat", "verify_aud", "verify_iss", "verify_sub",
         "verify_jti"),
        False,
    ),
}  # fmt: skip
"""The claims are checked here, by the time of the node's clock."""


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
