"""What a partition remembers of idempotent producers (KIP-98), and its ``.snapshot`` files.

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
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from crc32c import crc32c

from stele.errors import ApiError, ErrorCode
from stele.wire.batch import BatchHeader
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


class SnapshotError(ValueError):
    """A snapshot file is damaged. The state can be rebuilt from the log."""


class AppendedBatch(NamedTuple):
    """One appended batch of a producer."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    append_time_ms: int


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
    transaction_first_offset: int = NONE

    @property
    def last_sequence(self) -> int:
        """The last sequence number; -1 if no batch of this epoch is known."""
        return self.batches[-1].last_sequence if self.batches else NONE

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

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def check(self, header: BatchHeader) -> AppendedBatch | None:
        """Check that a client's batch may be appended. Returns the original if it repeats a batch.

        Raises ApiError INVALID_PRODUCER_EPOCH for a fenced epoch. Raises ApiError
        OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, for a new epoch that does not begin with sequence 0,
        and for a repeated batch older than the last five. A producer that is not known (its state
        has expired, or its records are deleted) may begin with any sequence.
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
        if header.producer_epoch > entry.epoch:
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
        return None

    def update(self, header: BatchHeader, base_offset: int, now_ms: int) -> None:
        """Remember a batch that was appended at ``base_offset``. On followers nothing is checked.

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
        if header.base_sequence != NONE:  # control batches have no sequence
            entry.batches.append(
                AppendedBatch(
                    header.base_sequence,
                    header.last_sequence,
                    base_offset,
                    base_offset + header.last_offset_delta,
                    append_time_ms,
                )
            )

    def update_from(self, header: BatchHeader, now_ms: int) -> None:
        """Remember a batch of the log, if it has a producer id."""
        if header.producer_id >= 0:
            self.update(header, header.base_offset, now_ms)

    def expire(self, now_ms: int, silence_ms: int) -> None:
        """Forget producers that have appended nothing for ``silence_ms``. This is
        ``producer.id.expiration.ms`` (KIP-98), but by the time of the append, not by that of the
        records."""
        gone = [e.producer_id for e in self if now_ms - e.last_append_ms >= silence_ms]
        for producer_id in gone:
            del self._entries[producer_id]

    def clear(self) -> None:
        self._entries.clear()

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
