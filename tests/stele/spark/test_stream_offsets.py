from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.ids import TopicPartition
from stele.spark.offsets import DataLossError, Logs
from stele.spark.options import Subscription
from stele.spark.stream_offsets import (
    CheckpointError,
    StreamOffsets,
    check_subscription,
    next_offsets,
    ranges,
    shares,
)

ZERO, ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
IDS = {"t": b"\x01" * 16, "u": b"\x02" * 16}
NAMES = st.tuples(st.sampled_from(["t", "u"]), st.integers(0, 3)).map(
    lambda pair: TopicPartition(*pair)
)


def logs(**ends: tuple[int, int]) -> Logs:
    names = {"zero": ZERO, "one": ONE, "other": OTHER}
    return Logs(
        {names[key]: low for key, (low, _) in ends.items()},
        {names[key]: high for key, (_, high) in ends.items()},
        topic_ids=IDS,
    )


@given(st.dictionaries(NAMES, st.integers(0, 2**62)))
def test_offsets_survive_sparks_json(offsets: dict[TopicPartition, int]) -> None:
    ids = {name.topic: IDS[name.topic] for name in offsets}
    text = json.dumps(StreamOffsets(offsets, ids).to_json())
    assert StreamOffsets.from_json(json.loads(text)) == StreamOffsets(offsets, ids)
    backwards = dict(reversed(list(offsets.items())))
    assert json.dumps(StreamOffsets(backwards, ids).to_json()) == text


@pytest.mark.parametrize("value", [{}, {"t": {"0": 3}}, {"topics": {"t": {"id": "x"}}}])
def test_a_checkpoint_of_another_format_is_refused(value: dict[str, object]) -> None:
    with pytest.raises(CheckpointError, match="own checkpointLocation"):
        StreamOffsets.from_json(value)


def test_a_checkpoint_of_other_topics_is_refused() -> None:
    start = StreamOffsets({ZERO: 3}, IDS)
    check_subscription(start, Subscription(("t", "u")))
    check_subscription(start, Subscription(pattern=re.compile("[tu]")))
    with pytest.raises(CheckpointError, match="is of the topics t, but the query reads u"):
        check_subscription(start, Subscription(("u",)))


def test_a_checkpoint_without_topics_suits_every_query() -> None:
    """The query began before there was a topic that its pattern matches."""
    check_subscription(StreamOffsets({}, {}), Subscription(("u",)))


def test_a_new_partition_first_appears_at_its_beginning_and_is_read_then() -> None:
    start = StreamOffsets({ZERO: 3}, {"t": IDS["t"]})
    first = next_offsets(start, logs(zero=(0, 5), one=(0, 9), other=(4, 6)))
    assert first.offsets == {ZERO: 5, ONE: 0, OTHER: 4}
    assert [(each.name, each.start, each.end) for each in ranges(start, first)] == [(ZERO, 3, 5)]
    second = next_offsets(first, logs(zero=(0, 5), one=(0, 9), other=(4, 6)))
    assert [(each.name, each.start, each.end) for each in ranges(first, second)] == [
        (ONE, 0, 9),
        (OTHER, 4, 6),
    ]
    assert next_offsets(second, logs(zero=(0, 5), one=(0, 9), other=(4, 6))) == second


def test_a_topic_that_was_made_again_begins_anew_or_stops_the_query() -> None:
    start = StreamOffsets({ZERO: 3}, {"t": b"\x07" * 16})
    with pytest.raises(DataLossError, match="'t' was deleted and created again"):
        next_offsets(start, logs(zero=(0, 9)))
    end = next_offsets(start, logs(zero=(0, 9)), fail_on_data_loss=False)
    assert (end.offsets, end.topic_ids) == ({ZERO: 0}, {"t": IDS["t"]})
    assert ranges(start, end) == []
    (read,) = ranges(end, next_offsets(end, logs(zero=(0, 9))))
    assert (read.start, read.end, read.topic_id) == (0, 9, IDS["t"])


@pytest.mark.parametrize(("low", "high", "begin"), [(5, 9, 5), (0, 2, 2)])
def test_offsets_that_are_gone_stop_the_query_or_are_passed_over(
    low: int, high: int, begin: int
) -> None:
    start = StreamOffsets({ZERO: 3}, IDS)
    with pytest.raises(DataLossError, match=f"begins at 3, but the log has {low} to {high}"):
        next_offsets(start, logs(zero=(low, high)))
    end = next_offsets(start, logs(zero=(low, high)), max_rows=0, fail_on_data_loss=False)
    assert end.offsets == {ZERO: begin}


def test_a_deleted_partition_stops_the_query_or_is_forgotten() -> None:
    start = StreamOffsets({ZERO: 3, OTHER: 1}, IDS)
    with pytest.raises(DataLossError, match="u-0, which the query reads, does not exist"):
        next_offsets(start, logs(zero=(0, 3)))
    end = next_offsets(start, logs(zero=(0, 3)), fail_on_data_loss=False)
    assert end.offsets == {ZERO: 3}


def test_a_batch_has_all_rows_that_a_greater_limit_allows() -> None:
    start = StreamOffsets({ZERO: 3}, IDS)
    assert next_offsets(start, logs(zero=(0, 9)), max_rows=30).offsets == {ZERO: 9}


def test_offsets_of_an_earlier_topic_begin_no_range_of_the_later_one() -> None:
    end = StreamOffsets({ZERO: 5, OTHER: 5}, IDS)
    start = StreamOffsets({ZERO: 3, OTHER: 3}, {**IDS, "u": b"\x03" * 16})
    assert [each.name for each in ranges(start, end)] == [ZERO]


def test_too_few_rows_make_no_batch() -> None:
    start = StreamOffsets({ZERO: 3}, IDS)
    assert next_offsets(start, logs(zero=(0, 9)), min_rows=7).offsets == {ZERO: 3}
    assert next_offsets(start, logs(zero=(0, 9)), min_rows=6).offsets == {ZERO: 9}
    few = next_offsets(start, logs(zero=(0, 9)), min_rows=7, max_rows=2)
    assert few.offsets == {ZERO: 3}


@given(st.dictionaries(NAMES, st.integers(0, 10_000), min_size=1), st.data())
def test_shares_use_the_limit_exactly_and_leave_nobody_out(
    there: dict[TopicPartition, int], data: st.DataObject
) -> None:
    total = sum(there.values())
    limit = data.draw(st.integers(0, total))
    taken = shares(there, limit)
    assert sum(taken.values()) == limit
    assert all(0 <= taken[name] <= there[name] for name in there)
    if limit >= sum(1 for count in there.values() if count):
        assert all(taken[name] or not there[name] for name in there)


@given(
    st.dictionaries(NAMES, st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1),
    st.integers(1, 30),
)
def test_batches_of_any_limit_read_every_offset_once(
    ends: dict[TopicPartition, tuple[int, int]], limit: int
) -> None:
    lows = {name: low for name, (low, _) in ends.items()}
    all_logs = Logs(lows, {n: low + more for n, (low, more) in ends.items()}, topic_ids=IDS)
    at, seen = StreamOffsets({}, {}), []
    while (end := next_offsets(at, all_logs, max_rows=limit)) != at:
        found = ranges(at, end)
        assert sum(each.records for each in found) <= limit
        seen += [(each.name, offset) for each in found for offset in range(each.start, each.end)]
        at = end
    wanted = [(n, o) for n in ends for o in range(lows[n], all_logs.ends[n])]
    assert sorted(seen) == sorted(wanted)
