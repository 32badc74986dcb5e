"""The compiled module beside Python in a compaction: the map of keys, and the records that stay."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stele.wire import native
from stele.wire.batch import BatchError, read_header, stamp
from stele.wire.batch_errors import CorruptBatchError
from stele.world import Buffer
from storage.compaction.offset_map import KeptRecords, OffsetMap
from storage.compaction.request import CompactionRequest
from storage.compaction.rewriting import Rules, rewritten
from storage.compaction.slots import SLOT_BYTES
from storage.compaction.work import compact
from storage.segment_names import segment_paths
from tests.stele.wire.test_native import MODULE, bodies, body_of, needs_module, raw_batch
from tests.support.compaction import DIRECTORY
from tests.support.storage import MemoryDisk

OFFSET_MAX = 2**63 - 1
OFFSETS = st.sampled_from([0, 1, 7, 2**40, 2**62, OFFSET_MAX - 101, OFFSET_MAX])
KEYS = [b"", b"k" * 9000, *(b"%d" % number for number in range(40))]
ALL_KEYS = body_of([(0, key, b"", []) for key in KEYS])
LARGE = body_of([(0, key, b"v" * 2000, []) for key in KEYS])  # without the interpreter's lock

Work = Callable[[OffsetMap], object]


def small_map(module: Any, slots: int) -> OffsetMap:
    """A map of this implementation. ``None`` is Python."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(native, "NATIVE", module)
        return OffsetMap(slots * SLOT_BYTES, 0.9, 1 << 40)


def base_of(first: int, number: int) -> int:
    """Of a batch among others. A header has room for no greater one."""
    return min(first + number * 100, OFFSET_MAX)


