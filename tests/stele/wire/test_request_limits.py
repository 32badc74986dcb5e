"""Limits of a request: its elements, its bytes without records, the memory of its decoding."""

from __future__ import annotations

import gc
import struct
import tracemalloc
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stele.wire import kafka as wire
from stele.wire.kafka import definitions, schema
from stele.wire.kafka.codec import (
    DECODED_PER_BYTE_MAX,
    DECODED_PER_ELEMENT_MAX,
    KEYS_WITH_RECORDS,
    PLAIN_REQUEST_BYTES_MAX,
)
from stele.wire.kafka.messages import list_offsets
from stele.wire.kafka.primitives import (
    REQUEST_ELEMENTS_MAX,
    SLICE_ELEMENTS,
    STRING_BYTES_MAX,
    encode_uvarint,
)
from tests.support.dense_requests import (
    api_named,
    array_paths,
    dense_requests,
    smallest,
    with_array,
)

ELEMENTS = 3000
BASE_BYTES = 20_000
"""What a decoding may take whatever the message is."""

REQUESTS = [
    (api.name, version)
    for api in definitions.all_apis()
    for version in sorted({api.versions.first, api.versions.last})
]


@pytest.mark.parametrize(("name", "version"), REQUESTS)
def test_the_memory_of_a_decoded_request_goes_by_its_bytes(name: str, version: int) -> None:
    api, _ = api_named(name)
    for _, data in dense_requests(name, version, 1):
        api.decode_request(version, data)  # compiled only once
    for array, data in dense_requests(name, version, ELEMENTS):
        gc.collect()
        tracemalloc.start()
        message = api.decode_request(version, data)
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert message is not None
        assert max(held, peak) <= BASE_BYTES + DECODED_PER_BYTE_MAX * len(data), array
        most = BASE_BYTES + DECODED_PER_ELEMENT_MAX * ELEMENTS + len(data)
        assert max(held, peak) <= most, array


@pytest.mark.parametrize(("name", "version"), REQUESTS)
def test_no_request_has_more_elements_than_are_allowed(name: str, version: int) -> None:
    """In any array. They are counted before any of them is made."""
    api, _ = api_named(name)
    for _, data in dense_requests(name, version, 1):
        api.decode_request(version, data)  # compiled only once
    for array, data in dense_requests(name, version, REQUEST_ELEMENTS_MAX + 1):
        tracemalloc.start()
        with pytest.raises(wire.MalformedMessageError, match="more than 65536 elements"):
            api.decode_request(version, data)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < BASE_BYTES, array


def test_elements_of_all_arrays_count_together() -> None:
    api, _ = api_named("Metadata")
    names = b"\x00\x00" * REQUEST_ELEMENTS_MAX
    exact = struct.pack(">i", REQUEST_ELEMENTS_MAX) + names
    assert len(api.decode_request(1, exact).topics) == REQUEST_ELEMENTS_MAX
    fetch, _ = api_named("Fetch")
    definition = definitions.find(fetch.key).request
    message = smallest(fetch, fetch.request, definition, 12)
    topics = next(each for each in definition if each.name == "topics")
    inner = smallest(fetch, fetch.structs[topics.type], topics.fields, 12)
    partition = smallest(fetch, fetch.structs["FetchPartition"], topics.fields[-1].fields, 12)
    inner.partitions = [partition] * (REQUEST_ELEMENTS_MAX // 4)
    message.topics = [inner] * 4
    with pytest.raises(wire.MalformedMessageError, match="more than 65536 elements"):
        fetch.decode_request(12, b"".join(fetch.encode_request(12, message)))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(REQUEST_ELEMENTS_MAX + 1, 2**32 - 1), st.booleans())
def test_unknown_tagged_fields_count_too(count: int, in_header: bool) -> None:
    body = b"\x00\x01\x00\x00" if in_header else b""
    tags = encode_uvarint(count) + b"\x09\x00" * 1000
    start = struct.pack(">hhih", 3, 12, 1, -1)
    frame = start + tags + body if in_header else start + b"\x00" + b"\x00\x01\x00" + tags
    refusal = f"{count} tagged fields" if in_header else "more than 65536 elements"
    with pytest.raises(wire.MalformedMessageError, match=refusal):
        wire.decode_request(frame)


