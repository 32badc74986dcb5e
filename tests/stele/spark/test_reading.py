"""How a task puts polls together before it makes columns of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hypothesis import given
from hypothesis import strategies as st

from stele.consumer.positions import RawBatch
from stele.ids import TopicPartition
from stele.spark.reading import together
from stele.wire.batch import BatchHeader, Record, encode, read_header

NAME = TopicPartition("orders", 0)
HEADER = read_header(encode([Record(0, 0, None, b"x", ())]))
POLLS = st.lists(
    st.lists(st.tuples(st.integers(1, 30_000), st.integers(70, 6_000_000)), max_size=4)
)


def batch(header: BatchHeader) -> RawBatch:
    return RawBatch(NAME, b"", 0, header, 0)


def made(polls: Sequence[Sequence[tuple[int, int]]]) -> list[list[RawBatch]]:
    found, offset = [], 0
    for poll in polls:
        one = []
        for records, size_bytes in poll:
            header = HEADER._replace(
                base_offset=offset, record_count=records, size_bytes=size_bytes
            )
            one.append(batch(header))
            offset += records
        found.append(one)
    return found


def is_enough(batches: Sequence[RawBatch]) -> bool:
    records = sum(each.header.record_count for each in batches)
    return records >= 20_000 or sum(each.header.size_bytes for each in batches) >= 4 * 1024 * 1024


@given(POLLS)
def test_polls_are_put_together_in_order_until_they_are_enough(
    shapes: list[list[tuple[int, int]]],
) -> None:
    polls = made(shapes)
    expected: list[list[RawBatch]] = [[]]
    for poll in polls:
        expected[-1] = expected[-1] + poll
        if is_enough(expected[-1]):
            expected.append([])
    assert list(together(polls)) == [each for each in expected if each]


def test_no_more_polls_are_taken_than_one_list_needs() -> None:
    """Large records fill the memory of a task after few rows: rows alone are no bound."""
    polls = made([[(1, 1024 * 1024)] * 4] * 3)
    taken = 0

    def counted() -> Iterator[list[RawBatch]]:
        nonlocal taken
        for poll in polls:
            taken += 1
            yield poll

    for number, found in enumerate(together(counted()), 1):
        assert taken == number
        assert len(found) == 4
    assert taken == 3
