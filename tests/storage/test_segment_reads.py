"""What one read of a segment returns, and which bytes it takes for corrupt."""

from __future__ import annotations

from typing import Final

import pytest

from stele.wire.batch import HEADER_SIZE, PREFIX_SIZE
from storage.cold_range import ColdRange
from storage.compaction.rewriting import emptied
from storage.config import LogConfig
from storage.errors import CorruptLogError
from storage.log import PartitionLog
from storage.segment import Segment, SegmentRead
from storage.segment_indexes import FRAME
from tests.support.batches import header_of, make_batch
from tests.support.partition_log import SMALL, open_log
from tests.support.storage import MemoryDisk, MemoryFile, append

SIZE: Final = len(make_batch())
LENGTH, MAGIC, DELTA = 8, 16, 23
"""Where a header has these fields. The base offset is at 0."""


def filled(disk: MemoryDisk, *counts: int, interval: int = 1 << 20) -> Segment:
    """A segment with batches of so many records each."""
    log = open_log(disk, LogConfig(index_interval_bytes=interval))
    for count in counts:
        append(log, make_batch(count))
    return log.segments.active


def with_empty_batch(disk: MemoryDisk) -> PartitionLog:
    """One batch, and one that compaction has left without records: a header and no more."""
    log = open_log(disk, LogConfig(index_interval_bytes=1 << 20))
    append(log, make_batch())
    log.append_as_follower(emptied(header_of(make_batch(producer=(7, 0, 0), base_offset=1))))
    return log


def damage(disk: MemoryDisk, segment: Segment, position: int, value: bytes) -> None:
    disk.inodes[segment.path].data[position : position + len(value)] = value


def read(
    segment: Segment,
    offset: int,
    max_bytes: int = 1 << 20,
    *,
    limit: int | None = None,
    min_one: bool = True,
    position: int | None = None,
) -> SegmentRead | ColdRange:
    return segment.read(
        offset,
        max_bytes,
        limit_offset=segment.end_offset if limit is None else limit,
        min_one_batch=min_one,
        position=position,
    )


def found(*arguments: object, **options: object) -> tuple[int, int, int]:
    """Bytes, next offset and next position of a read."""
    result = read(*arguments, **options)  # type: ignore[arg-type]
    assert isinstance(result, SegmentRead)
    return len(result.data), result.next_offset, result.next_position


# ------------------------------------------------------------------------------- limits


def test_a_batch_that_ends_with_the_limit_is_not_read() -> None:
    """Its last record is not below the limit: it may still vanish."""
    segment = filled(MemoryDisk(), 3, 3)
    first = len(make_batch(3))
    for most in (1, first - 1, first, 2 * first):
        sizes = [found(segment, 0, most, limit=limit)[0] for limit in (1, 2, 3, 5)]
        assert sizes == [0, 0, first, first]
    assert found(segment, 0, 1, limit=2) == (0, 0, 0)


def test_a_batch_as_large_as_the_most_bytes_is_read() -> None:
    segment = filled(MemoryDisk(), 1, 1)
    assert found(segment, 0, SIZE, min_one=False) == (SIZE, 1, SIZE)
    assert found(segment, 0, SIZE - 1, min_one=False) == (0, 0, 0)
    assert found(segment, 0, SIZE - 1) == (SIZE, 1, SIZE)


def test_a_batch_without_records_is_read_like_any_other() -> None:
    disk = MemoryDisk()
    log = with_empty_batch(disk)
    segment = log.segments.active
    assert segment.locate(2) == segment.size == SIZE + HEADER_SIZE
    assert segment.locate(1) == SIZE
    for max_bytes in (1, HEADER_SIZE, 1000):
        assert found(segment, 1, max_bytes) == (HEADER_SIZE, 2, segment.size)
    append(log, make_batch())
    assert found(segment, 0, 1000, limit=2) == (SIZE + HEADER_SIZE, 2, SIZE + HEADER_SIZE)


def test_a_read_may_end_behind_the_frame_of_a_batch_that_the_index_names() -> None:
    """The batch is not whole then. That is no fault of the index."""
    segment = filled(MemoryDisk(), 1, 1, 1, interval=0)
    for more in (FRAME.size - 1, FRAME.size, FRAME.size + 1):
        assert found(segment, 0, 2 * SIZE + more) == (2 * SIZE, 2, 2 * SIZE)
        assert not segment.indexes_lost


# ------------------------------------------------------------------------------- cold


def test_a_cold_range_is_within_the_file() -> None:
    disk = MemoryDisk()
    segment = filled(disk, 1, 1, 1)
    disk.cold = True
    assert read(segment, 1, 1 << 20, position=SIZE) == ColdRange(segment.path, SIZE, 2 * SIZE)
    assert read(segment, 1, 1, position=SIZE) == ColdRange(segment.path, SIZE, HEADER_SIZE)


