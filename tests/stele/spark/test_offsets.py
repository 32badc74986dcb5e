from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.spark.offsets import EARLIEST, LATEST, OffsetRange, OptionError, SourceOptions, split

BASE = {"bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}


def test_defaults_are_sparks() -> None:
    options = SourceOptions.parse(BASE)
    assert options.topics == ("orders",)
    assert options.start.of("orders", 3) == EARLIEST
    assert options.end.of("orders", 3) == LATEST
    assert options.fail_on_data_loss
    assert not options.include_headers


def test_names_are_case_insensitive_and_kafkas_prefix_is_accepted() -> None:
    options = SourceOptions.parse(
        {"kafka.bootstrap.servers": "h:1", "SUBSCRIBE": "a, b", "includeHeaders": "TRUE"}
    )
    assert options.topics == ("a", "b")
    assert options.include_headers


def test_offsets_by_partition() -> None:
    options = SourceOptions.parse({**BASE, "startingOffsets": '{"orders": {"0": 23, "1": -2}}'})
    assert [options.start.of("orders", number) for number in range(3)] == [23, EARLIEST, EARLIEST]


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"subscribe": ""}, "subscribe"),
        ({"bootstrap.servers": ""}, "bootstrap.servers"),
        ({"startingOffset": "earliest"}, "unknown option 'startingOffset'"),
        ({"startingOffsets": "first"}, "startingOffsets"),
        ({"endingOffsets": '{"orders": 3}'}, "endingOffsets"),
        ({"endingOffsets": '{"orders": {"0": -7}}'}, "at least 0"),
        ({"minPartitions": "-1"}, "minPartitions"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss"),
    ],
)
def test_a_wrong_option_is_named(change: dict[str, str], word: str) -> None:
    with pytest.raises(OptionError, match=word):
        SourceOptions.parse({**BASE, **change})


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=6),
    st.integers(0, 40),
)
def test_split_covers_every_offset_once(bounds: list[tuple[int, int]], least: int) -> None:
    ranges = [OffsetRange("t", n, low, low + size) for n, (low, size) in enumerate(bounds)]
    pieces = split(ranges, least)
    assert all(piece.records > 0 for piece in pieces)
    covered = [(piece.partition, o) for piece in pieces for o in range(piece.start, piece.end)]
    wanted = [(each.partition, o) for each in ranges for o in range(each.start, each.end)]
    assert covered == wanted
