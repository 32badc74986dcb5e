"""The small certificate authority: what it issues is believed by OpenSSL, and says who it is."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from security.authority import (
    MAPPING_RULES,
    Authority,
    AuthorityError,
    Keystore,
    Subject,
    facts_of,
    subject_of,
)
from security.distinguished_name import subject_of as java_subject_of
from security.node_identity import named_nodes
from security.principal import MappingRules

DER = serialization.Encoding.DER
NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
AUTHORITY = Authority.make(NOW)
NODE = Subject.node(7, ["b7.example.com", "10.0.0.7", "::1"])


def principal_of(pem: str) -> str:
    certificate = x509.load_pem_x509_certificate(pem.encode())
    return MappingRules(MAPPING_RULES).name_of(java_subject_of(certificate.public_bytes(DER)))


def test_a_nodes_certificate() -> None:
    issued = AUTHORITY.issue(NODE, NOW, days=30)
    (facts,) = facts_of(issued.certificate)
    assert facts.names == ("b7.example.com", "10.0.0.7", "::1", "stele:node:7")
    assert facts.subject == "CN=node-7,OU=nodes,O=Stele"
    assert facts.days_left(NOW) == 30
    assert facts.days_left(NOW + timedelta(days=31)) == -1
    assert not facts.is_authority
    assert facts_of(AUTHORITY.certificate)[0].is_authority
    assert named_nodes(x509.load_pem_x509_certificate(issued.certificate.encode())) == {7}
    assert principal_of(issued.certificate) == "nodes"


@pytest.mark.parametrize("name", ["ann", "Ann Lee", "a,b=c"])
def test_a_users_certificate(name: str) -> None:
    issued = AUTHORITY.issue(Subject.user(name), NOW)
    assert facts_of(issued.certificate)[0].names == ()
    assert principal_of(issued.certificate).replace("\\", "") == name


def test_a_user_called_like_the_nodes_is_known_by_its_unit() -> None:
    """A user may call itself node-1: the unit in its name tells it from a node."""
    issued = AUTHORITY.issue(Subject.user("node-1"), NOW)
    assert principal_of(issued.certificate) == "node-1"
    assert named_nodes(x509.load_pem_x509_certificate(issued.certificate.encode())) == frozenset()


def test_a_successor_has_the_same_subject_and_another_key() -> None:
    for subject in (NODE, Subject.user("ann")):
        issued = AUTHORITY.issue(subject, NOW)
        assert subject_of(issued.certificate) == subject
        again = AUTHORITY.issue(subject_of(issued.certificate), NOW)
        assert again.key != issued.key


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_two_sides_believe_one_another(version: ssl.TLSVersion, tmp_path: object) -> None:
    made = Authority.make(datetime.now(UTC))  # OpenSSL looks at the real clock
    server = made.issue(NODE, datetime.now(UTC))
    client = made.issue(Subject.user("ann"), datetime.now(UTC))
    server_context = _context(ssl.PROTOCOL_TLS_SERVER, made, server.text, tmp_path)
    server_context.verify_mode = ssl.CERT_REQUIRED
    client_context = _context(ssl.PROTOCOL_TLS_CLIENT, made, client.text, tmp_path)
    client_context.minimum_version = client_context.maximum_version = version
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client_context.wrap_bio(to_client, to_server, server_hostname="b7.example.com"),
        server_context.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    seen = ends[1].getpeercert()
    assert seen is not None
    assert seen["subject"][2] == (("commonName", "ann"),)


def _context(side: int, authority: Authority, keystore: str, folder: object) -> ssl.SSLContext:
    context = ssl.SSLContext(side)
    context.load_verify_locations(cadata=authority.certificate)
    file = folder / "keystore.pem"  # type: ignore[operator]
    file.write_text(keystore)
    context.load_cert_chain(file)
    return context


def test_an_authority_issues_nothing_that_outlives_it() -> None:
    short = Authority.make(NOW, days=10)
    short.issue(NODE, NOW, days=10)
    with pytest.raises(AuthorityError, match="ends on 2026-05-14"):
        short.issue(NODE, NOW, days=11)


def test_two_authorities_have_two_names() -> None:
    first, second = (facts_of(Authority.make(NOW).certificate)[0].subject for _ in range(2))
    assert first != second


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Subject.node(1, []), "node 1 needs a host name"),
        (lambda: Subject.user(""), "1 to 64 characters"),
        (lambda: Subject.user("x" * 65), "1 to 64 characters"),
        (lambda: Subject.user("nodes"), "the rights of a node"),
        (lambda: AUTHORITY.issue(Subject.node(1, ["bücher"]), NOW), "neither a host name"),
        (lambda: AUTHORITY.issue(NODE, NOW, days=0), "at least one day"),
        (lambda: facts_of("nothing"), "no certificate in PEM"),
        (lambda: subject_of(AUTHORITY.certificate), "not a certificate of a node or user"),
        (
            lambda: Authority(AUTHORITY.issue(NODE, NOW)).issue(NODE, NOW, days=400),
            "before a certificate",
        ),
    ],
)
def test_what_cannot_be_issued(make: object, said: str) -> None:
    with pytest.raises(AuthorityError, match=said):
        make()  # type: ignore[operator]


def test_a_users_name_and_the_days_of_a_certificate_have_bounds() -> None:
    assert subject_of(AUTHORITY.issue(Subject.user("a" * 64), NOW).certificate)
    with pytest.raises(AuthorityError):
        Subject.user("a" * 65)
    (facts,) = facts_of(AUTHORITY.issue(NODE, NOW, days=1).certificate)
    assert facts.days_left(NOW) == 1
    with pytest.raises(AuthorityError, match="at least one day, not 0"):
        AUTHORITY.issue(NODE, NOW, days=0)


@pytest.mark.parametrize(
    ("common_names", "units", "said"),
    [
        ([], ["users"], "not a certificate of a node or user"),
        (["ann", "bob"], ["users"], "not a certificate of a node or user"),
        (["ann"], [], "not a certificate of a node or user"),
        (["ann"], ["users", "nodes"], "not a certificate of a node or user"),
        (["node-7"], ["nodes"], "names no node, such as stele:node:1"),
    ],
)
def test_another_certificate_has_no_successor(
    common_names: list[str], units: list[str], said: str
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, each) for each in common_names]
    attributes += [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, each) for each in units]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(attributes))
        .issuer_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    with pytest.raises(AuthorityError, match=said):
        subject_of(certificate.public_bytes(serialization.Encoding.PEM).decode())


@pytest.mark.parametrize(
    ("key", "said"),
    [
        (rsa.generate_private_key(65537, 2048), "not on an elliptic curve"),
        (ec.generate_private_key(ec.SECP256R1()), "does not fit its certificate"),
    ],
)
def test_an_authority_with_another_key_issues_nothing(
    key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, said: str
) -> None:
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    other = Authority(Keystore(AUTHORITY.certificate, private))
    with pytest.raises(AuthorityError, match=said):
        other.issue(NODE, NOW)
