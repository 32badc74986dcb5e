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
from bisect import bisect_right
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple

from crc32c import crc32c

from stele.errors import ApiError, ErrorCode
from stele.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader
from stele.wire.control_records import EndMarker
from stele.world import Buffer
from storage.producer_admission import ProducerAdmission

CACHED_BATCHES: Final = 5
"""The number of batches of a producer that are remembered, so that repetitions are recognized. It
is the greatest max.in.flight.requests.per.connection of an idempotent producer."""

ENTRIES_PER_TURN: Final = 1024
"""To encode, decode or look at this many entries takes one or two milliseconds."""
_ENCODED_PER_SLICE: Final = 256  # such a slice is part of an append
CHANGES_MAX: Final = 1 << 16
"""The most changes of a log that can be undone. A truncation of more reads a snapshot."""

_VERSION: Final = 1
_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_MAX_SEQUENCE: Final = 0x7FFFFFFF
NONE: Final = -1
NEVER: Final = (1 << 63) - 1
"""An offset above all others. It stands for the first open transaction if none is open."""


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


class ProducerEntry(NamedTuple):
    """One producer, as of its last batch. Another batch makes another entry."""

    producer_id: int
    epoch: int
    batches: tuple[AppendedBatch, ...] = ()
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


class _Change(NamedTuple):
    """What the batch at an offset has changed, for a truncation."""

    offset: int
    producer_id: int
    before: ProducerEntry | None


