"""The file of a segment's aborted transactions: Kafka's bytes, and what is not believed."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from storage.cold_range import ColdRange
from storage.errors import CorruptLogError
from storage.txn_index import (
    ENTRY_SIZE,
    SLICE_ENTRIES,
    AbortedTransaction,
    TxnIndex,
    WrongTxnIndexError,
    decode_aborted,
    encode_aborted,
)
from tests.support.storage import MemoryDisk, MemoryFile

PATH = "/d/00000000000000000000.txnindex"
ONE = AbortedTransaction(7, 3, 9, 10)
TWO = AbortedTransaction(8, 9, 10, 2)
THREE = AbortedTransaction(7, 10, 15, 12)


def on_disk(*entries: AbortedTransaction, tail: bytes = b"") -> tuple[MemoryDisk, TxnIndex]:
    disk = MemoryDisk()
    disk.make_directory("/d")
    disk.open(PATH, create=True).append([encode_aborted(entries) + tail])
    index = TxnIndex(PATH)
    index.is_present = True
    return disk, index


def test_the_bytes_are_kafkas() -> None:
    data = encode_aborted([ONE])
    assert data == struct.pack(">hqqqq", 0, 7, 3, 9, 10)
    assert len(data) == ENTRY_SIZE == 34
    assert decode_aborted(data) == [ONE]


@pytest.mark.parametrize(
    "data",
    [
        encode_aborted([ONE])[:-1],
        b"\0\1" + encode_aborted([ONE])[2:],
        bytes(ENTRY_SIZE),  # sectors that were never written
        encode_aborted([THREE, ONE]),
        encode_aborted([ONE, ONE]),
        encode_aborted([AbortedTransaction(7, 9, 9, 10)]),
        encode_aborted([AbortedTransaction(7, -1, 9, 10)]),
    ],
    ids=["cut", "version", "zeroes", "order", "twice", "empty", "negative"],
)
def test_what_no_log_writes_is_wrong(data: bytes) -> None:
    with pytest.raises(WrongTxnIndexError):
        decode_aborted(data)


def test_without_a_file_nothing_was_aborted() -> None:
    disk, index = MemoryDisk(), TxnIndex(PATH)
    assert index.entries(disk) == ()
    assert index.read_sound(disk, below=100) == []
    assert not index.truncate_to(disk, 0)
    assert not disk.exists(PATH)


def test_entries_are_appended_to_what_the_file_has() -> None:
    disk, index = on_disk(ONE)
    index.append(disk, TWO)
    assert index.entries(disk) == [ONE, TWO]
    index.unload()
    index.append(disk, THREE)
    assert disk.read_file(PATH) == encode_aborted([ONE, TWO, THREE])
    index.unload()
    assert index.entries(disk) == [ONE, TWO, THREE]


def test_the_first_entry_makes_the_file() -> None:
    disk, index = MemoryDisk(), TxnIndex(PATH)
    disk.make_directory("/d")
    index.append(disk, ONE)
    assert index.is_present
    assert disk.read_file(PATH) == encode_aborted([ONE])


def test_an_append_replaces_what_a_failed_one_has_left() -> None:
    disk, index = on_disk(ONE)
    assert index.entries(disk) == [ONE]
    disk.open(PATH).append([b"half of an ent"])
    index.append(disk, TWO)
    assert disk.read_file(PATH) == encode_aborted([ONE, TWO])


def test_an_append_decodes_nothing() -> None:
    disk, index = on_disk(*many(SLICE_ENTRIES + 1))
    last = AbortedTransaction(7, 99_998, 99_999, 100_000)
    index.append(disk, last)
    found, wanted = loaded(index, disk)
    assert (found[-1], len(found), len(wanted)) == (last, SLICE_ENTRIES + 2, 1)


def test_a_wrong_file_is_corrupt() -> None:
    disk, index = on_disk(ONE, tail=b"x")
    with pytest.raises(CorruptLogError):
        index.entries(disk)
    with pytest.raises(CorruptLogError):
        index.append(disk, TWO)
    assert disk.read_file(PATH) == encode_aborted([ONE]) + b"x"


LATER_VERSION = b"\0\1" + encode_aborted([AbortedTransaction(7, 16, 17, 18)])[2:]


@pytest.mark.parametrize(
    "tail", [b"", b"torn", bytes(ENTRY_SIZE), encode_aborted([ONE]), LATER_VERSION]
)
def test_what_follows_the_recovery_point_is_not_believed(tail: bytes) -> None:
    disk, index = on_disk(ONE, TWO, THREE, tail=tail)
    assert index.read_sound(disk, below=99) == [ONE, TWO, THREE]
    assert index.read_sound(disk, below=16) == [ONE, TWO, THREE]
    assert index.read_sound(disk, below=15) == [ONE, TWO]
    assert index.read_sound(disk, below=10) == [ONE]
    assert index.read_sound(disk, below=9) == []


def test_a_truncation_removes_markers_that_are_gone() -> None:
    disk, index = on_disk(ONE, TWO, THREE)
    assert not index.truncate_to(disk, 16)
    assert index.truncate_to(disk, 15)
    assert disk.read_file(PATH) == encode_aborted([ONE, TWO])
    assert index.entries(disk) == [ONE, TWO]
    assert index.truncate_to(disk, 0)
    assert disk.read_file(PATH) == b""


@pytest.mark.parametrize("is_loaded", [False, True])
def test_the_entry_that_came_last_can_go_again(is_loaded: bool) -> None:
    disk, index = on_disk(ONE, TWO)
    if is_loaded:
        index.entries(disk)
    index.append(disk, THREE)
    index.drop_last(disk)
    assert decode_aborted(disk.read_file(PATH)) == index.entries(disk) == [ONE, TWO]


@pytest.mark.parametrize("kept", [0, 1, 70_000, 99_999, 100_000])
def test_a_cut_of_a_large_index_reads_a_few_entries(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, index = on_disk(*many(100_000))
    reads: list[int] = []
    read_now = MemoryFile.read_now

    def counted(self: MemoryFile, position: int, size: int) -> bytes | bytearray:
        reads.append(size)
        return read_now(self, position, size)

    monkeypatch.setattr(MemoryFile, "read_now", counted)
    assert index.truncate_to(disk, 2 * kept + 1) == (kept < 100_000)
    if kept == 100_000:
        index.drop_last(disk)
    assert len(reads) <= 18
    assert set(reads) == {ENTRY_SIZE}
    assert disk.open(PATH).size == min(kept, 99_999) * ENTRY_SIZE


def test_what_is_not_in_memory_is_warmed_first() -> None:
    disk, index = on_disk(ONE, TWO)
    disk.cold = True
    assert index.entries(disk) == ColdRange(PATH, 0, 2 * ENTRY_SIZE)
    disk.cold = False
    assert index.entries(disk) == [ONE, TWO]
    assert index.entries(disk) == [ONE, TWO]


def test_what_is_only_partly_in_memory_is_warmed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    disk, index = on_disk(ONE, TWO)
    read = MemoryFile.read

    def read_in_part(file: MemoryFile, position: int, size: int) -> Any:
        return read(file, position, min(size, ENTRY_SIZE))

    monkeypatch.setattr(MemoryFile, "read", read_in_part)
    assert index.entries(disk) == ColdRange(PATH, 0, 2 * ENTRY_SIZE)


def many(count: int) -> list[AbortedTransaction]:
    return [AbortedTransaction(7, 2 * n, 2 * n + 1, 2 * n + 2) for n in range(count)]


def loaded(index: TxnIndex, disk: MemoryDisk) -> tuple[list[AbortedTransaction], list[ColdRange]]:
    """The entries, and what each call before the last one wanted to be warmed."""
    wanted: list[ColdRange] = []
    while isinstance(found := index.entries(disk), ColdRange):
        wanted.append(found)
    return list(found), wanted


SLICE_BYTES = SLICE_ENTRIES * ENTRY_SIZE


@pytest.mark.parametrize("count", [0, 1, SLICE_ENTRIES, SLICE_ENTRIES + 1, 2 * SLICE_ENTRIES + 1])
def test_a_call_decodes_one_slice_at_most(count: int) -> None:
    disk, index = on_disk(*many(count))
    found, wanted = loaded(index, disk)
    assert found == decode_aborted(disk.read_file(PATH))
    starts = range(SLICE_BYTES, count * ENTRY_SIZE, SLICE_BYTES)
    assert wanted == [
        ColdRange(PATH, start, min(SLICE_BYTES, count * ENTRY_SIZE - start)) for start in starts
    ]


def test_an_entry_before_that_of_an_earlier_slice_is_wrong() -> None:
    disk, index = on_disk(*many(SLICE_ENTRIES), ONE)
    assert isinstance(index.entries(disk), ColdRange)
    with pytest.raises(CorruptLogError):
        index.entries(disk)


def change_by_append(index: TxnIndex, disk: MemoryDisk) -> None:
    index.append(disk, AbortedTransaction(7, 99_998, 99_999, 100_000))


def change_by_truncation(index: TxnIndex, disk: MemoryDisk) -> None:
    index.truncate_to(disk, 9)


def change_by_retreat(index: TxnIndex, disk: MemoryDisk) -> None:
    index.drop_last(disk)


def change_by_replacement(index: TxnIndex, disk: MemoryDisk) -> None:
    index.replace_behind(disk, many(2), [AbortedTransaction(7, 10, 11, 12)])


@pytest.mark.parametrize(
    "change",
    [
        change_by_append,
        change_by_truncation,
        change_by_retreat,
        change_by_replacement,
        TxnIndex.unload,
    ],
)
def test_a_change_between_two_slices_is_seen(change: Any) -> None:
    disk, index = on_disk(*many(2 * SLICE_ENTRIES))
    assert isinstance(index.entries(disk), ColdRange)
    change(*([index] if change is TxnIndex.unload else [index, disk]))
    for _ in range(2):
        assert loaded(index, disk)[0] == decode_aborted(disk.read_file(PATH))
        index.unload()


@pytest.mark.parametrize("tail", [b"", b"torn", encode_aborted([THREE])])
def test_entries_that_stay_are_not_written_again(
    tail: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recovery has them from this file alone. Written again, they would be lost by a power loss
    before the next sync."""
    disk, index = on_disk(ONE, tail=tail)
    sizes: list[int] = []
    truncate = MemoryFile.truncate

    def noted(self: MemoryFile, size: int) -> None:
        sizes.append(size)
        truncate(self, size)

    monkeypatch.setattr(MemoryFile, "truncate", noted)
    assert index.replace_behind(disk, [ONE], [TWO])
    assert decode_aborted(disk.read_file(PATH)) == [ONE, TWO]
    assert sizes == ([ENTRY_SIZE] if tail else [])
    assert index.entries(disk) == [ONE, TWO]
    assert not index.replace_behind(disk, [ONE], [TWO])
