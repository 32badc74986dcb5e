"""What a partition remembers of idempotent and transactional producers (KIP-98), and its
``.snapshot`` files.

A snapshot has Kafka's layout, big-endian: version i16 = 1, CRC-32C u32 of everything after it, then
an i32 count of entries: producer id i64, epoch i16, last sequence i32, last offset i64, offset
delta i32, timestamp i64, coordinator epoch i32, first offset of the open transaction i64. A
producer has an entry for each of its remembered batches, the oldest first. Kafka writes only the
last one, and when it reads several it takes the last one. We need them all: a producer may repeat a
batch, with others in flight after it, over an orderly restart of the leader. Without its entry that
batch would be out of order.

The timestamp is the time of the append. Kafka stores the greatest timestamp of the records there,
and expires producers by it. So it forgets a busy producer whose records are old (a backfill, a
mirror). A batch does not carry the time of its append, unless the topic's records are stamped with
it. So a replica uses its own clock: leader and follower use the time at which they appended the
batch, and a log that is opened uses the time at which it read the batch. So a producer may be
remembered for longer than ``producer.id.expiration.ms``, but never for less.

A transaction of a producer begins in a partition with its first transactional batch there, and ends
with a marker. A producer has at most one open transaction.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from crc32c import crc32c

from stele.errors import ApiError, ErrorCode
from stele.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader
from stele.wire.control_records import EndMarker
from stele.world import Buffer

CACHED_BATCHES: Final = 5
"""The number of batches of a producer that are remembered, so that repetitions are recognized. It
is the greatest max.in.flight.requests.per.connection of an idempotent producer."""

_VERSION: Final = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_MAX_SEQUENCE: Final = 0x7FFFFFFF
NONE: Final = -1
NEVER: Final = (1 << 63) - 1
"""An offset above all others: that of the first open transaction if none is open."""


class SnapshotError(ValueError):
    """A snapshot file is damaged. The state can be rebuilt from the log."""


class AppendedBatch(NamedTuple):
    """One appended batch of a producer."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    append_time_ms: int


class EndedTransaction(NamedTuple):
    """A transaction with records in this log, and the marker that ended it."""

    producer_id: int
    first_offset: int
    marker_offset: int
    commit: bool


@dataclass(slots=True)
class ProducerEntry:
    """One producer, as of its last batch."""

    producer_id: int
    epoch: int
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=CACHED_BATCHES))
    """Only batches of ``epoch``, the oldest first. The sequences of each follow those of the one
    before."""
    last_append_ms: int = NONE
    coordinator_epoch: int = NONE
    """That of the last marker; -1 before the first one."""
    transaction_first_offset: int = NONE
    """The offset of the first batch of the open transaction; -1 if none is open."""

    @property
    def last_sequence(self) -> int:
        """The last sequence number; -1 if no batch of this epoch is known."""
        return self.batches[-1].last_sequence if self.batches else NONE

    @property
    def last_offset(self) -> int:
        """The offset of the last record; -1 if no batch of this epoch is known."""
        return self.batches[-1].last_offset if self.batches else NONE

    def find(self, header: BatchHeader) -> AppendedBatch | None:
        """The remembered batch that ``header`` repeats; None if there is none."""
        if header.producer_epoch != self.epoch:
            return None
        base, last = header.base_sequence, header.last_sequence
        for batch in self.batches:
            if batch.base_sequence == base and batch.last_sequence == last:
                return batch
        return None


