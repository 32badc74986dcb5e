"""The aborted transactions of one segment, in its ``.txnindex`` file.

The layout is Kafka's, big-endian, one entry of 34 bytes for each transaction whose abort marker is
in the segment, in the order of the markers: version i16 = 0, producer id i64, first offset i64,
last offset i64 (the marker's), last stable offset i64. There is no file until the first entry.

The last stable offset of an entry is the one at the marker: the first offset of the oldest
transaction that was still open then, or the offset after the marker. Every later entry begins at or
above it. So a search for the transactions of a range of offsets stops at the first entry whose last
stable offset is not below the end of the range.

An entry is in the file before the marker counts as durable. So the entries of markers below the
recovery point are right, and recovery makes those above it anew.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from stele.world import Buffer
from storage.cold_range import ColdRange
from storage.errors import CorruptLogError
from storage.index_file import write_entries
from world.disk import Disk, File

_ENTRY = struct.Struct(">hqqqq")
_VERSION: Final = 0
ENTRY_SIZE: Final = _ENTRY.size
SLICE_ENTRIES: Final = 4096
"""The most entries that one turn of the event loop decodes, in some milliseconds. An application
that aborts a transaction each second fills a segment of a week with 600,000 entries."""


class AbortedTransaction(NamedTuple):
    """One aborted transaction in one partition."""

    producer_id: int
    first_offset: int
    last_offset: int  # of the abort marker
    last_stable_offset: int


class WrongTxnIndexError(ValueError):
    """A file holds something else than the entries of a transaction index."""


def encode_aborted(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join([_ENTRY.pack(_VERSION, *entry) for entry in entries])


def unpack_entries(data: Buffer) -> Iterator[tuple[int, AbortedTransaction]]:
    """Version and fields of every whole entry, whatever they are."""
    for at in range(0, len(data) - ENTRY_SIZE + 1, ENTRY_SIZE):
        version, *fields = _ENTRY.unpack_from(data, at)
        yield version, AbortedTransaction(*fields)


def decode_aborted(
    data: Buffer, before: AbortedTransaction | None = None
) -> list[AbortedTransaction]:
    """The entries that follow the entry ``before``, or with which a file begins.

    Raises WrongTxnIndexError for a part of an entry, for another version, and for entries that
    cannot follow one another.
    """
    if len(data) % ENTRY_SIZE:
        raise WrongTxnIndexError(f"{len(data)} bytes are not whole entries")
    entries: list[AbortedTransaction] = []
    for version, entry in unpack_entries(data):
        if version != _VERSION:
            raise WrongTxnIndexError(f"version {version}")
        if not _follows(entry, before):
            raise WrongTxnIndexError(f"{entry} after {before}")
        entries.append(entry)
        before = entry
    return entries


def _follows(entry: AbortedTransaction, before: AbortedTransaction | None) -> bool:
    """Whether an entry is possible, and may follow the one before it."""
    return (
        entry.producer_id >= 0
        and 0 <= entry.first_offset < entry.last_offset
        and 0 <= entry.last_stable_offset <= entry.last_offset + 1
        and (before is None or before.last_offset < entry.last_offset)
    )


class TxnIndex:
    """The transaction index of one segment. In memory it is loaded when it is asked for."""

    __slots__ = ("_begun", "_entries", "is_present", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_present = False
        """Whether there is a file. If not, no transaction was aborted in the segment."""
        self._entries: list[AbortedTransaction] | None = None
        """In the order of their markers. None: only the file has them. Empty without a file."""
        self._begun: list[AbortedTransaction] = []
        """The first entries of the file, while ``_entries`` is None: the slices decoded so far."""

    def entries(self, disk: Disk) -> Sequence[AbortedTransaction] | ColdRange:
        """The entries. If they are not in memory, what must be warmed before the next call.

        A call decodes one slice of the file at most, so a large file takes several. Raises
        CorruptLogError, OSError.
        """
        if not self.is_present:
            return ()
        if self._entries is None:
            return self._load_slice(disk)
        return self._entries

    def _load_slice(self, disk: Disk) -> Sequence[AbortedTransaction] | ColdRange:
        begun = self._begun
        position = len(begun) * ENTRY_SIZE
        file = disk.open(self.path)
        try:
            cold = self._slice_at(position, file.size)
            data = file.read(position, cold.size) if cold.size else b""
            if data is None or len(data) < cold.size:
                return cold
            rest = self._slice_at(position + cold.size, file.size)
        finally:
            file.close()
        begun += self._decoded(data, begun[-1] if begun else None)
        if rest.size:
            return rest
        self._hold(begun)
        return begun

    def _slice_at(self, position: int, size_bytes: int) -> ColdRange:
        slice_bytes = SLICE_ENTRIES * ENTRY_SIZE
        return ColdRange(self.path, position, min(size_bytes - position, slice_bytes))

    def _hold(self, entries: list[AbortedTransaction] | None) -> None:
        self._entries = entries
        self._begun = []

    def _decoded(
        self, data: Buffer, before: AbortedTransaction | None = None
    ) -> list[AbortedTransaction]:
        try:
            return decode_aborted(data, before)
        except WrongTxnIndexError as error:
            raise self._corrupt(str(error)) from None

    def read_sound(self, disk: Disk, *, below: int) -> list[AbortedTransaction]:
        """The entries of markers below an offset, waiting for the device. The rest of the file may
        be anything: a crash may have torn it. Raises OSError."""
        if not self.is_present:
            return []
        data = disk.read_file(self.path)
        sound: list[AbortedTransaction] = []
        for version, entry in unpack_entries(data):
            before = sound[-1] if sound else None
            if version != _VERSION or not _follows(entry, before) or entry.last_offset >= below:
                break
            sound.append(entry)
        return sound

    def append(self, disk: Disk, entry: AbortedTransaction) -> None:
        """Add an entry to the file, which is not synced. Raises CorruptLogError, OSError: then the
        file is as it was, or its end is no part of an entry that counts."""
        known = self._size_bytes(disk)
        try:
            write_entries(disk, self.path, known, encode_aborted((entry,)))
        except OSError:
            if disk.exists(self.path):
                write_entries(disk, self.path, known, b"")
            raise
        self.is_present = True
        if self._entries is not None:
            self._entries.append(entry)
        elif known == 0:
            self._hold([entry])

    def _size_bytes(self, disk: Disk) -> int:
        """The size of the entries, which are not decoded for this. Raises CorruptLogError,
        OSError."""
        if not self.is_present:
            return 0
        if self._entries is not None:
            return len(self._entries) * ENTRY_SIZE
        file = disk.open(self.path)
        size = file.size
        file.close()
        if size % ENTRY_SIZE:
            raise self._corrupt(f"{size} bytes are not whole entries")
        return size

    def _corrupt(self, reason: str) -> CorruptLogError:
        return CorruptLogError(self.path, position=0, offset=-1, reason=reason)

    def drop_last(self, disk: Disk) -> None:
        """Remove the entry that was added last. The file is not synced. Raises CorruptLogError,
        OSError."""
        self._cut(disk, self._size_bytes(disk) // ENTRY_SIZE - 1)

    def create(self, disk: Disk, entries: Sequence[AbortedTransaction]) -> None:
        """Make the file of a compacted segment, also without entries. It is not synced. Raises
        OSError."""
        write_entries(disk, self.path, 0, encode_aborted(entries))
        self.is_present = True

    def replace_behind(
        self, disk: Disk, kept: Sequence[AbortedTransaction], entries: Sequence[AbortedTransaction]
    ) -> bool:
        """Let ``entries`` follow the entries ``kept``, with which the file begins. False if they do
        already. The file is not synced. Raises OSError.

        The kept entries are not written again: a power loss before the next sync could take them,
        and nothing else has them.
        """
        data, size = encode_aborted(entries), len(kept) * ENTRY_SIZE
        if (disk.read_file(self.path)[size:] if self.is_present else b"") == data:
            return False
        write_entries(disk, self.path, size, data)
        self.is_present = True
        self._hold([*kept, *entries])
        return True

    def truncate_to(self, disk: Disk, offset: int) -> bool:
        """Remove the entries of markers at or above ``offset``. Returns whether the file has
        changed: then it must be synced. Raises OSError."""
        if not self.is_present:
            return False
        file = disk.open(self.path)
        try:
            size_bytes = file.size
            kept = bisect_left(
                range(size_bytes // ENTRY_SIZE), offset, key=lambda at: _marker_at(file, at)
            )
        finally:
            file.close()
        if kept * ENTRY_SIZE == size_bytes:
            return False
        self._cut(disk, kept)
        return True

    def _cut(self, disk: Disk, kept: int) -> None:
        """Keep the first entries. Nothing is written, since the disk may be full, and nothing is
        decoded, since there may be many."""
        write_entries(disk, self.path, kept * ENTRY_SIZE, b"")
        self._hold(None if self._entries is None else self._entries[:kept])

    def unload(self) -> None:
        """Free the memory."""
        self._hold(None)


def _marker_at(file: File, at: int) -> int:
    """The offset of the marker of an entry, waiting for the device."""
    _, _, _, marker_offset, _ = _ENTRY.unpack(file.read_now(at * ENTRY_SIZE, ENTRY_SIZE))
    return int(marker_offset)
