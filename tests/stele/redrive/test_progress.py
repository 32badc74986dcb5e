"""Progress of a redrive beside a set of offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stele.errors import ApiError
from stele.redrive.progress import PartitionProgress

ranges = st.lists(st.tuples(st.integers(0, 40), st.integers(-2, 9)), max_size=30)


@given(st.integers(0, 20), ranges)
def test_progress_is_that_of_a_set_and_survives_its_metadata(
    start: int, added: list[tuple[int, int]]
) -> None:
    progress, twin = PartitionProgress(start), set(range(start))
    for first, length in added:
        progress.add(first, first + length)
        twin |= set(range(first, first + length + 1))
        for each in (progress, PartitionProgress.of(progress.first_undone, progress.metadata())):
            assert [offset for offset in range(60) if each.is_done(offset)] == sorted(twin)
            assert each.first_undone == min(set(range(70)) - twin)
            assert each.metadata() == progress.metadata()


def test_metadata_are_empty_unless_letters_are_left() -> None:
    progress = PartitionProgress(5)
    progress.add(5, 9)
    assert (progress.first_undone, progress.metadata()) == (10, "")
    progress.add(12, 12)
    assert progress.metadata()


def test_a_pattern_of_thousands_of_letters_has_room_in_metadata() -> None:
    progress = PartitionProgress()
    for offset in range(1, 20_000, 2):
        progress.add(offset, offset)
    assert len(progress.metadata()) < 200


@pytest.mark.parametrize("text", ["x", "redrive-1:?", "redrive-1:AAAA", "redrive-1:eJxjAAAAAQAB"])
def test_metadata_of_another_program_are_refused(text: str) -> None:
    with pytest.raises(ApiError, match="are not those of a redrive"):
        PartitionProgress.of(7, text)
