"""The subject of a certificate as text, in the form in which Java writes it.

Kafka's principal of a TLS client is the text of Java's ``X500Principal.getName()``, so ACLs and
``super.users`` that were written for Kafka name it. The form is RFC 2253's. The last attribute
comes first, without blanks: ``CN=a,OU=b,C=c``. An attribute whose type the RFC does not name is
written as its object identifier and the bytes of its value: ``1.2.840.113549.1.9.1=#160161``.
Libraries differ here (OpenSSL writes ``emailAddress=a``), so the certificate's bytes are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""The types of attributes that RFC 2253 names."""

_SEQUENCE, _SET, _OID, _VERSION = 0x30, 0x31, 0x06, 0xA0

_ENCODINGS: Final = {
    0x0C: "utf-8",  # UTF8String
    0x13: "ascii",  # PrintableString
    0x14: "latin-1",  # T61String, which Java takes for ISO 8859-1
    0x16: "ascii",  # IA5String
    0x1B: "ascii",  # GeneralString
    0x1C: "utf-32-be",  # UniversalString
    0x1E: "utf-16-be",  # BMPString
}

_SPECIAL: Final = frozenset(',=+<>#;"\\')
_BLANKS: Final = frozenset(" \r")


class MalformedNameError(ValueError):
    """The bytes are no certificate, or its subject cannot be read."""


class Element(NamedTuple):
    """A value in DER: its tag, its content, and all its bytes."""

    tag: int
    content: bytes
    encoded: bytes


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER as text. Raises MalformedNameError."""
    signed = _content(_only(certificate), _SEQUENCE)
    parts = elements(_content(next(elements(signed), None), _SEQUENCE))
    first = next(parts, None)
    if first is not None and first.tag == _VERSION:
        first = next(parts, None)
    if first is None:
        raise MalformedNameError("the certificate has no serial number")
    # The signature's algorithm, the issuer and the validity stand before the subject.
    subject = [next(parts, None) for _ in range(4)][-1]
    return text_of_name(_content(subject, _SEQUENCE))


def text_of_name(relative_names: bytes) -> str:
    """The text of a Name. ``relative_names``: the content of its outermost sequence."""
    texts = [_relative_name(each) for each in elements(relative_names)]
    return ",".join(reversed(texts))


def elements(data: bytes) -> Iterator[Element]:
    """The values that stand behind one another in ``data``."""
    position = 0
    while position < len(data):
        start = position
        if position + 2 > len(data):
            raise MalformedNameError("a value is cut off in its header")
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            size = length & 0x7F
            if not 1 <= size <= 4 or position + size > len(data):
                raise MalformedNameError("the length of a value is malformed")
            length = int.from_bytes(data[position : position + size], "big")
            position += size
        end = position + length
        if end > len(data):
            raise MalformedNameError("a value is cut off")
        yield Element(tag, data[position:end], data[start:end])
        position = end


def _only(data: bytes) -> Element:
    found = list(elements(data))
    if len(found) != 1:
        raise MalformedNameError("the bytes are not one certificate")
    return found[0]


def _content(element: Element | None, tag: int) -> bytes:
    if element is None or element.tag != tag:
        raise MalformedNameError("the structure is not that of a certificate")
    return element.content


def _relative_name(element: Element) -> str:
    attributes = [_attribute(each) for each in elements(_content(element, _SET))]
    if not attributes:
        raise MalformedNameError("a part of the name is empty")
    return "+".join(attributes)


def _attribute(element: Element) -> str:
    parts = list(elements(_content(element, _SEQUENCE)))
    if len(parts) != 2:
        raise MalformedNameError("an attribute of the name is not a type and a value")
    identifier = _object_identifier(_content(parts[0], _OID))
    keyword, value = KEYWORDS.get(identifier), parts[1]
    encoding = _ENCODINGS.get(value.tag)
    if keyword is None or encoding is None:
        return f"{keyword or identifier}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode(encoding, errors='replace'))}"


def _object_identifier(content: bytes) -> str:
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not content or content[-1] & 0x80:
        raise MalformedNameError("an object identifier is cut off")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    """With a backslash before each special character, and before blanks at both ends."""
    units = ["\\" + each if each in _SPECIAL else "\\00" if each == "\0" else each for each in text]
    # Java finds the blanks after it has escaped the rest, character by character.
    characters = list("".join(units))
    lead = 0
    while lead < len(characters) and characters[lead] in _BLANKS:
        lead += 1
    trail = len(characters)
    while trail > lead and characters[trail - 1] in _BLANKS:
        trail -= 1
    return "".join(
        each if lead <= position < trail else "\\" + each
        for position, each in enumerate(characters)
    )
