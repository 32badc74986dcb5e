"""Every API and version, both directions, byte for byte against kio and kafka-python."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from stele.wire import kafka as wire
from tests.support import wire as support

EXAMPLES = settings(
    max_examples=8,
    database=None,
    phases=[Phase.generate],  # shrinking takes minutes, and the messages are small
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
KINDS = list(support.kinds())


def encode(api: wire.Api[Any, Any], version: int, kind: str, message: Any) -> bytes:
    encoder = api.encode_request if kind == "request" else api.encode_response
    return b"".join(encoder(version, message))


def decode(api: wire.Api[Any, Any], version: int, kind: str, data: bytes) -> Any:
    decoder = api.decode_request if kind == "request" else api.decode_response
    return decoder(version, data)


@pytest.mark.parametrize(("name", "version", "kind"), KINDS)
@EXAMPLES
@given(data=st.data())
def test_agrees_with_kio(name: str, version: int, kind: str, data: st.DataObject) -> None:
    api = support.api_named(name)
    message = data.draw(support.messages(api, version, kind))
    encoded = encode(api, version, kind, message)
    assert decode(api, version, kind, encoded) == message
    cls = support.kio_class(name, version, kind)
    theirs = support.to_kio(cls, message)
    out = io.BytesIO()
    entity_writer(cls)(out, theirs)
    assert encoded == out.getvalue()
    assert entity_reader(cls)(encoded, 0) == (theirs, len(encoded))


@pytest.mark.parametrize(
    ("name", "version", "kind"), [each for each in KINDS if support.kafka_python_has(each[0])]
)
@EXAMPLES
@given(data=st.data())
def test_agrees_with_kafka_python(name: str, version: int, kind: str, data: st.DataObject) -> None:
    api = support.api_named(name)
    message = data.draw(support.messages(api, version, kind))
    encoded = encode(api, version, kind, message)
    cls = support.kafka_python_class(name, kind)
    fields = support.fields_of(api, kind)
    theirs = support.to_kafka_python(cls, message, fields, version)
    assert encoded == bytes(theirs.encode(version=version))
    if name == "ApiVersions" and kind == "response" and message.error_code:
        return  # it takes an answer with an error for one of version 0
    decoded = cls.decode(encoded, version=version)
    if kind == "request":
        decoded.with_header()  # else some refuse to be encoded
    assert bytes(decoded.encode()) == encoded
