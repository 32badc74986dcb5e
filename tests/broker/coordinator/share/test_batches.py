"""Persisted batches beside a twin of one entry for each offset."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from broker.coordinator.share.batches import merged
from broker.share.values import RecordState, StateBatch

STATES = tuple(each for each in RecordState if each is not RecordState.ACQUIRED)
Twin = dict[int, tuple[RecordState, int]]


@st.composite
def batches(draw: st.DrawFn) -> StateBatch:
    first = draw(st.integers(0, 25))
    last = draw(st.integers(first, min(first + 8, 30)))
    return StateBatch(first, last, draw(st.sampled_from(STATES)), draw(st.integers(0, 3)))


def put(twin: Twin, batch: StateBatch) -> None:
    for offset in range(batch.first, batch.last + 1):
        new = batch.state, batch.delivery_count
        old = twin.get(offset, new)
        twin[offset] = max(old, new, key=lambda each: (each[0].is_final, each[1], each[0]))


def twin_of(written: Iterable[StateBatch]) -> Twin:
    twin: Twin = {}
    for each in written:
        put(twin, each)
    return twin


def spelled(found: Sequence[StateBatch]) -> Twin:
    """Each offset, where the batches are ascending and without overlaps."""
    twin: Twin = {}
    end = -1
    for each in found:
        assert end < each.first <= each.last
        end = each.last
        for offset in range(each.first, each.last + 1):
            twin[offset] = each.state, each.delivery_count
    return twin


@given(
    writes=st.lists(st.lists(batches(), max_size=4), max_size=8),
    starts=st.lists(st.integers(0, 20), min_size=8, max_size=8),
)
def test_merged_batches_say_what_each_offset_has(
    writes: list[list[StateBatch]], starts: list[int]
) -> None:
    found: tuple[StateBatch, ...] = ()
    twin: Twin = {}
    for write, start in zip(writes, sorted(starts), strict=False):
        found = merged(found, write, start)
        for each in write:
            put(twin, each)
        twin = {offset: what for offset, what in twin.items() if offset >= start}
        assert spelled(found) == twin


@given(written=st.lists(batches(), max_size=8))
@example(
    written=[StateBatch(5, 5, RecordState.AVAILABLE, 1), StateBatch(4, 4, RecordState.AVAILABLE, 1)]
)
@example(
    written=[StateBatch(4, 4, RecordState.AVAILABLE, 1), StateBatch(5, 5, RecordState.AVAILABLE, 1)]
)
def test_neighbours_that_are_alike_are_one(written: list[StateBatch]) -> None:
    found = merged((), written, 0)
    for before, after in itertools.pairwise(found):
        assert before.last + 1 < after.first or before[2:] != after[2:]


@given(written=st.permutations(range(6)), data=st.data())
def test_the_order_of_writes_has_no_influence(written: list[int], data: st.DataObject) -> None:
    each = data.draw(st.lists(batches(), min_size=6, max_size=6))
    assert merged((), [each[n] for n in written], 0) == merged((), each, 0)
    assert merged(merged((), each, 0), each, 0) == merged((), each, 0)


def test_a_done_record_stays_done() -> None:
    done = StateBatch(5, 5, RecordState.ACKNOWLEDGED, 1)
    late = StateBatch(0, 9, RecordState.AVAILABLE, 3)
    assert merged((done,), (late,), 0) == (
        late._replace(last=4),
        done,
        late._replace(first=6),
    )
