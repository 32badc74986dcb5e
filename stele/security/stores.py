"""Key stores and trust stores: PEM (files and inline) and PKCS12.

The type of a store is that of its content. Kafka's default type is JKS, so a store of this type may
still hold PKCS12, as Java's keytool writes it, or PEM. A store that is really in Java's own format
(JKS) is refused with the command that converts it.
"""

from __future__ import annotations

import datetime
import hashlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, pkcs12

from stele.security.client_security import Store
from stele.security.pem import (
    PrivateKey,
    StoreError,
    blocks_of,
    certificate_of,
    checked_key,
    key_of,
)

JKS, PKCS12, PEM = "JKS", "PKCS12", "PEM"
TYPES: Final = (JKS, PKCS12, PEM)

_JAVAS_FORMATS: Final = {b"\xfe\xed\xfe\xed": "JKS", b"\xce\xce\xce\xce": "JCEKS"}
_DER_SEQUENCE: Final = b"\x30"


Naming = Callable[[str], str]
"""The name of a setting as its user knows it. ``ssl.key.password`` is ``ssl_key_password`` to a
client, and may be ``listener.name.external.ssl.key.password`` to a node."""


def of_clients(setting: str) -> str:
    """How clients name a setting."""
    return setting.replace(".", "_")


@dataclass(frozen=True)
class KeyStore:
    """A private key and the chain of its certificate. The key fits the first certificate."""

    key: PrivateKey
    chain: tuple[x509.Certificate, ...]
    source: str

    @property
    def certificate(self) -> x509.Certificate:
        return self.chain[0]

    @cached_property
    def key_pem(self) -> bytes:
        """The key without encryption, as PKCS#8."""
        return self.key.private_bytes(
            Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @cached_property
    def chain_pem(self) -> bytes:
        return pem_of(self.chain)


@dataclass(frozen=True)
class TrustStore:
    """The certificates of the authorities that are trusted."""

    certificates: tuple[x509.Certificate, ...]
    source: str

    @cached_property
    def pem(self) -> bytes:
        return pem_of(self.certificates)


def pem_of(certificates: Sequence[x509.Certificate]) -> bytes:
    return b"".join(each.public_bytes(Encoding.PEM) for each in certificates)


def fingerprint(certificate: x509.Certificate) -> str:
    """The SHA-256 fingerprint of a certificate."""
    return _colons(certificate.public_bytes(Encoding.DER))


def alternative_names(certificate: x509.Certificate) -> frozenset[str]:
    """The names of a certificate, each with its type, e.g. ``DNS:node-1`` and ``IP:10.0.0.1``."""
    return frozenset(_written(name) for name in _names(certificate))


def _names(certificate: x509.Certificate) -> list[x509.GeneralName]:
    try:
        extension = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return list(extension.value)


def _written(name: x509.GeneralName) -> str:
    if isinstance(name, x509.DNSName):
        return f"DNS:{name.value.lower()}"
    if isinstance(name, x509.IPAddress):
        return f"IP:{name.value}"
    if isinstance(name, x509.UniformResourceIdentifier):
        return f"URI:{name.value}"
    return f"{type(name).__name__}:{name.value}"


def _day(moment: datetime.datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def check_dates(certificate: x509.Certificate, now: datetime.datetime, source: str) -> None:
    """Raises StoreError if the certificate is not valid now."""
    subject = certificate.subject.rfc4514_string()
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > ends:
        raise StoreError(
            f"{source}: the certificate of {subject!r} expired on {ends:%Y-%m-%d %H:%M} UTC"
        )
    if now < begins:
        raise StoreError(
            f"{source}: the certificate of {subject!r} is valid only from {_day(begins)}"
        )


# ------------------------------------------------------------------------------ key stores


def read_own_keys(
    store: Store, named: Naming = of_clients, valid_at: datetime.datetime | None = None
) -> KeyStore | None:
    """What a client shows of itself, None if nothing is set. Raises StoreError, also if the
    certificate is not valid at ``valid_at``."""
    if store.is_empty:
        return None
    keys = read_key_store(store, named)
    if valid_at is not None:
        check_dates(keys.certificate, valid_at, keys.source)
    return keys


def read_key_store(store: Store, named: Naming = of_clients) -> KeyStore:
    """Read a key store that is set. Raises StoreError."""
    if store.key or store.certificates:
        return _inline_key_store(store, named)
    data, kind = _content(store, "keystore", named)
    source = store.location or ""
    if kind != PEM:
        return _key_store_of_pkcs12(data, store, source, named)
    if store.password:
        raise StoreError(
            f"{source}: a PEM file has no store password; set {named('ssl.key.password')} for an "
            f"encrypted key, and not {named('ssl.keystore.password')}"
        )
    blocks = blocks_of(_text(data), source)
    keys = [block for block in blocks if block.is_key]
    if len(keys) != 1:
        raise StoreError(
            f"{source} has {len(keys)} private keys; a key store in PEM form is one file with "
            "one key and its chain of certificates"
        )
    key = key_of(keys[0], store.key_password, source, named("ssl.key.password"))
    chain = tuple(certificate_of(block, source) for block in blocks if block.is_certificate)
    return _fitting(key, chain, source)


def _inline_key_store(store: Store, named: Naming) -> KeyStore:
    chain, key = named("ssl.keystore.certificate.chain"), named("ssl.keystore.key")
    if not (store.certificates and store.key):
        missing, there = (chain, key) if store.key else (key, chain)
        raise StoreError(f"{there} is set without {missing}: set both")
    if store.location:
        raise StoreError(f"{named('ssl.keystore.location')} and {key} are both set: choose one")
    _check_inline(store, "keystore", key, named)
    keys = [block for block in blocks_of(store.key, key) if block.is_key]
    if len(keys) != 1:
        raise StoreError(f"{key} has {len(keys)} private keys in PEM form; it must have one")
    private = key_of(keys[0], store.key_password, key, named("ssl.key.password"))
    blocks = [block for block in blocks_of(store.certificates, chain) if block.is_certificate]
    return _fitting(private, tuple(certificate_of(block, chain) for block in blocks), chain)


def _check_inline(store: Store, kind: str, setting: str, named: Naming) -> None:
    if store.type not in (None, PEM):
        raise StoreError(f"{setting} is PEM: set {named(f'ssl.{kind}.type')}=PEM")
    if store.password:
        raise StoreError(f"{setting} is PEM: remove {named(f'ssl.{kind}.password')}")


def _key_store_of_pkcs12(data: bytes, store: Store, source: str, named: Naming) -> KeyStore:
    found = _pkcs12(data, store, source, named("ssl.keystore.password"))
    if found.key is None or found.cert is None:
        raise StoreError(f"{source} has no private key with a certificate; is it a trust store?")
    others = [each.certificate for each in found.additional_certs]
    key = checked_key(found.key, f"{source}: the private key")
    return _fitting(key, _chain(found.cert.certificate, others), source)


def _chain(leaf: x509.Certificate, others: list[x509.Certificate]) -> tuple[x509.Certificate, ...]:
    """The leaf and its issuers in order: a PKCS12 file has them in any order."""
    chain, left = [leaf], [each for each in others if each != leaf]
    while chain[-1].issuer != chain[-1].subject:
        issuer = next((each for each in left if each.subject == chain[-1].issuer), None)
        if issuer is None:
            break
        left.remove(issuer)
        chain.append(issuer)
    return tuple(chain)


def _fitting(key: PrivateKey, chain: tuple[x509.Certificate, ...], source: str) -> KeyStore:
    """Raises StoreError if the key is not that of the first certificate."""
    if not chain:
        raise StoreError(f"{source} has no certificate for the private key")
    own = _fingerprint_of(key.public_key())
    try:
        of_chain = [_fingerprint_of(each.public_key()) for each in chain]
    except (ValueError, UnsupportedAlgorithm) as error:
        raise StoreError(f"{source}: the key of a certificate cannot be read: {error}") from None
    if own == of_chain[0]:
        return KeyStore(key, chain, source)
    hint = ""
    if own in of_chain:
        number = of_chain.index(own) + 1
        hint = f"; it fits certificate {number}: the certificate of the key must stand first"
    raise StoreError(
        f"{source}: the private key does not fit the certificate of "
        f"{chain[0].subject.rfc4514_string()!r}: the SHA-256 fingerprint of the key's public half "
        f"is {own}, and that of the certificate's is {of_chain[0]}{hint}"
    )


def _fingerprint_of(key: CertificatePublicKeyTypes) -> str:
    return _colons(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


def _colons(data: bytes) -> str:
    return hashlib.sha256(data).digest().hex(":").upper()


# ---------------------------------------------------------------------------- trust stores


def read_trust_store(store: Store, named: Naming = of_clients) -> TrustStore:
    """Read a trust store that is set. Raises StoreError."""
    if store.certificates:
        setting = named("ssl.truststore.certificates")
        if store.location:
            location = named("ssl.truststore.location")
            raise StoreError(f"{location} and {setting} are both set: choose one")
        _check_inline(store, "truststore", setting, named)
        return _trust_of_pem(store.certificates, setting)
    data, kind = _content(store, "truststore", named)
    source = store.location or ""
    if kind == PEM:
        if store.password:
            password = named("ssl.truststore.password")
            raise StoreError(f"{source}: a PEM file has no store password: remove {password}")
        return _trust_of_pem(_text(data), source)
    found = _pkcs12(data, store, source, named("ssl.truststore.password"))
    trusted = tuple(each.certificate for each in found.additional_certs)
    if not trusted or found.key is not None:
        raise StoreError(f"{source} has no trusted certificates; is it a key store?")
    return TrustStore(trusted, source)


def _trust_of_pem(text: str, source: str) -> TrustStore:
    blocks = blocks_of(text, source)
    found = tuple(certificate_of(block, source) for block in blocks if block.is_certificate)
    if not found:
        raise StoreError(f"{source} has no certificate in PEM form")
    return TrustStore(found, source)


# ---------------------------------------------------------------------------------- files


def _content(store: Store, kind: str, named: Naming) -> tuple[bytes, str]:
    """A store's bytes and its true type. ``kind`` is keystore or truststore."""
    location, setting = store.location or "", named(f"ssl.{kind}.location")
    declared = (store.type or "").upper()
    if declared and declared not in TYPES:
        raise StoreError(f"{named(f'ssl.{kind}.type')}={store.type}: it must be PEM or PKCS12")
    try:
        data = Path(location).read_bytes()
    except OSError as error:
        raise StoreError(f"{setting}={location}: {error.strerror}") from None
    java = _JAVAS_FORMATS.get(data[:4])
    if java is not None:
        converted = f"{location.removesuffix('.jks')}.p12"
        raise StoreError(
            f"{location} is in Java's format {java}, which only Java reads. Convert it: keytool "
            f"-importkeystore -srckeystore {shlex.quote(location)} -srcstoretype {java} "
            f"-destkeystore {shlex.quote(converted)} -deststoretype PKCS12, "
            f"then set {setting}={converted}"
        )
    found = PKCS12 if data[:1] == _DER_SEQUENCE else PEM
    if found == PEM and b"-----BEGIN " not in data:
        raise StoreError(f"{location} is neither PEM nor PKCS12")
    if declared not in ("", JKS, found):
        raise StoreError(f"{location} is {found}: set {named(f'ssl.{kind}.type')}={found}")
    return data, found


def _text(data: bytes) -> str:
    """Around the blocks, which are ASCII, there may be text in any encoding."""
    return data.decode("latin-1")


def _pkcs12(
    data: bytes, store: Store, source: str, setting: str
) -> pkcs12.PKCS12KeyAndCertificates:
    """``setting``: the name of the password's setting."""
    password = store.password.encode() if store.password else None
    try:
        return pkcs12.load_pkcs12(data, password)
    except (ValueError, TypeError) as error:
        asked = f"is {setting} right?" if password else f"{setting} is not set"
        raise StoreError(f"{source} cannot be read as PKCS12: {error}; {asked}") from None
