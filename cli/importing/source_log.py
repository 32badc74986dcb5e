"""The log of one replica as a stopped broker has left it: which of its records count.

All batches are checked before the first record is used: CRC, magic, offsets that ascend. Broken
bytes at the end of the newest segment are what a broker that was killed had not finished writing.
Broken bytes anywhere else, or below the recovery point, are damage.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cli.output import CommandError
from stele.ids import TopicPartition
from stele.wire.batch import (
    HEADER_SIZE,
    BatchError,
    BatchHeader,
    CorruptBatchError,
    PartialBatchError,
    Record,
    check_crc,
    decode,
    read_header,
)
from stele.wire.control_records import ControlType, control_type
from stele.world import Buffer
from storage.segment_names import LOG_SUFFIX, parse_file_name

_SWAP_SUFFIX: Final = ".swap"
"""Kafka's suffix of a compacted segment that takes the place of others. A broker finishes that when
it starts."""


@dataclass(slots=True)
class LogSummary:
    """What a log holds. ``aborted`` and ``unfinished``: records of transactions that were aborted,
    or had no end when the broker stopped. They are in no count but their own."""

    partition: TopicPartition
    directory: Path
    records: int = 0
    aborted: int = 0
    unfinished: int = 0
    torn_bytes: int = 0
    end_offset: int = 0
    leader_epoch: int = -1
    newest_ms: int = -1
    last_counted_offset: int = -1

    @property
    def keeps_offsets(self) -> bool:
        """Whether the records have the offsets 0, 1, 2, … without a gap."""
        return self.records == self.last_counted_offset + 1


@dataclass(slots=True)
class _Transactions:
    """Transactional batches by their producer, until the marker that decides about them."""

    open: dict[int, list[tuple[BatchHeader, int]]] = field(default_factory=dict)
    left_out: set[int] = field(default_factory=set)
    """The base offsets of batches whose records do not count."""


class SourceLog:
    """``start_offset``: below it records are deleted, though their bytes may be there."""

    def __init__(
        self, directory: Path, partition: TopicPartition, start_offset: int, recovery_point: int
    ) -> None:
        """Check the whole log. Raises CommandError if it is damaged."""
        self.summary = LogSummary(partition, directory)
        self._start_offset = start_offset
        self._recovery_point = recovery_point
        self._transactions = _Transactions()
        self._segments = _segments_of(directory)
        self._ends: list[int] = []
        """Where the sound bytes of each segment end."""
        for path in self._segments:
            self._check_segment(path)
        for batches in self._transactions.open.values():
            for header, count in batches:
                self.summary.unfinished += count
                self._transactions.left_out.add(header.base_offset)

    def records(self) -> Iterator[list[Record]]:
        """The records that count, batch by batch in the order of their offsets. Raises
        CommandError."""
        for path, end in zip(self._segments, self._ends, strict=True):
            with _mapped(path) as data:
                position = 0
                while position < end:
                    header = read_header(data, position)
                    if self._counts(header):
                        yield self._decoded(path, data, position)
                    position += header.size_bytes

    def _counts(self, header: BatchHeader) -> bool:
        return (
            not header.is_control
            and header.record_count > 0
            and header.last_offset >= self._start_offset
            and header.base_offset not in self._transactions.left_out
        )

    def _decoded(self, path: Path, data: Buffer, position: int) -> list[Record]:
        records = _records_at(path, data, position)
        return [record for record in records if record.offset >= self._start_offset]

    # ------------------------------------------------------------------------------- the check

    def _check_segment(self, path: Path) -> None:
        with _mapped(path) as data:
            position = 0
            while position < len(data):
                try:
                    header = _sound(data, position)
                    if header.base_offset < self.summary.end_offset:
                        raise CorruptBatchError(
                            f"offset {header.base_offset} follows {self.summary.end_offset - 1}"
                        )
                except BatchError as error:
                    if not self._may_be_torn(path, data, position):
                        raise _damaged(path, position, error.message) from None
                    self.summary.torn_bytes = len(data) - position
                    break
                self._take(path, data, position, header)
                position += header.size_bytes
            self._ends.append(position)

    def _may_be_torn(self, path: Path, data: Buffer, position: int) -> bool:
        """Also an older format of batches is not torn, unless the bytes are zeros."""
        head = bytes(data[position : position + HEADER_SIZE])
        is_other_magic = len(head) == HEADER_SIZE and head[16] in (0, 1) and any(head)
        is_newest = path == self._segments[-1]
        return is_newest and not is_other_magic and self.summary.end_offset >= self._recovery_point

    def _take(self, path: Path, data: Buffer, position: int, header: BatchHeader) -> None:
        summary = self.summary
        summary.end_offset = header.next_offset
        summary.leader_epoch = header.leader_epoch
        if header.is_control:
            self._end_transaction(path, data, position, header)
        elif self._counts(header):
            count = header.record_count
            if header.base_offset < self._start_offset:
                count = len(self._decoded(path, data, position))
            if header.is_transactional:
                batches = self._transactions.open.setdefault(header.producer_id, [])
                batches.append((header, count))
            else:
                self._count(header, count)

    def _end_transaction(
        self, path: Path, data: Buffer, position: int, header: BatchHeader
    ) -> None:
        for record in _records_at(path, data, position):
            kind = control_type(record.key)
            if kind not in (ControlType.COMMIT, ControlType.ABORT):
                continue
            for batch, count in self._transactions.open.pop(header.producer_id, []):
                if kind is ControlType.COMMIT:
                    self._count(batch, count)
                else:
                    self.summary.aborted += count
                    self._transactions.left_out.add(batch.base_offset)

    def _count(self, header: BatchHeader, count: int) -> None:
        summary = self.summary
        summary.records += count
        summary.last_counted_offset = max(summary.last_counted_offset, header.last_offset)
        summary.newest_ms = max(summary.newest_ms, header.max_timestamp_ms)


def records_in(path: Path) -> Iterator[Record]:
    """The records of a file that a broker has finished, such as a snapshot; control records are
    left out. Raises CommandError."""
    with _mapped(path) as data:
        position = 0
        while position < len(data):
            try:
                header = _sound(data, position)
            except BatchError as error:
                raise _damaged(path, position, error.message) from None
            if not header.is_control:
                yield from _records_at(path, data, position)
            position += header.size_bytes


def _segments_of(directory: Path) -> list[Path]:
    """Raises CommandError."""
    suffixes = {
        path: key[1]
        for path in sorted(directory.iterdir())
        if (key := parse_file_name(path.name)) is not None
    }
    for path, suffix in suffixes.items():
        if suffix.endswith(_SWAP_SUFFIX):
            raise CommandError(
                f"{path}: the broker was killed while compaction replaced a segment. Start it "
                "once, and stop it in good order"
            )
    return [path for path, suffix in suffixes.items() if suffix == LOG_SUFFIX]


def _sound(data: Buffer, position: int) -> BatchHeader:
    """Raises BatchError."""
    header = read_header(data, position)
    if position + header.size_bytes > len(data):
        raise PartialBatchError(f"{len(data) - position} bytes of {header.size_bytes}")
    if not check_crc(data, position, header):
        raise CorruptBatchError("the CRC does not match")
    return header


def _records_at(path: Path, data: Buffer, position: int) -> list[Record]:
    """All records of a batch. Raises CommandError."""
    try:
        return decode(data, position)
    except BatchError as error:
        raise _damaged(path, position, error.message) from None


def _damaged(path: Path, position: int, reason: str) -> CommandError:
    return CommandError(
        f"{path} is damaged at byte {position}: {reason}. Nothing of it is imported; leave its "
        "directory out to take the partition from another broker's directory"
    )


@contextmanager
def _mapped(path: Path) -> Iterator[Buffer]:
    """The bytes of a file. Records of it may still be in use afterwards, so nothing is unmapped by
    force."""
    with path.open("rb") as file:
        is_empty = path.stat().st_size == 0  # which cannot be mapped
        yield b"" if is_empty else memoryview(mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ))
