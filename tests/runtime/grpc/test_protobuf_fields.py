"""Fields of encoded messages, against protobuf's own parser."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from runtime.grpc.protobuf_fields import TooManyFieldsError, fields
from stele.wire.v1 import log_pb2 as pb

RECORDS = st.builds(
    pb.PublishRecord,
    topic=st.text(max_size=3),
    key=st.none() | st.binary(max_size=300),
    value=st.none() | st.binary(max_size=3),
    headers=st.lists(st.builds(pb.RecordHeader, name=st.text(max_size=3)), max_size=4),
    timestamp_ms=st.none() | st.integers(-(2**63), 2**63 - 1),
    partition=st.none() | st.integers(-(2**31), 2**31 - 1),
)


@given(RECORDS)
def test_the_parts_are_the_whole(record: pb.PublishRecord) -> None:
    encoded = record.SerializeToString()
    found = fields(encoded, 100)
    assert b"".join(encoded[each.start : each.end] for each in found) == encoded
    assert [each.number for each in found].count(4) == len(record.headers)
    again = pb.PublishRecord()
    for each in found:
        again.MergeFromString(encoded[each.start : each.end])
        if each.number == 2:
            assert encoded[each.content : each.end] == record.key
    assert again == record


@given(st.binary(max_size=40))
def test_what_protobuf_can_read_is_read(data: bytes) -> None:
    try:
        pb.PublishRecord.FromString(data)
    except DecodeError:
        return
    if not any(byte & 7 in (3, 4) for byte in data):  # groups, which nobody uses any more
        fields(data, 100)


def test_no_more_fields_than_allowed() -> None:
    encoded = pb.PublishRecord(headers=[pb.RecordHeader()] * 5).SerializeToString()
    assert len(fields(encoded, 5)) == 5
    with pytest.raises(TooManyFieldsError):
        fields(encoded, 4)


def test_fixed_numbers_are_passed_over() -> None:
    assert [each.number for each in fields(b"\x09" + bytes(8) + b"\x15" + bytes(4), 9)] == [1, 2]
    for cut in (b"\x09" + bytes(7), b"\x15" + bytes(3), b"\x0a\x05abcd", b"\x80", b"\x08"):
        with pytest.raises(ValueError, match="end"):
            fields(cut, 9)
