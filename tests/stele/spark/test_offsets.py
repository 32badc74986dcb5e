from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.ids import TopicPartition
from stele.spark.offsets import DataLossError, Logs, OffsetRange, planned, split
from stele.spark.option_error import OptionError
from stele.spark.options import SourceOptions

BASE = {"bootstrap.servers": "127.0.0.1:9092", "subscribe": "t"}
ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
LOGS = Logs({ZERO: 5, ONE: 0}, {ZERO: 50, ONE: 20}, {(ZERO, 100): 7, (ONE, 100): None})


def plan(**options: str) -> list[tuple[int, int]]:
    ranges = planned(SourceOptions.parse({**BASE, **options}), LOGS)
    return [(each.start, each.end) for each in ranges]


@pytest.mark.parametrize(
    ("options", "ranges"),
    [
        ({}, [(5, 50), (0, 20)]),
        ({"startingOffsets": '{"t": {"0": 8, "1": 20}}'}, [(8, 50), (20, 20)]),
        ({"endingOffsets": '{"t": {"0": 2}}', "failOnDataLoss": "false"}, [(5, 5), (0, 20)]),
        ({"endingOffsets": '{"t": {"0": -1, "1": 3}}'}, [(5, 50), (0, 3)]),
        ({"endingTimestamp": "100"}, [(5, 7), (0, 20)]),
        (
            {"startingTimestamp": "100", "startingOffsetsByTimestampStrategy": "latest"},
            [(7, 50), (20, 20)],
        ),
        ({"startingOffsets": '{"t": {"0": 2}}', "failOnDataLoss": "false"}, [(5, 50), (0, 20)]),
        ({"endingOffsets": '{"t": {"0": 99}}', "failOnDataLoss": "false"}, [(5, 50), (0, 20)]),
        (
            {"startingOffsets": '{"t": {"0": 9}}', "endingOffsets": '{"t": {"0": 9}}'},
            [(9, 9), (0, 20)],
        ),
    ],
)
def test_ranges_follow_from_options_and_logs(
    options: dict[str, str], ranges: list[tuple[int, int]]
) -> None:
    assert plan(**options) == ranges


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"startingOffsets": '{"t": {"0": 2}}'},
            "t-0: offset 2 is wanted, but the log has 5 to 50",
        ),
        ({"startingOffsets": '{"t": {"0": 51}}'}, "offset 51 is wanted"),
        ({"endingOffsets": '{"t": {"1": 21}}'}, "t-1: offsets up to 21 are wanted"),
        ({"endingOffsets": '{"t": {"0": 2}}'}, "t-0: offsets up to 2 are wanted"),
    ],
)
def test_what_no_log_has_is_a_loss(options: dict[str, str], words: str) -> None:
    with pytest.raises(DataLossError, match=words):
        plan(**options)


def test_what_the_query_does_not_read_is_not_named() -> None:
    with pytest.raises(OptionError, match="t-1 has no record at or after 100 ms"):
        plan(startingTimestamp="100")
    with pytest.raises(OptionError, match='"endingOffsets" names u-0'):
        plan(endingOffsets='{"u": {"0": 1}}')


def test_reading_does_not_end_before_it_begins() -> None:
    for times in ({}, {"startingTimestamp": "100", "startingOffsetsByTimestampStrategy": "latest"}):
        begin = {"startingOffsets": '{"t": {"0": 7}}', **times}
        with pytest.raises(OptionError, match="t-0: reading would begin at offset 7 and end"):
            plan(**begin, endingOffsets='{"t": {"0": 6}}')


RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=6)


@given(RANGES, st.integers(0, 40), st.integers(0, 300), st.integers(0, 3000), st.floats(0.1, 90))
def test_split_covers_every_offset_once(
    bounds: list[tuple[int, int]], least: int, max_records: int, max_bytes: int, size: float
) -> None:
    ranges = [OffsetRange("t", n, low, low + size) for n, (low, size) in enumerate(bounds)]
    pieces = split(
        ranges,
        min_partitions=least,
        max_records=max_records,
        max_bytes=max_bytes,
        record_bytes={each.name: size for each in ranges},
    )
    assert all(piece.records > 0 for piece in pieces)
    covered = [(piece.partition, o) for piece in pieces for o in range(piece.start, piece.end)]
    wanted = [(each.partition, o) for each in ranges for o in range(each.start, each.end)]
    assert covered == wanted
    if max_records:
        assert all(piece.records <= max_records for piece in pieces)
    if max_bytes:
        assert all(
            each.records == 1 or each.records * size <= max_bytes + size * 1.01 for each in pieces
        )


def test_pieces_keep_to_their_bound_where_more_partitions_are_wanted() -> None:
    ranges = [OffsetRange(*ZERO, 0, 90), OffsetRange(*ONE, 0, 10)]
    pieces = split(ranges, min_partitions=12, max_records=9)
    assert max(each.records for each in pieces) <= 9
    assert len(pieces) >= 12


def test_what_has_no_estimate_is_not_divided_by_bytes() -> None:
    ranges = [OffsetRange("t", 0, 0, 100), OffsetRange("t", 1, 0, 100)]
    assert split(ranges, max_bytes=50) == ranges
    pieces = split(ranges, max_bytes=50, record_bytes={ONE: 1.0})
    assert [(each.partition, each.start, each.end) for each in pieces] == [
        (0, 0, 100),
        (1, 0, 50),
        (1, 50, 100),
    ]
