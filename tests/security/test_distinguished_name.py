"""The text of a certificate's subject, byte by byte and against a plain twin."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st

from security.distinguished_name import (
    KEYWORDS,
    MalformedNameError,
    elements,
    subject_of,
    text_of_name,
)

KEY = ec.generate_private_key(ec.SECP256R1())
DAY = datetime.timedelta(days=1)
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def certificate(subject: x509.Name) -> bytes:
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")]))
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + DAY)
    )
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def name(*pairs: tuple[ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in pairs])


def text(subject: x509.Name) -> str:
    return subject_of(certificate(subject))


def test_the_last_attribute_comes_first_without_blanks() -> None:
    subject = name(
        (NameOID.COUNTRY_NAME, "DE"),
        (NameOID.STATE_OR_PROVINCE_NAME, "Bavaria"),
        (NameOID.LOCALITY_NAME, "Munich"),
        (NameOID.ORGANIZATION_NAME, "Acme"),
        (NameOID.ORGANIZATIONAL_UNIT_NAME, "Logs"),
        (NameOID.COMMON_NAME, "node-1"),
    )
    assert text(subject) == "CN=node-1,OU=Logs,O=Acme,L=Munich,ST=Bavaria,C=DE"


def test_rfc_2253_names_nine_types() -> None:
    subject = name(
        (NameOID.USER_ID, "u"), (NameOID.DOMAIN_COMPONENT, "d"), (NameOID.STREET_ADDRESS, "s")
    )
    assert text(subject) == "STREET=s,DC=d,UID=u"
    assert len(KEYWORDS) == 9


def test_other_types_are_written_as_identifier_and_bytes() -> None:
    subject = name((NameOID.EMAIL_ADDRESS, "a"), (NameOID.SERIAL_NUMBER, "12"))
    assert text(subject) == "2.5.4.5=#13023132,1.2.840.113549.1.9.1=#160161"


def test_a_subject_without_attributes_is_empty() -> None:
    assert text(x509.Name([])) == ""


def test_attributes_of_one_part_are_joined_by_plus() -> None:
    part = x509.RelativeDistinguishedName(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, "a"),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "b"),
        ]
    )
    end = x509.RelativeDistinguishedName([x509.NameAttribute(NameOID.LOCALITY_NAME, "c")])
    assert text(x509.Name([part, end])) == "L=c,CN=a+O=b"


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a,b", r"a\,b"),
        (r'a+b<c>d;e"f=g\h#', r"a\+b\<c\>d\;e\"f\=g\\h\#"),
        (" a b ", r"\ a b\ "),
        ("  ", r"\ \ "),
        ("\r\na\r", "\\\r\na\\\r"),
        ("a\0b", r"a\00b"),
        ("M\u00fcnchen \U0001f600", "M\u00fcnchen \U0001f600"),
        ("a/b:c", "a/b:c"),
    ],
)
def test_special_characters_have_a_backslash(value: str, written: str) -> None:
    assert text(name((NameOID.COMMON_NAME, value))) == f"CN={written}"


@pytest.mark.parametrize(
    ("tag", "content", "written"),
    [
        (0x0C, "\u00fc".encode(), "\u00fc"),
        (0x13, b"a", "a"),
        (0x14, b"\xfc", "\u00fc"),
        (0x16, b"a", "a"),
        (0x1B, b"a", "a"),
        (0x1C, "\u00fc".encode("utf-32-be"), "\u00fc"),
        (0x1E, "\u00fc".encode("utf-16-be"), "\u00fc"),
        (0x02, b"\x05", "#020105"),  # no string
        (0x0C, b"\xff", "\ufffd"),
    ],
)
def test_each_encoding_of_a_string_is_read(tag: int, content: bytes, written: str) -> None:
    value = bytes([tag, len(content)]) + content
    kind = bytes.fromhex("0603550403")
    attribute = b"\x30" + bytes([len(kind + value)]) + kind + value
    assert text_of_name(b"\x31" + bytes([len(attribute)]) + attribute) == f"CN={written}"


@pytest.mark.parametrize(
    ("encoded", "dotted"),
    [("00", "0.0"), ("27", "0.39"), ("28", "1.0"), ("4f", "1.39"), ("50", "2.0"),
     ("8837", "2.999"), ("2a864886f70d010901", "1.2.840.113549.1.9.1")],
)  # fmt: skip
def test_object_identifiers_are_written_in_dots(encoded: str, dotted: str) -> None:
    kind = bytes.fromhex(encoded)
    inner = b"\x06" + bytes([len(kind)]) + kind + b"\x05\x00"
    attribute = b"\x30" + bytes([len(inner)]) + inner
    assert text_of_name(b"\x31" + bytes([len(attribute)]) + attribute) == f"{dotted}=#0500"


def test_a_length_may_have_up_to_four_bytes() -> None:
    for header in ("81", "8200", "830000", "84000000"):
        data = bytes.fromhex("04" + header + "02abcd")
        assert [each.content for each in elements(data)] == [b"\xab\xcd"]
    assert [each.content for each in elements(bytes.fromhex("048100"))] == [b""]
    for header in ("80", "85"):
        with pytest.raises(MalformedNameError, match="length"):
            list(elements(bytes.fromhex("04" + header + "0000000002abcd")))
    assert [each.encoded for each in elements(bytes.fromhex("04000501aa"))] == [
        b"\x04\x00",
        b"\x05\x01\xaa",
    ]


def test_a_certificate_of_version_1_has_no_version() -> None:
    # A serial number, an algorithm, an issuer, a validity, a subject.
    signed = bytes.fromhex("020101" + "3000" + "3000" + "3000" + "300d310b3009060355040a0c024162")
    parts = b"\x30" + bytes([len(signed)]) + signed
    assert subject_of(b"\x30" + bytes([len(parts)]) + parts) == "O=Ab"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("", "not one certificate"),
        ("30", "cut off in its header"),
        ("3001", "cut off"),
        ("308201", "length of a value is malformed"),
        ("30003000", "not one certificate"),
        ("3000", "structure"),
        ("3100", "structure"),
        ("30023000", "no serial number"),
        ("30043002a000", "no serial number"),
        ("300430020201", "cut off"),
    ],
)
def test_bytes_that_are_no_certificate_are_refused(data: str, reason: str) -> None:
    with pytest.raises(MalformedNameError, match=reason):
        subject_of(bytes.fromhex(data))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ("3000", "structure"),
        ("3100", "a part of the name is empty"),
        ("31023100", "structure"),
        ("31023000", "not a type and a value"),
        ("310630040603550403", "cut off"),
        ("3106300406008000", "cut off|not a type"),
        ("310630040600" + "0500", "an object identifier is cut off"),
        ("310730050601800500", "an object identifier is cut off"),
        ("3106300413000500", "structure"),
    ],
)
def test_names_that_cannot_be_read_are_refused(data: str, reason: str) -> None:
    with pytest.raises(MalformedNameError, match=reason):
        text_of_name(bytes.fromhex(data))


def test_an_empty_value_is_a_value() -> None:
    assert text_of_name(bytes.fromhex("3109300706035504030c00")) == "CN="


TYPES = st.sampled_from(
    [ObjectIdentifier(each) for each in KEYWORDS if each != "2.5.4.6"]  # a country has two letters
    + [NameOID.SURNAME, NameOID.TITLE]
)
VALUES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20)


def twin(subject: x509.Name) -> str:
    """As RFC 2253 says it, by cryptography's objects."""
    parts = []
    for attribute in reversed(list(subject)):
        value = str(attribute.value)
        keyword = KEYWORDS.get(attribute.oid.dotted_string)
        if keyword is None:
            encoded = value.encode()
            parts.append(f"{attribute.oid.dotted_string}=#0c{len(encoded):02x}{encoded.hex()}")
            continue
        body = value.strip(" \r")
        head = value[: len(value) - len(value.lstrip(" \r"))]
        tail = value[len(head) + len(body) :]
        for special in '\\,=+<>#;"':
            body = body.replace(special, "\\" + special)
        body = body.replace("\0", r"\00")
        blanks = ["".join("\\" + each for each in part) for part in (head, tail)]
        parts.append(f"{keyword}={blanks[0]}{body}{blanks[1]}")
    return ",".join(parts)


@given(st.lists(st.tuples(TYPES, VALUES), max_size=5))
def test_any_subject_is_written_as_by_its_twin(pairs: list[tuple[ObjectIdentifier, str]]) -> None:
    subject = x509.Name(
        [x509.NameAttribute(kind, value, _type=_ASN1Type.UTF8String) for kind, value in pairs]
    )
    encoded = next(elements(subject.public_bytes()))
    assert text_of_name(encoded.content) == twin(subject)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_refused_or_read_and_nothing_else(data: bytes) -> None:
    for read in (subject_of, text_of_name):
        try:
            read(data)
        except MalformedNameError:
            pass
