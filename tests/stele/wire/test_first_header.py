"""A header of the first record, found without decoding the batch."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.wire import batch as wire
from stele.wire.batch_errors import CorruptBatchError
from stele.wire.record import Header, first_header

NAMES = st.sampled_from(["a", "b", "traceparent", "é", ""])
HEADERS = st.lists(st.tuples(NAMES, st.none() | st.binary(max_size=60)), max_size=40)
CONTENT = st.none() | st.binary(max_size=200)


def body(headers: list[Header], key: bytes | None, value: bytes | None) -> memoryview:
    builder = wire.BatchBuilder()
    builder.append(key, value, timestamp_ms=1_700_000_000_000, headers=headers)
    builder.append(None, b"second", timestamp_ms=1, headers=[("traceparent", b"second")])
    return memoryview(builder.build())[wire.HEADER_SIZE :]


@given(HEADERS, CONTENT, CONTENT, NAMES)
def test_it_is_the_first_of_this_name_among_the_first_headers(
    headers: list[Header], key: bytes | None, value: bytes | None, name: str
) -> None:
    expected = next((found for each, found in headers[:32] if each == name), None)
    assert first_header(body(headers, key, value), name.encode()) == expected


@given(HEADERS, CONTENT, CONTENT, st.integers(0, 400))
def test_a_body_that_is_cut_off_gives_an_error_or_what_is_there(
    headers: list[Header], key: bytes | None, value: bytes | None, size: int
) -> None:
    whole = body(headers, key, value)
    try:
        found = first_header(whole[:size], b"traceparent")
    except CorruptBatchError:
        return
    expected = first_header(whole, b"traceparent")
    assert found == expected or (found is not None and (expected or b"").startswith(found))


@given(st.binary(max_size=80))
def test_any_bytes_give_an_error_or_an_answer(noise: bytes) -> None:
    try:
        first_header(memoryview(noise), b"a")
    except CorruptBatchError:
        pass


def test_a_record_that_ends_within_a_header_is_corrupt() -> None:
    with pytest.raises(CorruptBatchError, match="ends inside a record"):
        first_header(memoryview(b"\x20\0\0\0\x01\x01\x04"), b"a")
