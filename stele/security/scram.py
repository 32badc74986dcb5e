"""SCRAM (RFC 5802, RFC 7677) as Kafka speaks it: formulas and messages, for clients and servers.

Kafka does no SASLprep: user names and passwords are UTF-8 as they stand. There is no channel
binding. The proof covers the very bytes of the messages, so a message keeps the text that it was
parsed from.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from stele.errors import SteleError

MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16384
"""Kafka's bounds for a credential."""

DEFAULT_ITERATIONS: Final = 4096
SALT_BYTES: Final = 20
"""The salt of a credential that Stele's own tools make."""

TOKEN_EXTENSION: Final = "tokenauth"
"""The extension by which a client says that it logs in with a delegation token (KIP-48)."""


class ScramError(SteleError):
    """A message of the dialogue is malformed, or proves nothing."""


@dataclass(frozen=True, slots=True)
class ScramMechanism:
    """One of Kafka's two mechanisms."""

    name: str
    hash_name: str
    hash_bytes: int
    number: int  # in AlterUserScramCredentials and in the metadata


SCRAM_SHA_256: Final = ScramMechanism("SCRAM-SHA-256", "sha256", 32, 1)
SCRAM_SHA_512: Final = ScramMechanism("SCRAM-SHA-512", "sha512", 64, 2)
MECHANISMS: Final[Mapping[str, ScramMechanism]] = {
    each.name: each for each in (SCRAM_SHA_256, SCRAM_SHA_512)
}
MECHANISMS_BY_NUMBER: Final[Mapping[int, ScramMechanism]] = {
    each.number: each for each in MECHANISMS.values()
}


# ----------------------------------------------------------------------------- formulas


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """``SaltedPassword``. It takes a millisecond for some 4000 iterations."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def _hmac(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, mechanism.hash_name)


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def client_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return _hmac(mechanism, salted, b"Client Key")


def stored_key(mechanism: ScramMechanism, client: bytes) -> bytes:
    return hashlib.new(mechanism.hash_name, client).digest()


def server_key(mechanism: ScramMechanism, salted: bytes) -> bytes:
    return _hmac(mechanism, salted, b"Server Key")


def client_proof(mechanism: ScramMechanism, salted: bytes, auth_message: bytes) -> bytes:
    """The bytes that prove that the client knows the password."""
    key = client_key(mechanism, salted)
    return _xor(key, _hmac(mechanism, stored_key(mechanism, key), auth_message))


def server_signature(mechanism: ScramMechanism, key: bytes, auth_message: bytes) -> bytes:
    """The bytes that prove that the server knows the credential with this server key."""
    return _hmac(mechanism, key, auth_message)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a server stores of a user's password."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    @classmethod
    def of_salted(
        cls, mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
    ) -> ScramCredential:
        """The credential of a salted password."""
        stored = stored_key(mechanism, client_key(mechanism, salted))
        return cls(salt, stored, server_key(mechanism, salted), iterations)

    @classmethod
    def of_password(
        cls, mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
    ) -> ScramCredential:
        """The credential of a password; as slow as ``salted_password``."""
        salted = salted_password(mechanism, password, salt, iterations)
        return cls.of_salted(mechanism, salted, salt, iterations)

    def accepts_proof(self, mechanism: ScramMechanism, proof: bytes, auth_message: bytes) -> bool:
        """Whether the proof is that of the password. Its time does not depend on the proof."""
        if len(proof) != mechanism.hash_bytes:
            return False
        signature = _hmac(mechanism, self.stored_key, auth_message)
        claimed = stored_key(mechanism, _xor(signature, proof))
        return hmac.compare_digest(claimed, self.stored_key)

    def accepts_salted(self, mechanism: ScramMechanism, salted: bytes) -> bool:
        """Whether the salted password is that of the credential."""
        claimed = stored_key(mechanism, client_key(mechanism, salted))
        return hmac.compare_digest(claimed, self.stored_key)


# ----------------------------------------------------------------------------- messages

_BASE64 = r"[A-Za-z0-9+/]*={0,2}"
_NONCE = r"[\x21-\x2b\x2d-\x7e]+"  # printable ASCII without the comma
_NAME = r"(?:[^\x00,=]|=2C|=3D)*"
_EXTENSIONS = r"(?:,[A-Za-z]+=[^\x00,]*)*"

_CLIENT_FIRST = re.compile(
    rf"(?P<gs2>[ny],(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<user>{_NAME}),r=(?P<nonce>{_NONCE})(?P<extensions>{_EXTENSIONS}))",
    re.DOTALL,
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]{{0,9}}){_EXTENSIONS}",
    re.DOTALL,
)
_CLIENT_FINAL = re.compile(
    rf"(?P<bare>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
    rf",p=(?P<proof>{_BASE64})",
    re.DOTALL,
)
_SERVER_FINAL = re.compile(
    rf"(?:e=(?P<error>[^,]*)|v=(?P<signature>{_BASE64})){_EXTENSIONS}", re.DOTALL
)


def escaped(name: str) -> str:
    """A user's name as messages have it."""
    return name.replace("=", "=3D").replace(",", "=2C")


