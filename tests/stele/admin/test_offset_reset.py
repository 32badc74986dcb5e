"""The offsets that a reset would give."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.admin.offset_reset import PartitionOffsets, Place, Target, plan
from stele.errors import ConfigError
from stele.ids import TopicPartition

NAME = TopicPartition("orders", 0)
COMMITTED = PartitionOffsets(10, 20, committed=15)
NONE = PartitionOffsets(10, 20)
OLD = PartitionOffsets(10, 20, committed=3)  # retention has deleted what the group would read
EMPTY = PartitionOffsets(7, 7)


@pytest.mark.parametrize(
    ("place", "number", "known", "expected", "warning"),
    [
        (Place.EARLIEST, 0, COMMITTED, 10, None),
        (Place.EARLIEST, 0, EMPTY, 7, None),
        (Place.LATEST, 0, COMMITTED, 20, None),
        (Place.CURRENT, 0, COMMITTED, 15, None),
        (Place.CURRENT, 0, OLD, 3, None),
        (Place.CURRENT, 0, NONE, 20, None),
        (Place.TIME, 99, PartitionOffsets(10, 20, at_time=12), 12, None),
        (Place.TIME, 99, PartitionOffsets(10, 20, at_time=10, committed=15), 10, None),
        (Place.TIME, 99, COMMITTED, 20, "no record since then"),
        (Place.TIME, 99, EMPTY, 7, "no record since then"),
        (Place.OFFSET, 10, NONE, 10, None),
        (Place.OFFSET, 20, NONE, 20, None),
        (Place.OFFSET, 9, NONE, 10, "orders-0 begins at 10: that is taken instead of 9"),
        (Place.OFFSET, 21, NONE, 20, "orders-0 ends at 20: that is taken instead of 21"),
        (Place.OFFSET, 0, EMPTY, 7, "begins at 7"),
        (Place.SHIFT, 0, COMMITTED, 15, None),
        (Place.SHIFT, -5, COMMITTED, 10, None),
        (Place.SHIFT, 5, COMMITTED, 20, None),
        (Place.SHIFT, -6, COMMITTED, 10, "begins at 10: that is taken instead of 9"),
        (Place.SHIFT, 6, COMMITTED, 20, "ends at 20: that is taken instead of 21"),
        (Place.SHIFT, 0, OLD, 10, "begins at 10"),
    ],
)
def test_one_partition(
    place: Place, number: int, known: PartitionOffsets, expected: int, warning: str | None
) -> None:
    made = plan({NAME: Target(place, number)}, {NAME: known})
    assert made.offsets == {NAME: expected}
    assert len(made.warnings) == (warning is not None)
    assert (warning or "") in "".join(made.warnings)


def test_a_partition_without_offset_cannot_be_shifted() -> None:
    with pytest.raises(ConfigError, match="orders-0 has no committed offset"):
        plan({NAME: Target(Place.SHIFT, 1)}, {NAME: NONE})


def test_each_partition_has_its_own_target() -> None:
    other = TopicPartition("orders", 1)
    targets = {NAME: Target(Place.OFFSET, 11), other: Target(Place.OFFSET, 30)}
    made = plan(targets, {NAME: NONE, other: NONE})
    assert made.offsets == {NAME: 11, other: 20}
    assert len(made.warnings) == 1


@given(
    st.sampled_from([Place.OFFSET, Place.SHIFT]),
    st.integers(-(2**63), 2**63),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.integers(0, 2**62),
)
def test_the_new_offset_is_in_the_log(
    place: Place, number: int, earliest: int, size: int, committed: int
) -> None:
    known = PartitionOffsets(earliest, earliest + size, committed)
    wanted = number + (committed if place is Place.SHIFT else 0)
    made = plan({NAME: Target(place, number)}, {NAME: known})
    assert made.offsets[NAME] == sorted((earliest, wanted, earliest + size))[1]
    assert bool(made.warnings) == (made.offsets[NAME] != wanted)
