"""A small certificate authority, for clusters that have none: certificates for nodes and users.

Everything is PEM. A keystore is a key with its certificates in one text, as Kafka's keys
``ssl.keystore.location`` and ``ssl.keystore.type=PEM`` want it. Keys are on the curve P-256: a
handshake with them costs a server a fraction of one with RSA.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from security.node_identity import named_nodes, node_uri

ORGANIZATION: Final = "Stele"
NODES: Final = "nodes"
USERS: Final = "users"
NODE_RULE: Final = f"RULE:^CN=node-[0-9]+,OU={NODES},O={ORGANIZATION}$/{NODES}/"
USER_RULE: Final = f"RULE:^CN=(.*),OU={USERS},O={ORGANIZATION}$/$1/"
MAPPING_RULES: Final = f"{NODE_RULE},{USER_RULE},DEFAULT"
"""``ssl.principal.mapping.rules`` for the certificates made here: all nodes are User:nodes, and a
user is User:<name>."""

AUTHORITY_DAYS: Final = 3650
DAYS: Final = 365

_CLOCK_SKEW: Final = timedelta(minutes=5)


class AuthorityError(ValueError):
    """A certificate cannot be made, or a file is no certificate. The text is for people."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The owner of a certificate: a node with the names by which it is reached, or a user."""

    name: str
    hosts: tuple[str, ...] = ()
    node_id: int | None = None

    @classmethod
    def node(cls, node_id: int, hosts: Sequence[str]) -> Self:
        if not hosts:
            raise AuthorityError(f"node {node_id} needs a host name or an address")
        return cls(f"node-{node_id}", tuple(dict.fromkeys(hosts)), node_id)

    @classmethod
    def user(cls, name: str) -> Self:
        if not name or len(name) > 64:
            raise AuthorityError(f"the name of a user has 1 to 64 characters, {name!r} does not")
        if name == NODES:
            raise AuthorityError(f"a user called {NODES} would have the rights of a node")
        return cls(name)

    @property
    def unit(self) -> str:
        return USERS if self.node_id is None else NODES


@dataclass(frozen=True, slots=True)
class Keystore:
    """A certificate and its key, as PEM."""

    certificate: str
    key: str = field(repr=False)

    @property
    def text(self) -> str:
        """Both in one text, the key first."""
        return self.key + self.certificate


@dataclass(frozen=True, slots=True)
class Authority:
    """The certificate that everybody believes, and the key that signs."""

    keystore: Keystore

    @classmethod
    def make(cls, now: datetime, days: int = AUTHORITY_DAYS) -> Self:
        """A new authority that is valid from now on."""
        key = ec.generate_private_key(ec.SECP256R1())
        serial = x509.random_serial_number()
        # Two authorities need two names: a chain is found by name.
        name = _name(f"Stele authority {serial:x}"[:32], "authorities")
        certificate = (
            _builder(name, name, key.public_key(), serial, now, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        return cls(_keystore(certificate, key))

    @property
    def certificate(self) -> str:
        return self.keystore.certificate

    def issue(self, subject: Subject, now: datetime, days: int = DAYS) -> Keystore:
        """A new key and a certificate for it. Raises AuthorityError if the authority would end
        before it."""
        own, own_key = _parsed(self.keystore)
        if now + timedelta(days=days) > own.not_valid_after_utc:
            raise AuthorityError(
                f"the authority ends on {own.not_valid_after_utc:%Y-%m-%d}, before a certificate "
                f"of {days} days: renew the authority, or ask for fewer days"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if subject.node_id is not None:
            purposes.insert(0, ExtendedKeyUsageOID.SERVER_AUTH)
        name = _name(subject.name, subject.unit)
        serial = x509.random_serial_number()
        builder = (
            _builder(name, own.subject, key.public_key(), serial, now, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(own_key.public_key()),
                critical=False,
            )
        )
        if subject.node_id is not None:
            builder = builder.add_extension(
                _alternative_names(subject.node_id, subject.hosts), critical=False
            )
        return _keystore(builder.sign(own_key, hashes.SHA256()), key)


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """What a person wants to know of a certificate."""

    subject: str  # RFC 4514
    issuer: str
    names: tuple[str, ...]  # alternative names, in the order of the certificate
    not_before: datetime
    not_after: datetime
    fingerprint: str  # SHA-256
    is_authority: bool

    def days_left(self, now: datetime) -> int:
        """Whole days; negative: it has expired."""
        return (self.not_after - now).days


def facts_of(pem: str) -> list[CertificateFacts]:
    """The facts of each certificate in a text. Raises AuthorityError if there is none."""
    try:
        found = x509.load_pem_x509_certificates(pem.encode())
    except ValueError as error:
        raise AuthorityError(f"no certificate in PEM: {error}") from None
    return [_facts(each) for each in found]


def subject_of(pem: str) -> Subject:
    """The subject of a certificate that was made here, for its successor. Raises AuthorityError."""
    facts = facts_of(pem)[0]
    certificate = x509.load_pem_x509_certificate(pem.encode())
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    units = certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    if len(names) != 1 or len(units) != 1 or units[0].value not in (NODES, USERS):
        raise AuthorityError(f"{facts.subject} is not a certificate of a node or user made here")
    name = str(names[0].value)
    if units[0].value == USERS:
        return Subject.user(name)
    node_ids = named_nodes(certificate)
    if len(node_ids) != 1:
        raise AuthorityError(f"{facts.subject} names no node, such as {node_uri(1)}")
    (node_id,) = node_ids
    return Subject.node(node_id, [each for each in facts.names if each != node_uri(node_id)])


def _facts(certificate: x509.Certificate) -> CertificateFacts:
    names: list[str] = []
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            names = [str(each.value) for each in extension.value]
    constraints = [
        each.value.ca
        for each in certificate.extensions
        if isinstance(each.value, x509.BasicConstraints)
    ]
    return CertificateFacts(
        subject=certificate.subject.rfc4514_string(),
        issuer=certificate.issuer.rfc4514_string(),
        names=tuple(names),
        not_before=certificate.not_valid_before_utc,
        not_after=certificate.not_valid_after_utc,
        fingerprint=certificate.fingerprint(hashes.SHA256()).hex(":"),
        is_authority=constraints == [True],
    )


def _name(common: str, unit: str) -> x509.Name:
    """Encoded with the widest part first; Java writes it the other way around."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    serial: int,
    now: datetime,
    days: int,
) -> x509.CertificateBuilder:
    if days < 1:
        raise AuthorityError(f"a certificate is valid for at least one day, not {days}")
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(serial)
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative_names(node_id: int, hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            try:
                names.append(x509.DNSName(host))
            except ValueError:
                raise AuthorityError(f"{host!r} is neither a host name nor an address") from None
    names.append(x509.UniformResourceIdentifier(node_uri(node_id)))
    return x509.SubjectAlternativeName(names)


def _keystore(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Keystore:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Keystore(certificate.public_bytes(pem).decode(), private.decode())


def _parsed(keystore: Keystore) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate(keystore.certificate.encode())
        key = serialization.load_pem_private_key(keystore.key.encode(), password=None)
    except (ValueError, TypeError) as error:
        raise AuthorityError(f"the authority cannot be read: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise AuthorityError("the authority's key is not on an elliptic curve")
    if certificate.public_key() != key.public_key():
        raise AuthorityError("the authority's key does not fit its certificate")
    return certificate, key