class ProducerStates:
    """All producers of one log, as of its offset ``end_offset``."""

    __slots__ = ("_entries", "_open")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        # The first offset of each open transaction by producer id, in rising order: transactions
        # begin at the log's end.
        self._open: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    @property
    def first_open_offset(self) -> int:
        """Where the oldest open transaction begins; ``NEVER`` if none is open."""
        return next(iter(self._open.values())) if self._open else NEVER

    def is_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a transaction of the producer is open, begun or continued in this epoch."""
        entry = self._entries.get(producer_id)
        return (
            entry is not None
            and entry.transaction_first_offset != NONE
            and entry.epoch == producer_epoch
        )

    def is_left_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether the open transaction is of an earlier epoch than this one, in which the producer
        has begun another. A coordinator begins the next transaction when all markers of the last
        one are written, so this log has lost a marker by an unclean election."""
        entry = self._entries.get(producer_id)
        return (
            entry is not None
            and entry.transaction_first_offset != NONE
            and entry.epoch < producer_epoch
        )

    def check(self, header: BatchHeader) -> AppendedBatch | None:
        """Check that a batch may be appended. Returns the original if it repeats a batch.

        Raises ApiError INVALID_PRODUCER_EPOCH for a fenced epoch. Raises ApiError
        OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, for a new epoch that does not begin with sequence 0,
        and for a repeated batch older than the last five. A producer that is not known (its state
        has expired, or its records are deleted) may begin with any sequence. Only a coordinator's
        batches have no sequence. Raises ApiError INVALID_TXN_STATE for a batch outside of the
        transaction while the producer has an open one.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return None
        if header.producer_epoch < entry.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {entry.epoch}, the batch "
                f"{header.producer_epoch}",
            )
        if header.base_sequence == NONE:
            expected = NONE
        elif header.producer_epoch > entry.epoch:
            expected = 0
        else:
            duplicate = entry.find(header)
            if duplicate is not None:
                return duplicate
            expected = 0 if entry.last_sequence == NONE else _following(entry.last_sequence)
        if header.base_sequence != expected:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence}, "
                f"{expected} was next",
            )
        if entry.transaction_first_offset != NONE and not header.attributes & TRANSACTIONAL:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {header.producer_id} has an open transaction, and the batch is not "
                "part of it",
            )
        return None

    def check_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, bumps_epoch: bool
    ) -> None:
        """Check that a coordinator's marker may be appended.

        ``bumps_epoch``: the marker has a later epoch than the transaction that it ends (KIP-890).
        So a marker that comes late cannot end the producer's next transaction. A repeated one ends
        nothing, and may be appended again. Raises ApiError INVALID_PRODUCER_EPOCH, or
        TRANSACTION_COORDINATOR_FENCED for one of an earlier coordinator.
        """
        entry = self._entries.get(producer_id)
        if entry is None:
            return
        is_open = entry.transaction_first_offset != NONE
        if producer_epoch < entry.epoch or (
            producer_epoch == entry.epoch and bumps_epoch and is_open
        ):
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {entry.epoch}, the marker {producer_epoch}",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a coordinator of epoch {entry.coordinator_epoch} has ended a transaction of "
                f"producer {producer_id}, the marker is of {coordinator_epoch}",
            )

    def update(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Remember a batch of records that was appended at ``base_offset``. On followers nothing is
        checked.

        ``now_ms``: the time of the append, in case the batch itself does not have it.
        """
        append_time_ms = header.max_timestamp_ms if header.is_log_append_time else now_ms
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = ProducerEntry(header.producer_id, header.producer_epoch)
            self._entries[header.producer_id] = entry
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_append_ms = append_time_ms
        if header.attributes & TRANSACTIONAL and entry.transaction_first_offset == NONE:
            entry.transaction_first_offset = base_offset
            self._open[header.producer_id] = base_offset
        if header.base_sequence != NONE:  # a coordinator's batches have no sequence
            entry.batches.append(
                AppendedBatch(
                    header.base_sequence,
                    header.last_sequence,
                    base_offset,
                    base_offset + header.last_offset_delta,
                    append_time_ms,
                )
            )

    def end(
        self, header: BatchHeader, marker: EndMarker | None, offset: int, now_ms: int
    ) -> EndedTransaction | None:
        """Remember a marker that was appended at ``offset``. Returns the transaction that it ends;
        None if it had no records here.

        ``marker``: None for a control batch whose record a compaction has removed. All records of
        its transaction are gone then.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = ProducerEntry(header.producer_id, header.producer_epoch)
            self._entries[header.producer_id] = entry
        elif entry.epoch != header.producer_epoch:
            entry.epoch = header.producer_epoch
            entry.batches.clear()
        entry.last_append_ms = header.max_timestamp_ms if header.is_log_append_time else now_ms
        first_offset, entry.transaction_first_offset = entry.transaction_first_offset, NONE
        self._open.pop(header.producer_id, None)
        if marker is None:
            return None
        entry.coordinator_epoch = marker.coordinator_epoch
        if first_offset == NONE:
            return None
        return EndedTransaction(header.producer_id, first_offset, offset, marker.commit)

    def would_end(
        self, producer_id: int, marker: EndMarker, offset: int
    ) -> EndedTransaction | None:
        """The transaction that a marker at ``offset`` will end; None if it has no records here."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.transaction_first_offset == NONE:
            return None
        return EndedTransaction(producer_id, entry.transaction_first_offset, offset, marker.commit)

    def first_open_beside(self, producer_id: int) -> int:
        """Where the oldest open transaction of another producer begins; ``NEVER`` if there is
        none."""
        return next((first for other, first in self._open.items() if other != producer_id), NEVER)

    def update_from(
        self, header: BatchHeader, marker: EndMarker | None, now_ms: int
    ) -> EndedTransaction | None:
        """Remember a batch of the log, if it has a producer id. ``marker``: that of a control
        batch. Returns the transaction that ends with it."""
        if header.producer_id < 0:
            return None
        if header.attributes & CONTROL:
            return self.end(header, marker, header.base_offset, now_ms)
        self.update(header, header.base_offset, now_ms)
        return None

    def forget_open(self, producer_id: int) -> None:
        """The transaction of the producer is not open: a compaction has removed what it began with,
        and so it was ended."""
        self._open.pop(producer_id, None)
        self._entries[producer_id].transaction_first_offset = NONE

    def expire(self, now_ms: int, silence_ms: int) -> None:
        """Forget producers that have appended nothing for ``silence_ms`` and have no open
        transaction. This is ``producer.id.expiration.ms`` (KIP-98), but by the time of the append,
        not by that of the records."""
        gone = [
            each.producer_id
            for each in self
            if now_ms - each.last_append_ms >= silence_ms and each.transaction_first_offset == NONE
        ]
        for producer_id in gone:
            del self._entries[producer_id]

    def clear(self) -> None:
        self._entries.clear()
        self._open.clear()

    def open_transactions(self) -> list[tuple[int, int]]:
        """Producer id and first offset of each open transaction, the oldest first."""
        return list(self._open.items())

    # -------------------------------------------------------------------------- snapshots

    def encode(self) -> bytes:
        entries = [
            _encode_entry(entry, batch)
            for _, entry in sorted(self._entries.items())
            for batch in entry.batches or (None,)
        ]
        body = _COUNT.pack(len(entries)) + b"".join(entries)
        return _HEAD.pack(_VERSION, crc32c(body)) + body

    @classmethod
    def decode(cls, data: Buffer) -> ProducerStates:
        """The states in a snapshot file. Raises SnapshotError if it is damaged."""
        states = cls()
        for entry in decode_snapshot(data):
            before = states._entries.get(entry.producer_id)
            if before is not None and before.epoch == entry.epoch:
                entry.batches = deque([*before.batches, *entry.batches], CACHED_BATCHES)
            states._entries[entry.producer_id] = entry
        begun = [
            (each.transaction_first_offset, each.producer_id)
            for each in states
            if each.transaction_first_offset != NONE
        ]
        states._open = {producer_id: first_offset for first_offset, producer_id in sorted(begun)}
        return states


