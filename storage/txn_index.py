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
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from stele.world import Buffer
from storage.errors import CorruptLogError
from storage.index_file import write_entries
from world.disk import Disk

_ENTRY = struct.Struct(">hqqqq")
_VERSION: Final = 0
ENTRY_SIZE: Final = _ENTRY.size


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


def decode_aborted(data: Buffer) -> list[AbortedTransaction]:
    """Raises WrongTxnIndexError for a part of an entry, for another version, and for entries that
    cannot follow one another."""
    if len(data) % ENTRY_SIZE:
        raise WrongTxnIndexError(f"{len(data)} bytes are not whole entries")
    entries: list[AbortedTransaction] = []
    for version, entry in unpack_entries(data):
        if version != _VERSION:
            raise WrongTxnIndexError(f"version {version}")
        if not _follows(entry, entries):
            raise WrongTxnIndexError(f"{entry} after {entries[-1:]}")
        entries.append(entry)
    return entries


def _follows(entry: AbortedTransaction, entries: Sequence[AbortedTransaction]) -> bool:
    """Whether an entry is possible, and may follow those before it."""
    return (
        entry.producer_id >= 0
        and 0 <= entry.first_offset < entry.last_offset
        and 0 <= entry.last_stable_offset <= entry.last_offset + 1
        and (not entries or entries[-1].last_offset < entry.last_offset)
    )


class TxnIndex:
    """The transaction index of one segment. In memory it is loaded when it is asked for."""

    __slots__ = ("_entries", "is_present", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.is_present = False
        """Whether there is a file. If not, no transaction was aborted in the segment."""
        self._entries: list[AbortedTransaction] | None = None
        """In the order of their markers. None: only the file has them. Empty without a file."""

    def entries(self, disk: Disk) -> Sequence[AbortedTransaction] | int:
        """The entries. If they are not in memory, the number of bytes that must be warmed first.

        Raises CorruptLogError, OSError.
        """
        if not self.is_present:
            return ()
        if self._entries is None:
            file = disk.open(self.path)
            try:
                data = file.read(0, file.size)
                if data is None or len(data) < file.size:
                    return file.size
            finally:
                file.close()
            self._entries = self._decoded(data)
        return self._entries

    def entries_now(self, disk: Disk) -> Sequence[AbortedTransaction]:
        """As ``entries``, waiting for the device."""
        if not self.is_present:
            return ()
        if self._entries is None:
            self._entries = self._decoded(disk.read_file(self.path))
        return self._entries

    def _decoded(self, data: Buffer) -> list[AbortedTransaction]:
        try:
            return decode_aborted(data)
        except WrongTxnIndexError as error:
            raise CorruptLogError(self.path, position=0, offset=-1, reason=str(error)) from None

    def read_sound(self, disk: Disk, *, below: int) -> list[AbortedTransaction]:
        """The entries of markers below an offset, waiting for the device. The rest of the file may
        be anything: a crash may have torn it. Raises OSError."""
        if not self.is_present:
            return []
        data = disk.read_file(self.path)
        sound: list[AbortedTransaction] = []
        for version, entry in unpack_entries(data):
            if version != _VERSION or not _follows(entry, sound) or entry.last_offset >= below:
                break
            sound.append(entry)
        return sound

    def append(self, disk: Disk, entry: AbortedTransaction) -> None:
        """Add an entry to the file, which is not synced. Raises CorruptLogError, OSError: then the
        file is as it was, or its end is no part of an entry that counts."""
        known = len(self.entries_now(disk)) * ENTRY_SIZE
        try:
            write_entries(disk, self.path, known, encode_aborted((entry,)))
        except OSError:
            if disk.exists(self.path):
                write_entries(disk, self.path, known, b"")
            raise
        self.is_present = True
        if self._entries is None:
            self._entries = []
        self._entries.append(entry)

    def drop_last(self, disk: Disk) -> None:
        """Remove the entry that was added last. It is not synced. Raises OSError."""
        entries = list(self.entries_now(disk))[:-1]
        write_entries(disk, self.path, len(entries) * ENTRY_SIZE, b"")
        self._entries = entries

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
        self._entries = [*kept, *entries]
        return True

    def truncate_to(self, disk: Disk, offset: int) -> bool:
        """Remove the entries of markers at or above ``offset``. Returns whether the file has
        changed: then it must be synced. Raises OSError."""
        if not self.is_present:
            return False
        # The sound entries are the beginning of the file, so nothing is written: the disk may be
        # full.
        entries = self.read_sound(disk, below=offset)
        size = len(entries) * ENTRY_SIZE
        if len(disk.read_file(self.path)) == size:
            return False
        write_entries(disk, self.path, size, b"")
        self._entries = entries
        return True

    def unload(self) -> None:
        """Free the memory."""
        self._entries = None