def unescaped(text: str) -> str:
    """The user's name of a message."""
    return text.replace("=2C", ",").replace("=3D", "=")


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ScramError(f"{what} is no base64") from error


def _matched(pattern: re.Pattern[str], message: bytes, what: str) -> re.Match[str]:
    try:
        text = message.decode()
    except UnicodeDecodeError as error:
        raise ScramError(f"{what} is not UTF-8") from error
    match = pattern.fullmatch(text)
    if match is None:
        raise ScramError(f"{what} is malformed")
    return match


def _extensions(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in filter(None, text.split(",")):
        name, _, value = item.partition("=")
        if name == "m":
            raise ScramError("the client demands an extension that is not known (m=)")
        if name in found:
            raise ScramError(f"the extension {name} stands twice")
        found[name] = value
    return found


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """``n,,n=user,r=nonce``"""

    gs2: str  # the channel binding's header, which the last message repeats
    bare: str
    user: str
    nonce: str
    authzid: str
    extensions: Mapping[str, str]

    @classmethod
    def of(cls, user: str, nonce: str, extensions: Mapping[str, str] | None = None) -> ClientFirst:
        """The first message of a client."""
        extended = dict(extensions or {})
        more = "".join(f",{name}={value}" for name, value in extended.items())
        return cls("n,,", f"n={escaped(user)},r={nonce}{more}", user, nonce, "", extended)

    @classmethod
    def parse(cls, message: bytes) -> ClientFirst:
        """Raises ScramError."""
        if message[:2] == b"p=":
            raise ScramError("the client demands channel binding, which no mechanism here has")
        found = _matched(_CLIENT_FIRST, message, "the client's first message")
        return cls(
            found["gs2"],
            found["bare"],
            unescaped(found["user"]),
            found["nonce"],
            unescaped(found["authzid"] or ""),
            _extensions(found["extensions"]),
        )

    def encode(self) -> bytes:
        return (self.gs2 + self.bare).encode()


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """``r=nonces,s=salt,i=iterations``"""

    text: str
    nonce: str  # the client's, and then the server's
    salt: bytes
    iterations: int

    @classmethod
    def of(cls, nonce: str, salt: bytes, iterations: int) -> ServerFirst:
        """The server's challenge."""
        return cls(f"r={nonce},s={_encoded(salt)},i={iterations}", nonce, salt, iterations)

    @classmethod
    def parse(cls, message: bytes) -> ServerFirst:
        """Raises ScramError."""
        found = _matched(_SERVER_FIRST, message, "the server's challenge")
        salt = _decoded(found["salt"], "the salt")
        return cls(found[0], found["nonce"], salt, int(found["iterations"]))

    def encode(self) -> bytes:
        return self.text.encode()


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """``c=binding,r=nonces,p=proof``"""

    bare: str  # without the proof
    binding: bytes
    nonce: str
    proof: bytes

    @classmethod
    def of(cls, gs2: str, nonce: str) -> ClientFinal:
        """The client's second message, which has no proof yet."""
        binding = gs2.encode()
        return cls(f"c={_encoded(binding)},r={nonce}", binding, nonce, b"")

    @classmethod
    def parse(cls, message: bytes) -> ClientFinal:
        """Raises ScramError."""
        found = _matched(_CLIENT_FINAL, message, "the client's final message")
        return cls(
            found["bare"],
            _decoded(found["binding"], "the channel binding"),
            found["nonce"],
            _decoded(found["proof"], "the proof"),
        )

    def encode(self, proof: bytes) -> bytes:
        return f"{self.bare},p={_encoded(proof)}".encode()


def auth_message(first: ClientFirst, challenge: ServerFirst, final: ClientFinal) -> bytes:
    """The bytes that both proofs cover."""
    return ",".join((first.bare, challenge.text, final.bare)).encode()


def server_final(signature: bytes) -> bytes:
    """``v=signature``"""
    return f"v={_encoded(signature)}".encode()


def parse_server_final(message: bytes) -> bytes:
    """The server's signature. Raises ScramError, also for the server's error (``e=…``)."""
    found = _matched(_SERVER_FINAL, message, "the server's last message")
    if found["error"] is not None:
        raise ScramError(f"the server refused: {found['error']}")
    return _decoded(found["signature"], "the server's signature")