def test_a_large_batch_of_which_only_the_header_is_in_memory_is_warmed_as_a_whole() -> None:
    disk = MemoryDisk()
    log = open_log(disk, LogConfig())
    batch = make_batch(size=5000)
    append(log, batch)
    segment = log.segments.active
    disk.cold = True
    disk.warmed.append((segment.path, 0, 100))
    assert read(segment, 0, 100, position=0) == ColdRange(segment.path, 0, len(batch))


@pytest.mark.parametrize("got", [0, FRAME.size - 1, FRAME.size])
def test_what_is_only_partly_in_memory_is_warmed_first(
    got: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read may return fewer bytes than it was asked for."""
    segment = filled(MemoryDisk(), 1)
    monkeypatch.setattr(
        MemoryFile, "read", lambda file, at, size: file.read_now(at, min(size, got))
    )
    if got < FRAME.size:
        assert isinstance(segment.locate(0), ColdRange)
        assert read(segment, 0, 100, position=0) == ColdRange(segment.path, 0, SIZE)
    else:
        assert segment.locate(0) == 0
        assert read(segment, 0, 100, position=0) == ColdRange(segment.path, 0, SIZE)


def test_the_index_is_warmed_before_a_part_of_a_segment_is_read() -> None:
    """Otherwise each header of the part would be looked at."""
    disk = MemoryDisk()
    log = open_log(disk, SMALL)
    while len(log.segment_bases) == 1:
        append(log, make_batch())
    segment = log.segments.all()[0]
    segment.unload()
    index = segment.index_paths()[0]
    disk.cold = True
    disk.warmed.append((segment.path, 0, segment.size))
    cold = read(segment, 0, 3 * SIZE, position=0)
    assert cold == ColdRange(index, 0, len(disk.read_file(index)))


# ------------------------------------------------------------------------------- corruption


@pytest.mark.parametrize(
    ("field", "value"),
    [
        pytest.param(MAGIC, b"\x01", id="magic"),
        pytest.param(LENGTH, (HEADER_SIZE - PREFIX_SIZE - 1).to_bytes(4), id="length"),
        pytest.param(DELTA, b"\xff\xff\xff\xff", id="delta"),
        pytest.param(0, (4).to_bytes(8), id="offset of the end"),
        pytest.param(0, (-1).to_bytes(8, signed=True), id="offset below the segment"),
    ],
)
def test_a_wrong_frame_within_a_read_is_corrupt(field: int, value: bytes) -> None:
    disk = MemoryDisk()
    segment = filled(disk, 1, 1, 1, 1)
    damage(disk, segment, 2 * SIZE + field, value)
    with pytest.raises(CorruptLogError, match=f"at byte {2 * SIZE} .*: no batch stands here"):
        read(segment, 0, 3 * SIZE, position=0)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (MAGIC, b"\x01"),
        (LENGTH, (HEADER_SIZE - PREFIX_SIZE - 1).to_bytes(4)),
        (DELTA, b"\xff\xff\xff\xff"),
    ],
)
def test_a_wrong_frame_on_the_way_to_an_offset_is_corrupt(field: int, value: bytes) -> None:
    disk = MemoryDisk()
    segment = filled(disk, 1, 1, 1)
    damage(disk, segment, SIZE + field, value)
    with pytest.raises(CorruptLogError, match=f"at byte {SIZE} .*: no batch stands here"):
        segment.locate(2)


@pytest.mark.parametrize(("field", "value"), [(MAGIC, b"\x01"), (0, bytes(8))])
def test_a_reader_is_given_no_other_batch_than_the_one_of_its_offset(
    field: int, value: bytes
) -> None:
    disk = MemoryDisk()
    segment = filled(disk, 1, 1, 1)
    damage(disk, segment, SIZE + field, value)
    with pytest.raises(CorruptLogError, match=f"at byte {SIZE} .*: offset 1 does not stand here"):
        read(segment, 1, position=SIZE)


def test_a_segment_that_ends_before_its_offsets_do_is_corrupt() -> None:
    disk = MemoryDisk()
    segment = filled(disk, 1, 1)
    with pytest.raises(CorruptLogError, match="offset 1 should stand here, the file ends"):
        read(segment, 1, position=segment.size)


@pytest.mark.parametrize("max_bytes", [1, 1000])
def test_a_first_batch_that_claims_more_than_the_file_has_is_corrupt(max_bytes: int) -> None:
    """Nobody could warm the rest of it."""
    disk = MemoryDisk()
    segment = filled(disk, 1, 1)
    damage(disk, segment, SIZE + LENGTH, (SIZE - PREFIX_SIZE + 1).to_bytes(4))
    with pytest.raises(CorruptLogError, match="the file ends inside a batch"):
        read(segment, 1, max_bytes, position=SIZE)
