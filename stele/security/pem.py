"""Blocks of PEM text: found, numbered and read, with errors that name the block.

Files of certificates and keys are made by many tools, so more is taken than Kafka takes: keys in
PKCS#8, PKCS#1 and SEC1 form, with and without encryption, text before and between the blocks, and a
block whose lines were joined by blanks or by a literal ``\\n`` in a property or a variable.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from stele.errors import SteleError

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey
CERTIFICATE: Final = "CERTIFICATE"

_BLOCK: Final = re.compile(
    r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----(?P<body>.*?)-----END (?P=label)-----", re.DOTALL
)
_BEGIN: Final = re.compile(r"-----BEGIN (?P<label>[A-Z0-9 ]+)-----")
_HEADER: Final = re.compile(r"^[A-Za-z-]+: .*$", re.MULTILINE)
_LABELS_OF_CERTIFICATES: Final = (CERTIFICATE, "X509 CERTIFICATE", "TRUSTED CERTIFICATE")


class StoreError(SteleError):
    """A store of keys or certificates cannot be used; the message says where and why."""


class Block(NamedTuple):
    """One block of PEM."""

    number: int  # from 1, within its text
    label: str
    pem: bytes  # in the common layout

    @property
    def is_certificate(self) -> bool:
        return self.label in _LABELS_OF_CERTIFICATES

    @property
    def is_key(self) -> bool:
        return self.label.endswith("PRIVATE KEY")

    def __str__(self) -> str:
        return f"block {self.number} ({self.label})"


def blocks_of(text: str, source: str) -> list[Block]:
    """All blocks of a text. ``source`` names the text in errors. Raises StoreError."""
    text = text.replace("\\n", "\n").replace("\r\n", "\n")
    found: list[Block] = []
    for match in _BLOCK.finditer(text):
        number, label = len(found) + 1, match["label"]
        found.append(Block(number, label, _laid_out(number, label, match["body"], source)))
    begun = len(_BEGIN.findall(text))
    if begun > len(found):
        raise StoreError(
            f"{source}: block {len(found) + 1} has no matching -----END line; is the file cut off?"
        )
    return found


def _laid_out(number: int, label: str, body: str, source: str) -> bytes:
    headers = _HEADER.findall(body)
    content = "".join(_HEADER.sub("", body).split())
    try:
        base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise StoreError(f"{source}: block {number} ({label}) is no base64: {error}") from None
    lines = [content[start : start + 64] for start in range(0, len(content), 64)]
    # The headers say how a key of the old form is encrypted.
    said = [*headers, ""] if headers else []
    return "\n".join(
        [f"-----BEGIN {label}-----", *said, *lines, f"-----END {label}-----", ""]
    ).encode()


def certificate_of(block: Block, source: str) -> x509.Certificate:
    """Raises StoreError."""
    body = block.pem
    if block.label != CERTIFICATE:
        body = body.replace(block.label.encode(), CERTIFICATE.encode())
    try:
        return x509.load_pem_x509_certificate(body)
    except ValueError as error:
        raise StoreError(f"{source}: {block} is no certificate: {error}") from None


def key_of(block: Block, password: str | None, source: str, setting: str) -> PrivateKey:
    """The private key of a block. ``setting`` is the name under which its password is set.

    A password that the key does not need is no error. Raises StoreError.
    """
    is_encrypted = block.label.startswith("ENCRYPTED") or b"ENCRYPTED" in block.pem[:200]
    if is_encrypted and not password:
        raise StoreError(f"{source}: {block} is encrypted: set {setting}")
    try:
        key = load_pem_private_key(
            block.pem, password.encode() if is_encrypted and password else None
        )
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        hint = f"; is {setting} right?" if is_encrypted else ""
        raise StoreError(f"{source}: {block} cannot be read: {_line(error)}{hint}") from None
    return checked_key(key, f"{source}: {block}")


def checked_key(key: object, where: str) -> PrivateKey:
    """The key, if TLS can use it. Raises StoreError."""
    if isinstance(key, PrivateKey):
        return key
    kind = type(key).__name__.removesuffix("PrivateKey").removeprefix("_")
    raise StoreError(f"{where} is a key of type {kind}; TLS takes RSA, EC and Ed25519 keys")


def _line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