def outcome(module: Any, work: Callable[[], object]) -> object:
    """What the work returns or raises."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(native, "NATIVE", module)
        try:
            return work()
        except (BatchError, ArithmeticError, ValueError) as error:
            return type(error), str(error)


class Pair:
    """A map in Python, and its compiled twin."""

    def __init__(self, slots: int) -> None:
        self.reference = small_map(None, slots)
        self.compiled = small_map(MODULE, slots)

    def agrees(self, work: Work) -> None:
        expected = outcome(None, lambda: work(self.reference))
        assert outcome(MODULE, lambda: work(self.compiled)) == expected

    def put_all(self, drawn: list[tuple[bytes, int]], base_offset: int) -> None:
        for number, (data, count) in enumerate(drawn):
            self.agrees(partial(_put_keys, data, count, base_of(base_offset, number)))
            assert self.compiled.count == self.reference.count
        for key in KEYS:
            assert self.compiled.get(key) == self.reference.get(key)


def _put_keys(data: bytes, count: int, base_offset: int, offsets: OffsetMap) -> bool:
    return offsets.put_keys(data, count, base_offset)


def _kept(
    data: bytes, count: int, base_offset: int, drop_tombstones: bool, offsets: OffsetMap
) -> KeptRecords:
    return offsets.kept_records(data, count, base_offset, drop_tombstones=drop_tombstones)


def _rewritten(batch: Buffer, kept_batches: frozenset[int], offsets: OffsetMap) -> bytes | None:
    rules = Rules(offsets, 1000, 5000, 100, kept_batches, frozenset())
    kept = rewritten(batch, read_header(batch), rules, is_aborted=False)
    return None if kept is None else bytes(kept)


def _put(key: bytes, offset: int, offsets: OffsetMap) -> bool:
    return offsets.put(key, offset)


@needs_module
@given(
    st.lists(st.tuples(bodies(), st.integers(-1, 8)), max_size=3),
    st.integers(0, 40),
    OFFSETS,
    st.booleans(),
)
@example([(ALL_KEYS, len(KEYS))] * 2, 20, 0, False)
@example([(ALL_KEYS, len(KEYS))] * 2, 60, 0, False)
@example([(body_of([(5, b"k", None, []), (9, b"l", b"", [])]), 2)], 20, 0, True)
def test_a_map_takes_keys_and_keeps_records_as_in_python(
    drawn: list[tuple[bytes, int]], slots: int, base_offset: int, drop_tombstones: bool
) -> None:
    both = Pair(slots)
    both.put_all(drawn, base_offset)
    for number, (data, count) in enumerate(drawn):
        both.agrees(partial(_kept, data, count, base_of(base_offset, number), drop_tombstones))


@needs_module
def test_a_large_body_is_handled_as_in_python() -> None:
    both = Pair(60)
    both.put_all([(LARGE, len(KEYS)), (LARGE[:-5000], len(KEYS)), (ALL_KEYS, len(KEYS))], 0)
    both.agrees(partial(_kept, LARGE, len(KEYS), 200, False))
    both.agrees(partial(_kept, LARGE, len(KEYS), 180, False))


@needs_module
@given(
    st.lists(st.tuples(bodies(), st.integers(0, 8)), min_size=1, max_size=3),
    st.integers(3, 40),
    st.booleans(),
)
def test_a_batch_is_written_again_as_in_python(
    drawn: list[tuple[bytes, int]], slots: int, is_kept: bool
) -> None:
    """Byte for byte, and error for error."""
    both = Pair(slots)
    both.put_all(drawn, 0)
    for data, count in drawn:
        batch = raw_batch(data, count).data
        last_offset = read_header(batch).last_offset
        kept_batches = frozenset([last_offset] if is_kept else [])
        both.agrees(partial(_rewritten, batch, kept_batches))


@needs_module
@given(st.lists(st.tuples(bodies(), st.integers(0, 8)), min_size=1, max_size=3))
def test_a_segment_is_compacted_as_in_python(drawn: list[tuple[bytes, int]]) -> None:
    """All steps, answers and files of a round."""
    expected = outcome(None, partial(_compacted, drawn))
    assert outcome(MODULE, partial(_compacted, drawn)) == expected


def _compacted(drawn: list[tuple[bytes, int]]) -> tuple[list[str], dict[str, bytes]]:
    segment = bytearray()
    end = 0
    for data, count in drawn:
        batch = bytearray(raw_batch(data, count).data)
        stamp(batch, 0, base_offset=end, leader_epoch=0)
        segment += batch
        end = read_header(batch).next_offset
    disk = MemoryDisk()
    disk.make_directory(DIRECTORY)
    file = disk.open(segment_paths(DIRECTORY, 0)[0], create=True)
    file.append([segment])
    request = CompactionRequest(
        directory=DIRECTORY,
        segments=((0, end, len(segment)),),
        first_dirty=0,
        map_bytes=10 * SLOT_BYTES,
        load_factor=0.9,
        bytes_per_s=1e12,
        now_ms=5000,
        delete_retention_ms=100,
        kept_batches=(),
        kept_markers=(),
        aborted_later=(),
        segment_bytes=1 << 30,
        segment_index_bytes=1 << 20,
        index_interval_bytes=1,
    )
    steps = [repr(step) for step in compact(disk, *request)]
    return steps, {path: bytes(inode.data) for path, inode in disk.inodes.items()}


@needs_module
@given(st.lists(st.tuples(st.sampled_from(KEYS), st.integers(0, 2**63 - 1))), st.integers(0, 60))
def test_single_keys_are_put_as_in_python(puts: list[tuple[bytes, int]], slots: int) -> None:
    both = Pair(slots)
    for key, offset in puts:
        both.agrees(partial(_put, key, offset))
    both.put_all([], 0)


@pytest.mark.parametrize("module", [None, pytest.param(MODULE, marks=needs_module)])
def test_what_stays_has_its_bytes_its_count_and_its_greatest_time(module: Any) -> None:
    records: list[Any] = [
        (3, b"a", b"1", []),
        (9, b"b", None, []),
        (5, None, b"x", []),
        (4, b"a", b"2", []),
    ]
    data = body_of(records)
    ends = [0, *(len(body_of(records[:count])) for count in range(1, 5))]
    offsets = small_map(module, 50)
    assert offsets.put_keys(data, 4, 100)
    last = data[ends[3] :]
    with_tombstones = offsets.kept_records(data, 4, 100, drop_tombstones=False)
    assert with_tombstones == KeptRecords(data[ends[1] : ends[2]] + last, 2, True, 6)
    without = offsets.kept_records(data, 4, 100, drop_tombstones=True)
    assert without == KeptRecords(last, 1, False, 1)
    assert offsets.count == 2


@pytest.mark.parametrize("module", [None, pytest.param(MODULE, marks=needs_module)])
def test_a_full_map_takes_no_new_key_and_later_offsets_of_its_own(module: Any) -> None:
    offsets = small_map(module, 11)
    keys = [b"%d" % number for number in range(offsets.capacity)]
    data = body_of([(0, key, b"", []) for key in keys])
    assert offsets.put_keys(data, len(keys), 0)
    assert offsets.put_keys(data, len(keys), 50)
    assert not offsets.put_keys(body_of([(0, b"one more", b"", [])]), 1, 90)
    assert [offsets.get(key) for key in keys] == [50 + number for number in range(len(keys))]
    assert offsets.count == offsets.capacity


@pytest.mark.parametrize("module", [None, pytest.param(MODULE, marks=needs_module)])
def test_an_offset_that_is_none_is_an_error_of_its_batch(module: Any) -> None:
    offsets = small_map(module, 11)
    data = body_of([(0, b"a", b"", []), (0, b"b", b"", [])])
    message = f"a record of the batch at {2**63 - 1} has offset {2**63}"
    with pytest.raises(CorruptBatchError, match=message):
        offsets.put_keys(data, 2, 2**63 - 1)
    assert (offsets.get(b"a"), offsets.get(b"b")) == (2**63 - 1, -1)


@needs_module
def test_sound_records_are_not_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all comparisons here would compare Python with itself."""
    offsets = small_map(MODULE, 100)

    def refused(*_: object) -> None:
        raise AssertionError("Python did the work")

    monkeypatch.setattr("storage.compaction.offset_map.stored_records", refused)
    assert offsets.put_keys(ALL_KEYS, len(KEYS), 0)
    kept = offsets.kept_records(ALL_KEYS, len(KEYS), 0, drop_tombstones=False)
    assert kept.body is ALL_KEYS


@needs_module
def test_the_memory_of_the_slots_is_reserved_at_once_or_refused() -> None:
    assert MODULE is not None
    with pytest.raises(MemoryError):
        MODULE.Slots(2**62, 1)
    with pytest.raises(MemoryError):
        MODULE.Slots(2**58, 1)


@needs_module
@pytest.mark.parametrize("number", [0, 1])
def test_slots_that_are_too_few_for_a_step_are_full(number: int) -> None:
    assert MODULE is not None
    slots = MODULE.Slots(number, 1)
    assert not slots.put(1, 2, 3)
    assert (slots.get(1, 2), slots.count) == (-1, 0)