def _following(sequence: int) -> int:
    return (sequence + 1) & _MAX_SEQUENCE


def _encode_entry(entry: ProducerEntry, batch: AppendedBatch | None) -> bytes:
    """``batch``: one batch of the producer; None if none of its epoch is known."""
    last = entry.batches[-1] if entry.batches else None
    return _ENTRY.pack(
        entry.producer_id,
        entry.epoch,
        batch.last_sequence if batch else NONE,
        batch.last_offset if batch else NONE,
        batch.last_offset - batch.base_offset if batch else 0,
        batch.append_time_ms if batch and batch is not last else entry.last_append_ms,
        entry.coordinator_epoch,
        entry.transaction_first_offset,
    )


def _decode_entry(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, delta, timestamp_ms, coordinator, first = fields
    entry = ProducerEntry(
        producer_id,
        epoch,
        last_append_ms=timestamp_ms,
        coordinator_epoch=coordinator,
        transaction_first_offset=first,
    )
    if last_sequence != NONE:
        base_sequence = (last_sequence - delta) & _MAX_SEQUENCE
        entry.batches.append(
            AppendedBatch(
                base_sequence, last_sequence, last_offset - delta, last_offset, timestamp_ms
            )
        )
    return entry


def decode_snapshot(data: Buffer) -> list[ProducerEntry]:
    """The entries of a snapshot file, in file order. Raises SnapshotError if it is damaged."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise SnapshotError(f"{len(data)} bytes are too few")
    version, crc = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise SnapshotError(f"version {version}")
    body = memoryview(data)[_HEAD.size :]
    if crc32c(body) != crc:
        raise SnapshotError("the CRC does not match")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise SnapshotError(f"{len(body)} bytes for {count} entries")
    return [_decode_entry(fields) for fields in _ENTRY.iter_unpack(body[_COUNT.size :])]