def test_a_string_longer_than_any_of_the_protocol_is_refused() -> None:
    api, _ = api_named("FindCoordinator")

    def request(size: int) -> bytes:
        return encode_uvarint(size + 1) + b"x" * size + b"\x00\x00"

    assert len(api.decode_request(3, request(STRING_BYTES_MAX)).key) == STRING_BYTES_MAX
    with pytest.raises(wire.MalformedMessageError):
        api.decode_request(3, request(STRING_BYTES_MAX + 1))


def test_only_requests_with_records_may_be_large() -> None:
    def has_records(fields: list[schema.Field]) -> bool:
        return any(each.type == "records" or has_records(each.fields) for each in fields)

    assert {
        api.key for api in definitions.all_apis() if has_records(api.request)
    } == KEYS_WITH_RECORDS
    for key in wire.ApiKey:
        most = wire.largest_request_bytes(key, 1 << 27)
        assert most == (1 << 27 if key in KEYS_WITH_RECORDS else PLAIN_REQUEST_BYTES_MAX)
    assert wire.largest_request_bytes(4711, 1 << 27) == PLAIN_REQUEST_BYTES_MAX
    assert wire.largest_request_bytes(3, 1000) == 1000


def drained(work: Generator[None, None, Any]) -> tuple[int, Any]:
    """The number of slices, and the result."""
    slices = 1
    while True:
        try:
            next(work)
        except StopIteration as end:
            return slices, end.value
        slices += 1


@pytest.mark.parametrize(("name", "version"), REQUESTS)
def test_long_requests_are_decoded_in_slices(name: str, version: int) -> None:
    """The message is the same, whichever array has the elements. One call reads an array of
    numbers."""
    api, definition = api_named(name)
    arrays = [each for _, each in array_paths(definition.request, version)]
    for each, (_, data) in zip(arrays, dense_requests(name, version, ELEMENTS), strict=True):
        slices, message = drained(api.decode_request_in_slices(version, data))
        assert message == api.decode_request(version, data)
        is_numbers = each.type in schema.FIXED and each.type not in ("bool", "uuid")
        assert is_numbers or slices > ELEMENTS // SLICE_ELEMENTS, each.name


@pytest.mark.parametrize(("name", "version"), REQUESTS)
def test_long_answers_are_encoded_in_slices(name: str, version: int) -> None:
    api, definition = api_named(name)
    for path, each in array_paths(definition.response, version):
        message = smallest(api, api.response, definition.response, version)
        with_array(api, message, path, each, ELEMENTS, version)
        slices, buffers = drained(api.encode_response_in_slices(version, message))
        assert b"".join(buffers) == b"".join(api.encode_response(version, message))
        is_numbers = each.type in schema.FIXED and each.type not in ("bool", "uuid")
        assert is_numbers or slices > ELEMENTS // SLICE_ELEMENTS, each.name
        # No slice joins what the slices before it have made.
        assert is_numbers or len(buffers) >= slices, each.name


def test_elements_of_nested_arrays_count_together_for_a_slice() -> None:
    api, _ = api_named("ListOffsets")
    partitions = [list_offsets.ListOffsetsPartition(number) for number in range(100)]
    topics = [list_offsets.ListOffsetsTopic(f"t{number}", partitions) for number in range(100)]
    message = list_offsets.ListOffsetsRequest(-1, topics=topics)
    data = b"".join(api.encode_request(5, message))
    assert drained(api.decode_request_in_slices(5, data)) == (1 + 10_100 // 1024, message)


def test_what_is_malformed_is_so_in_slices_too() -> None:
    api, _ = api_named("Metadata")
    names = struct.pack(">i", ELEMENTS) + b"\x00\x01x" * ELEMENTS
    for data in (names[:-1], names[:-1] + b"\xff"):
        with pytest.raises(wire.MalformedMessageError) as whole:
            api.decode_request(1, data)
        with pytest.raises(wire.MalformedMessageError) as sliced:
            drained(api.decode_request_in_slices(1, data))
        assert whole.value.message == sliced.value.message
