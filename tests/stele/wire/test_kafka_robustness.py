"""Truncated, changed and random bytes give a message or a MalformedMessageError, nothing else, and
soon."""

from __future__ import annotations

import ast
import pathlib
import struct
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from stele.wire import kafka as wire
from stele.wire.kafka import definitions, generator
from stele.wire.kafka.messages import (
    api_versions,
    create_topics,
    fetch,
    init_producer_id,
    metadata,
    produce,
)
from stele.wire.kafka.primitives import encode_uvarint, read_uvarint
from stele.wire.kafka.schema import SchemaError, Versions, parse
from tests.support import wire as support

EXAMPLES = settings(
    max_examples=6,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
KINDS = list(support.kinds())
SOME_KINDS = [each for each in KINDS if each[0] in ("Produce", "Fetch", "Metadata", "CreateTopics")]


def codec(name: str, kind: str) -> tuple[Any, Any]:
    api = support.api_named(name)
    if kind == "request":
        return api.encode_request, api.decode_request
    return api.encode_response, api.decode_response


@pytest.mark.parametrize(("name", "version", "kind"), KINDS)
@EXAMPLES
@given(data=st.data())
def test_a_message_cut_at_any_byte_is_refused(
    name: str, version: int, kind: str, data: st.DataObject
) -> None:
    encode, decode = codec(name, kind)
    message = data.draw(support.messages(support.api_named(name), version, kind))
    encoded = b"".join(encode(version, message))
    for size in range(len(encoded)):
        with pytest.raises(wire.MalformedMessageError):
            decode(version, encoded[:size])


@pytest.mark.parametrize(("name", "version", "kind"), SOME_KINDS)
@settings(EXAMPLES, max_examples=20)
@given(data=st.data())
def test_changed_bytes_do_no_harm(name: str, version: int, kind: str, data: st.DataObject) -> None:
    encode, decode = codec(name, kind)
    message = data.draw(support.messages(support.api_named(name), version, kind))
    encoded = bytearray(b"".join(encode(version, message)))
    for _ in range(3):
        position = data.draw(st.integers(0, len(encoded) - 1))
        encoded[position] = data.draw(st.sampled_from([0, 1, 0x7F, 0x80, 0xFF]))
    try:
        decode(version, encoded)
    except wire.MalformedMessageError:
        pass


@settings(max_examples=300)
@given(st.binary(max_size=60))
def test_invented_frames_do_no_harm(frame: bytes) -> None:
    try:
        wire.decode_request(bytearray(frame))
    except (wire.MalformedMessageError, wire.UnsupportedRequestError):
        pass


def test_a_huge_announced_array_is_refused_before_it_is_read() -> None:
    frame = struct.pack(">hhihi", 3, 8, 1, -1, 0x7FFFFFFF)  # Metadata for 2^31 - 1 topics
    with pytest.raises(wire.MalformedMessageError, match="beyond the end"):
        wire.decode_request(frame + bytes(100))


def test_null_where_none_may_be_is_refused() -> None:
    frame = struct.pack(">hhihi", 19, 2, 1, -1, -1)  # CreateTopics for a null array
    with pytest.raises(wire.MalformedMessageError, match="null"):
        wire.decode_request(frame + bytes(10))


@pytest.mark.parametrize("frame", [b"", b"\x00", struct.pack(">hhih", 0, 9, 1, 5)])
def test_a_cut_header_is_refused(frame: bytes) -> None:
    with pytest.raises(wire.MalformedMessageError):
        wire.decode_request(frame)


@pytest.mark.parametrize(("key", "version"), [(4711, 0), (-1, 0), (0, 2), (0, 14), (18, 5)])
def test_unknown_keys_and_versions_are_told_apart_from_garbage(key: int, version: int) -> None:
    with pytest.raises(wire.UnsupportedRequestError) as caught:
        wire.decode_request(struct.pack(">hhih", key, version, 7, -1))
    assert caught.value.header == (key, version, 7, None)


# -------------------------------------------------------------------------------- headers


def frame_of(buffers: list[Any]) -> bytearray:
    data = bytearray(b"".join(buffers))
    (size,) = struct.unpack_from(">i", data)
    assert size == len(data) - 4
    return data[4:]


@pytest.mark.parametrize("version", range(12))
@pytest.mark.parametrize("client_id", [None, "", "me", "ü" * 200])
def test_request_headers(version: int, client_id: str | None) -> None:
    message = metadata.MetadataRequest([metadata.MetadataRequestTopic(name="orders")])
    frame = frame_of(wire.encode_request(metadata.API, version, -7, client_id, message))
    header, decoded = wire.decode_request(frame)
    assert header == wire.RequestHeader(3, version, -7, client_id)
    assert isinstance(decoded, metadata.MetadataRequest)
    assert decoded.topics is not None
    assert decoded.topics[0].name == "orders"


def test_unknown_tagged_fields_are_skipped_in_headers_and_messages() -> None:
    message = init_producer_id.InitProducerIdRequest("t", 5)
    plain = frame_of(wire.encode_request(init_producer_id.API, 2, 1, "c", message))
    assert plain[11] == plain[-1] == 0
    unknown = b"\x02" + b"\x09\x03abc" + b"\x80\x01\x00"
    tagged = plain[:11] + unknown + plain[12:-1] + unknown
    assert wire.decode_request(tagged)[1] == message


@pytest.mark.parametrize(("count", "is_taken"), [(1024, True), (1025, False)])
def test_a_header_has_no_more_tagged_fields_than_one_turn_may_skip(
    count: int, is_taken: bool
) -> None:
    message = init_producer_id.InitProducerIdRequest("t", 5)
    plain = frame_of(wire.encode_request(init_producer_id.API, 2, 1, "c", message))
    fields = bytes([count & 0x7F | 0x80, count >> 7]) + b"\x09\x00" * count
    tagged = plain[:11] + fields + plain[12:]
    if is_taken:
        assert wire.decode_request(tagged)[1] == message
    else:
        with pytest.raises(wire.MalformedMessageError, match="1025 tagged fields"):
            wire.decode_request(tagged)


def test_a_tagged_field_that_overruns_its_size_is_refused() -> None:
    request = fetch.FetchRequest(cluster_id="abcdef")
    encoded = b"".join(fetch.API.encode_request(12, request))
    assert encoded.endswith(b"\x01\x00\x07\x07abcdef")
    for size in (5, 6):
        with pytest.raises(wire.MalformedMessageError):
            fetch.API.decode_request(12, encoded[:-8] + bytes([size]) + encoded[-7:])


@pytest.mark.parametrize("version", range(5))
def test_the_header_of_an_api_versions_answer_is_always_the_oldest(version: int) -> None:
    answer = api_versions.ApiVersionsResponse(0, [api_versions.ApiVersion(3, 0, 12)])
    frame = frame_of(wire.encode_response(18, version, 5, answer))
    assert frame[:6] == b"\x00\x00\x00\x05\x00\x00"
    assert wire.decode_response(api_versions.API, version, frame) == answer


def test_a_refused_api_versions_request_is_answered_in_version_0() -> None:
    answer = api_versions.ApiVersionsResponse(35, [api_versions.ApiVersion(18, 0, 3)])
    frame = frame_of(wire.encode_response(18, 0, 5, answer))
    assert wire.decode_response(api_versions.API, 4, frame) == answer


# -------------------------------------------------------------------------------- records


def test_records_are_views_of_the_frame_and_writable() -> None:
    batch = bytes(range(100))
    request = produce.ProduceRequest(
        topic_data=[
            produce.TopicProduceData("t", partition_data=[produce.PartitionProduceData(0, batch)])
        ]
    )
    frame = frame_of(wire.encode_request(produce.API, 9, 1, None, request))
    _, decoded = wire.decode_request(frame)
    assert isinstance(decoded, produce.ProduceRequest)
    view = decoded.topic_data[0].partition_data[0].records
    assert isinstance(view, memoryview)
    assert view == batch
    assert view.obj is frame
    view[0] = 0xEE
    assert 0xEE in frame


def test_records_are_passed_on_without_a_copy() -> None:
    parts: list[Any] = [bytes(1000), bytearray(2000), memoryview(bytes(3000))]
    answer = fetch.FetchResponse(
        responses=[
            fetch.FetchableTopicResponse("t", partitions=[fetch.PartitionData(records=parts)])
        ]
    )
    buffers = wire.encode_response(1, 12, 1, answer)
    assert [each for each in buffers if len(each) >= 1000] == parts
    assert all(any(each is part for each in buffers) for part in parts)
    decoded = wire.decode_response(fetch.API, 12, frame_of(buffers))
    records = decoded.responses[0].partitions[0].records
    assert isinstance(records, memoryview)
    assert len(records) == 6000


def test_null_and_empty_records_differ() -> None:
    for records in (None, b""):
        data = fetch.PartitionData(records=records)
        answer = fetch.FetchResponse(
            responses=[fetch.FetchableTopicResponse("t", partitions=[data])]
        )
        frame = frame_of(wire.encode_response(1, 11, 1, answer))
        decoded = wire.decode_response(fetch.API, 11, frame).responses[0].partitions[0].records
        assert decoded == records


def test_a_value_that_does_not_fit_is_this_programs_fault() -> None:
    request = create_topics.CreateTopicsRequest(timeout_ms=1 << 40)
    with pytest.raises(wire.UnencodableMessageError, match="CreateTopicsRequest v5"):
        wire.encode_request(create_topics.API, 5, 1, None, request)


# ---------------------------------------------------------------------- schemas and tools


def test_the_generated_classes_agree_with_the_definitions() -> None:
    for definition in definitions.all_apis():
        module = sys.modules[type(wire.api_of(definition.key).request()).__module__]
        assert module.__file__ is not None
        written = ast.parse(pathlib.Path(module.__file__).read_text())
        generated = ast.parse(generator.source_of(definition))
        assert ast.dump(written) == ast.dump(generated), definition.name


def test_every_key_has_a_definition() -> None:
    assert [each.value for each in wire.ApiKey] == [each.key for each in definitions.all_apis()]


def test_the_generated_keys_agree_with_the_definitions() -> None:
    module = sys.modules[wire.ApiKey.__module__]
    assert module.__file__ is not None
    assert pathlib.Path(module.__file__).read_text() == generator.keys_source(
        definitions.all_apis()
    )


def test_schema_language() -> None:
    (api,) = parse(
        """
api 7 Example 1-5 flexible 4+
request
  items [Item]?3+ @2+
    name string
    old int8 @2 =-1
  mark int32 =5 #0
response
"""
    )
    items, mark = api.request
    assert (api.key, api.name, api.versions, api.flexible_from) == (7, "Example", Versions(1, 5), 4)
    assert (items.type, items.is_array, items.versions, items.nullable) == (
        "Item",
        True,
        Versions(2, 5),
        Versions(3, 5),
    )
    assert [each.versions for each in items.fields] == [Versions(2, 5), Versions(2, 2)]
    assert (mark.default, mark.tag) == ("5", 0)
    assert api.response == []


@pytest.mark.parametrize(
    "line", ["  x", "  x int32 5", "      x int32", "  x [bytes]", "  x int32 @a+"]
)
def test_schema_errors_name_the_line(line: str) -> None:
    with pytest.raises(SchemaError, match=line.strip().split()[0]):
        parse(f"api 7 Example 0-1\nrequest\n  y int32\n{line}\n")


@given(st.integers(0, (1 << 32) - 1))
def test_uvarints(value: int) -> None:
    encoded = encode_uvarint(value)
    assert read_uvarint(b"\xff" + encoded + b"\xff", 1) == (value, 1 + len(encoded))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x10", b"\x80" * 5 + b"\x01"])
def test_uvarints_that_are_too_long_are_refused(data: bytes) -> None:
    with pytest.raises(wire.MalformedMessageError):
        read_uvarint(data, 0)


@pytest.mark.parametrize("client_id", [None, "", "orders-1", "Bücher", "k" * 500])
def test_a_client_id_is_found_in_the_beginning_of_a_request(client_id: str | None) -> None:
    for version in (0, 3):  # of ApiVersions, without and with tagged fields in the header
        message = api_versions.ApiVersionsRequest()
        frame = b"".join(wire.encode_request(api_versions.API, version, 7, client_id, message))[4:]
        told = client_id or ""
        assert wire.client_id_within(frame) == told
        for size in range(len(frame)):
            assert told.startswith(wire.client_id_within(frame[:size]).rstrip("\ufffd"))
