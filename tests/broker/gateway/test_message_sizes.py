"""How many records a message to a thin client has."""

from __future__ import annotations

import pytest

from broker.gateway.message_sizes import MESSAGE_BYTES_MAX, sizes_of_message
from stele.wire.record import Record

HALF = MESSAGE_BYTES_MAX // 2


def sized(size: int) -> Record:
    return Record(0, 0, None, bytes(size), ())


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], 0),
        ([HALF, HALF], 2),
        ([HALF, HALF, 0], 3),
        ([HALF, HALF + 1], 1),
        ([HALF, HALF, 1], 2),
        ([MESSAGE_BYTES_MAX + 1], 1),
        ([MESSAGE_BYTES_MAX + 1, 0], 1),
        ([1, MESSAGE_BYTES_MAX], 1),
    ],
)
def test_a_message_has_so_many_bytes_or_one_record(sizes: list[int], expected: int) -> None:
    assert sizes_of_message([sized(size) for size in sizes]) == sizes[:expected]


def test_everything_of_a_record_counts() -> None:
    headers = (("name", b"value"), ("none", None))
    assert sizes_of_message([Record(0, 0, b"key", b"value", headers)]) == [3 + 5 + 4 + 5 + 4]
    assert sizes_of_message([Record(0, 0, None, None, ())]) == [0]