class ProducerStates:
    """All producers of one log, as of its offset ``end_offset``."""

    __slots__ = ("_admission", "_changes", "_entries", "_ids", "_open", "_undoable_from", "begun")

    def __init__(self, offset: int = 0) -> None:
        """``offset``: of the log at which nothing was appended yet that is noted here."""
        self._entries: dict[int, ProducerEntry] = {}
        # The first offset of each open transaction by producer id, in rising order: transactions
        # begin at the log's end.
        self._open: dict[int, int] = {}
        # The latest changes, so that the cost of a truncation depends on the removed batches and
        # not on the number of producers.
        self._changes: deque[_Change] = deque()
        self._undoable_from = offset  # all changes from here on are in ``_changes``
        self._ids: list[int] | None = None  # while ``ids_after`` is asked for part after part
        self._admission = ProducerAdmission()
        self.begun = 0
        """How many producers were added by batches."""

    @classmethod
    def of(cls, offset: int, entries: Iterable[ProducerEntry]) -> ProducerStates:
        """The states of these producers as of ``offset``."""
        states = cls(offset)
        begun: list[tuple[int, int]] = []
        for entry in entries:
            states._entries[entry.producer_id] = entry
            if entry.transaction_first_offset != NONE:
                begun.append((entry.transaction_first_offset, entry.producer_id))
        states._open = {producer_id: first_offset for first_offset, producer_id in sorted(begun)}
        return states

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[ProducerEntry]:
        return iter(self._entries.values())

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def ids_after(self, producer_id: int, most: int) -> list[int]:
        """The ids above ``producer_id``, in rising order, ``most`` at most. Those that were added
        since the first part was asked for may be missing."""
        if self._ids is None or producer_id < 0:
            self._ids = sorted(self._entries)
        at = bisect_right(self._ids, producer_id)
        found = self._ids[at : at + most]
        if at + most >= len(self._ids):
            self._ids = None
        return found

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

    def check(self, header: BatchHeader, most: int = NEVER) -> AppendedBatch | None:
        """Check that a batch may be appended. Returns the original if it repeats a batch.

        ``most``: the most producers that may be remembered. Raises UnknownProducerRefusedError for
        one too many.

        Raises ApiError INVALID_PRODUCER_EPOCH for a fenced epoch. Raises ApiError
        OUT_OF_ORDER_SEQUENCE_NUMBER for a gap, for a new epoch that does not begin with sequence 0,
        and for a repeated batch older than the last five. A producer that is not known (its state
        has expired, or its records are deleted) may begin with any sequence. Only a coordinator's
        batches have no sequence. Raises ApiError INVALID_TXN_STATE for a batch outside of the
        transaction while the producer has an open one.
        """
        entry = self._entries.get(header.producer_id)
        if entry is None:
            self._admission.check(header, len(self._entries), most)
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
        producer_id, epoch = header.producer_id, header.producer_epoch
        entry = self._entries.get(producer_id)
        coordinator_epoch = first_offset = NONE
        batches: tuple[AppendedBatch, ...] = ()
        if entry is None:
            self.begun += 1
        else:
            coordinator_epoch = entry.coordinator_epoch
            first_offset = entry.transaction_first_offset
            if entry.epoch == epoch:
                batches = entry.batches
        if header.attributes & TRANSACTIONAL and first_offset == NONE:
            first_offset = self._open[producer_id] = base_offset
        if header.base_sequence != NONE:  # a coordinator's batches have no sequence
            last_offset = base_offset + header.last_offset_delta
            batch = AppendedBatch(
                header.base_sequence, header.last_sequence, base_offset, last_offset, append_time_ms
            )
            batches = (*batches[1 - CACHED_BATCHES :], batch)
        changed = ProducerEntry(
            producer_id, epoch, batches, append_time_ms, coordinator_epoch, first_offset
        )
        self._changes.append(_Change(base_offset, producer_id, entry))
        self._entries[producer_id] = changed

    def end(
        self, header: BatchHeader, marker: EndMarker | None, offset: int, now_ms: int
    ) -> EndedTransaction | None:
        """Remember a marker that was appended at ``offset``. Returns the transaction that it ends;
        None if it had no records here.

        ``marker``: None for a control batch whose record a compaction has removed. All records of
        its transaction are gone then.
        """
        producer_id, epoch = header.producer_id, header.producer_epoch
        entry = self._entries.get(producer_id)
        batches: tuple[AppendedBatch, ...] = ()
        coordinator_epoch = first_offset = NONE
        if entry is not None:
            coordinator_epoch = entry.coordinator_epoch
            first_offset = entry.transaction_first_offset
            if entry.epoch == epoch:
                batches = entry.batches
        if marker is not None:
            coordinator_epoch = marker.coordinator_epoch
        append_time_ms = header.max_timestamp_ms if header.is_log_append_time else now_ms
        self._open.pop(producer_id, None)
        self._changes.append(_Change(offset, producer_id, entry))
        self._entries[producer_id] = ProducerEntry(
            producer_id, epoch, batches, append_time_ms, coordinator_epoch
        )
        if marker is None or first_offset == NONE:
            return None
        return EndedTransaction(producer_id, first_offset, offset, marker.commit)

    def would_end(
        self, producer_id: int, marker: EndMarker, offset: int
    ) -> EndedTransaction | None:
        """The transaction that a marker at ``offset`` will end; None if it has no records here."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.transaction_first_offset == NONE:
            return None
        return EndedTransaction(producer_id, entry.transaction_first_offset, offset, marker.commit)

    def first_open_beside(self, producer_id: int) -> int:
        """The first offset of the oldest open transaction of another producer; ``NEVER`` if there
        is none."""
        return next((first for other, first in self._open.items() if other != producer_id), NEVER)

    def update_from(
        self, header: BatchHeader, marker: EndMarker | None, now_ms: int
    ) -> EndedTransaction | None:
        """Remember a batch of the log, if it has a producer id. ``marker``: that of a control
        batch. Returns the transaction that ends with it."""
        if header.producer_id < 0:
            return None
        if len(self._changes) > CHANGES_MAX:
            self.settle(0)
        if header.attributes & CONTROL:
            return self.end(header, marker, header.base_offset, now_ms)
        self.update(header, header.base_offset, now_ms)
        return None

    def forget_open(self, producer_id: int) -> None:
        """The transaction of the producer is not open: a compaction has removed its first batch, so
        it was ended."""
        self._open.pop(producer_id, None)
        entry = self._entries[producer_id]
        self._entries[producer_id] = entry._replace(transaction_first_offset=NONE)

    # ------------------------------------------------------------------------- truncations

    @property
    def undoable(self) -> int:
        """The number of changes that can be undone."""
        return len(self._changes)

    def settle(self, offset: int) -> None:
        """Changes below ``offset``, and the oldest of very many, need not be undone any more."""
        changes = self._changes
        while changes and (changes[0].offset < offset or len(changes) > CHANGES_MAX):
            self._undoable_from = changes.popleft().offset + 1

    def undo_to(self, end_offset: int) -> bool:
        """The log was truncated, and ends at ``end_offset``. False if the changes since then are
        not all known: the state must be made anew."""
        if end_offset < self._undoable_from:
            return False
        reopened = False
        while self._changes and self._changes[-1].offset >= end_offset:
            _, producer_id, before = self._changes.pop()
            if before is None:
                self._entries.pop(producer_id, None)
            else:
                self._entries[producer_id] = before
            if before is None or before.transaction_first_offset == NONE:
                self._open.pop(producer_id, None)
            elif producer_id not in self._open:
                self._open[producer_id] = before.transaction_first_offset
                reopened = True
        if reopened:
            self._open = dict(sorted(self._open.items(), key=itemgetter(1)))
        return True

    def before(self, offset: int) -> dict[int, ProducerEntry | None]:
        """The producers that a batch at ``offset`` or above has changed, as they were before, as
        far as that can be undone; None for one that was not known."""
        found: dict[int, ProducerEntry | None] = {}
        for change in reversed(self._changes):
            if change.offset < offset:
                break
            found[change.producer_id] = change.before
        return found

    def copy(self) -> ProducerStates:
        """The same producers, which change apart from these."""
        states = ProducerStates(self._undoable_from)
        states._entries = dict(self._entries)
        states._open = dict(self._open)
        states._changes = deque(self._changes)
        return states

    # -------------------------------------------------------------------------- expiration

    def expiring(self, now_ms: int, silence_ms: int) -> Iterator[None]:
        """Forget producers that have appended nothing for ``silence_ms`` and have no open
        transaction. This is ``producer.id.expiration.ms`` (KIP-98), but by the time of the append,
        not by that of the records. It yields between slices, in which the producers may change."""
        for number, producer_id in enumerate(tuple(self._entries), start=1):
            entry = self._entries.get(producer_id)
            if (
                entry is not None
                and now_ms - entry.last_append_ms >= silence_ms
                and entry.transaction_first_offset == NONE
            ):
                del self._entries[producer_id]
            if number % ENTRIES_PER_TURN == 0:
                yield

    def expire(self, now_ms: int, silence_ms: int) -> None:
        """As ``expiring``, at once."""
        for _ in self.expiring(now_ms, silence_ms):
            pass

    def clear(self) -> None:
        self._entries.clear()
        self._open.clear()
        self._changes.clear()

    def open_transactions(self) -> list[tuple[int, int]]:
        """Producer id and first offset of each open transaction, the oldest first."""
        return list(self._open.items())

    # -------------------------------------------------------------------------- snapshots

    def encode(self) -> bytes:
        encoding = SnapshotEncoding(self)
        while not encoding.go_on():
            pass
        return encoding.data

    @classmethod
    def decode(cls, data: Buffer) -> ProducerStates:
        """The states in a snapshot file. Raises SnapshotError if it is damaged."""
        decoding = cls.decoding(data, NEVER)
        while True:
            try:
                next(decoding)
            except StopIteration as end:
                states: ProducerStates = end.value
                return states

    @classmethod
    def decoding(cls, data: Buffer, offset: int) -> Generator[None, None, ProducerStates]:
        """As ``decode``, in slices. ``offset``: of the snapshot."""
        states = cls(offset)
        entries = states._entries
        begun: list[tuple[int, int]] = []
        for number, entry in enumerate(_decoded_entries(data), start=1):
            before = entries.get(entry.producer_id)
            if before is not None and before.epoch == entry.epoch:
                batches = (*before.batches, *entry.batches)[-CACHED_BATCHES:]
                entry = entry._replace(batches=batches)
            entries[entry.producer_id] = entry
            if entry.transaction_first_offset != NONE and before is None:
                begun.append((entry.transaction_first_offset, entry.producer_id))
            if number % ENTRIES_PER_TURN == 0:
                yield
        states._open = {producer_id: first_offset for first_offset, producer_id in sorted(begun)}
        return states


class SnapshotEncoding:
    """A snapshot that is made in slices. The producers are those of the beginning, whatever they
    append meanwhile."""

    __slots__ = ("_at", "_entries", "_parts", "data")

    def __init__(self, states: ProducerStates) -> None:
        self._entries = tuple(states)
        self._at = 0
        self._parts: list[bytes] = []
        self.data = b""
        """The content of the file, when the last slice is done."""

    def go_on(self) -> bool:
        """Do a slice. Returns whether it was the last one."""
        end = self._at + _ENCODED_PER_SLICE
        for entry in self._entries[self._at : end]:
            self._parts += rows_of(entry)
        self._at = end
        if end < len(self._entries):
            return False
        self.data = framed(self._parts)
        return True


def rows_of(entry: ProducerEntry) -> Iterator[bytes]:
    """The entries of a snapshot file for one producer."""
    for batch in entry.batches or (None,):
        yield _encode_entry(entry, batch)


def framed(rows: Sequence[bytes]) -> bytes:
    """The content of a snapshot file with these entries."""
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


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
    batches: tuple[AppendedBatch, ...] = ()
    if last_sequence != NONE:
        base_sequence = (last_sequence - delta) & _MAX_SEQUENCE
        base_offset = last_offset - delta
        batches = (
            AppendedBatch(base_sequence, last_sequence, base_offset, last_offset, timestamp_ms),
        )
    return ProducerEntry(producer_id, epoch, batches, timestamp_ms, coordinator, first)


def decode_snapshot(data: Buffer) -> list[ProducerEntry]:
    """The entries of a snapshot file, in file order. Raises SnapshotError if it is damaged."""
    return list(_decoded_entries(data))


def _decoded_entries(data: Buffer) -> Iterator[ProducerEntry]:
    """As ``decode_snapshot``, each when it is asked for. It is checked first that the file is
    sound."""
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
    return map(_decode_entry, _ENTRY.iter_unpack(body[_COUNT.size :]))
