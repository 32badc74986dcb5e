"""A consumer's position in each of its partitions, and the records fetched ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import NamedTuple, TypeVar

from stele.cluster.leader_requests import PartitionRetry
from stele.consumer.committed import AbortedRecords, AbortedTransaction
from stele.consumer.epochs import UNKNOWN_EPOCH, EpochHistory
from stele.consumer.source import Source
from stele.errors import ApiError, SteleError, UnreadableBatchError
from stele.ids import TopicPartition
from stele.records import ConsumerRecord
from stele.wire.batch import BatchError, BatchHeader, PartialBatchError, batches, decode
from stele.wire.consumed import consumer_records
from stele.wire.record import Record
from stele.world import Buffer

EARLIEST = -2
LATEST = -1

AnyRecord = TypeVar("AnyRecord", Record, ConsumerRecord)
Rows = TypeVar("Rows", bound=Sized)


class FetchedBatch(NamedTuple):
    data: Buffer  # all batches of the answer, which share these bytes
    start: int
    header: BatchHeader
    is_left_out: bool  # it has nothing to return: a control batch, or of an aborted transaction


class RawBatch(NamedTuple):
    """A batch of data records as the leader keeps it, for readers that decode whole batches.

    Records below ``first_offset`` are not wanted: a fetch that begins within a batch gets the whole
    batch.
    """

    partition: TopicPartition
    data: Buffer
    position: int
    header: BatchHeader
    first_offset: int

    def decode(self, *, check_crcs: bool) -> list[Record]:
        """The records that are wanted. Raises UnreadableBatchError."""
        try:
            records = decode(self.data, self.position, verify_crc=check_crcs)
        except BatchError as error:
            raise self.unreadable(error) from error
        return self._wanted(records)

    def consumer_records(self, *, check_crcs: bool) -> list[ConsumerRecord]:
        """As ``decode``."""
        data, position, header = self.data, self.position, self.header
        try:
            records = consumer_records(
                data, position, header, self.partition, verify_crc=check_crcs
            )
        except BatchError as error:
            raise self.unreadable(error) from error
        return self._wanted(records)

    def _wanted(self, records: list[AnyRecord]) -> list[AnyRecord]:
        first_offset = self.first_offset
        if self.header.base_offset >= first_offset:
            return records
        return [record for record in records if record.offset >= first_offset]

    def unreadable(self, cause: BatchError) -> UnreadableBatchError:
        header = self.header
        return UnreadableBatchError(*self.partition, header.base_offset, header.next_offset, cause)


class Progress(NamedTuple):
    """How far a partition was read, and how far it could be read when its leader answered last."""

    position: int
    end_offset: int
    """The high watermark, or with ``read_committed`` the last stable offset."""
    topic_id: bytes


class PartitionPosition:
    """One assigned partition of a consumer."""

    def __init__(
        self, partition: TopicPartition, retry: PartitionRetry, max_age_s: float = 300.0
    ) -> None:
        """``max_age_s``: how long it is read from a replica that the leader named."""
        self.partition = partition
        self.retry = retry
        self.source = Source(max_age_s)
        # Offset of the next record to return; None: not looked up yet.
        self.offset: int | None = None
        self.reset_to: int | None = None  # the timestamp for the look-up: EARLIEST or LATEST
        self.fetch_offset = 0  # offset of the next fetch; never below ``offset``
        self.fetch_until: int | None = None  # nothing is fetched from this offset on; None: no end
        # The leader epoch of the last record below ``offset``; -1: not known.
        self.consumed_epoch = UNKNOWN_EPOCH
        self.epochs = EpochHistory()  # of everything below ``fetch_offset``
        self.topic_id = b""  # the topic that the position is of; empty: whichever has the name
        self.read_id = b""  # the topic of the last record that was returned
        # Where the position was before it went back because records have vanished, until it is
        # known how far it has to go back; None otherwise.
        self.truncated_from: int | None = None
        self.generation = 0  # each seek raises it, and answers to earlier fetches are ignored
        self.looked_up_for = -1  # the generation whose start is being looked up
        # Its start is the group's committed offset, which is not known yet. Nothing is fetched.
        self.awaits_committed = False
        self.paused = False
        self.in_flight = False
        self.sent_to = -1  # the broker that was asked last, and when
        self.sent_at = 0.0
        # Poll raises it until a seek, or once if a right is missing.
        self.error: SteleError | None = None
        self.high_watermark = -1
        self.last_stable_offset = -1  # -1: not known; at most the high watermark
        # The position and the end that ``take_progress`` has returned last. A seek knows no end.
        self._told = (-1, -1)
        # Since when the partition does not exist; None if it does.
        self.lost_since: float | None = None
        # Poll raises it while the partition has been missing for long.
        self.gone: ApiError | None = None
        self.buffered_bytes = 0
        self._batches: deque[FetchedBatch] = deque()
        # Decoded records of the first batch, none below ``offset``, the latest one first.
        self._records: list[ConsumerRecord] = []

    def seek(self, offset: int, leader_epoch: int = UNKNOWN_EPOCH, topic_id: bytes = b"") -> None:
        """``leader_epoch``: of the record before ``offset``, if it is known. ``topic_id``: of the
        topic in which it is an offset."""
        self._start_over()
        self.topic_id = topic_id
        self.offset = self.fetch_offset = offset
        self._told = (offset, -1)
        self.consumed_epoch = leader_epoch
        self.epochs.begin(leader_epoch)

    def go_back(self, offset: int) -> None:
        """The records that were read from ``offset`` on have vanished from the log."""
        epochs, truncated_from = self.epochs, self.truncated_from or self.offset
        self.epochs = EpochHistory()
        self.seek(offset, epochs.epoch_below(offset), self.topic_id)
        self.epochs, self.truncated_from = epochs, truncated_from

    def return_to(self, offset: int) -> None:
        """Have polls return the records from ``offset`` on again, since the caller did not get
        them. Whatever was found out beyond it meanwhile, an error or records that have vanished, is
        found out again."""
        epochs, epoch = self.epochs, self.epochs.epoch_below(offset)
        self.epochs = EpochHistory()
        self.seek(offset, epoch, self.read_id)
        epochs.cut(offset)
        self.epochs = epochs

    def look_up(self, timestamp: int) -> None:
        """Go to the earliest or latest offset as soon as it is known."""
        self._start_over()
        self.offset = None
        self.reset_to = timestamp

    def await_committed(self) -> None:
        """Go to the group's committed offset as soon as it is known."""
        self._start_over()
        self.offset = None
        self.awaits_committed = True

    def begin_anew(self, timestamp: int | None, *, in_group: bool) -> None:
        """Another topic has the name now, and offsets of the one before mean nothing in it. Go to
        what the group has committed in this one, or else to ``timestamp``."""
        self._start_over()
        self.offset = None
        self.reset_to = timestamp
        self.awaits_committed = in_group

    @property
    def stopped_by(self) -> SteleError | None:
        """The error that stops the partition, after the records that were fetched before it."""
        return None if self.has_buffer else self.error or self.gone

    def forget_denial(self) -> None:
        """Poll has raised that a right is missing: the next request finds out whether it still
        is."""
        if isinstance(self.error, ApiError) and self.error.code.is_denial:
            self.error = None

    @property
    def is_fetched(self) -> bool:
        """Whether everything was fetched that the application wants of it."""
        return self.fetch_until is not None and self.fetch_offset >= self.fetch_until

    @property
    def needs_look_up(self) -> bool:
        """Whether its start must be asked of the leader, and is not being asked."""
        return (
            self.offset is None
            and self.error is None
            and not self.awaits_committed
            and self.looked_up_for != self.generation
        )

    def is_there(self) -> None:
        """The partition exists, perhaps as a new one under the same name."""
        self.lost_since = None
        self.gone = None

    def _start_over(self) -> None:
        self.generation += 1
        self.awaits_committed = False
        self.reset_to = None
        self.error = None
        self.gone = None
        self.in_flight = False
        self.retry.at = 0.0
        self.drop_buffer()
        self.consumed_epoch = UNKNOWN_EPOCH
        self.epochs.begin()
        self.truncated_from = None
        self.topic_id = b""
        # Another topic may have the name now. The next answer gives the end of the log.
        self.high_watermark = self.last_stable_offset = -1

    def take_progress(self, *, is_committed: bool) -> Progress | None:
        """The progress, if the position has moved since the last call or seek, or is found to be at
        the end of the log. None while the position or the end is not known."""
        position = self.offset
        end_offset = self.last_stable_offset if is_committed else self.high_watermark
        # A leader that was just elected may not know yet how far its predecessor has committed.
        if position is None or end_offset < position:
            return None
        told_position, told_end = self._told
        if position == told_position and (position < end_offset or end_offset == told_end):
            return None
        self._told = (position, end_offset)
        return Progress(position, end_offset, self.topic_id)

    def drop_buffer(self) -> None:
        self._batches.clear()
        self._records.clear()
        self.buffered_bytes = 0
        if self.offset is not None:
            self.fetch_offset = self.offset
            self.epochs.cut(self.offset)

    @property
    def last_fetched_epoch(self) -> int:
        """The leader epoch of the last record that was fetched; -1 if it is not known."""
        return self.epochs.epoch_below(self.fetch_offset)

    @property
    def has_buffer(self) -> bool:
        return bool(self._records or self._batches)

    def take_fetched(self, data: Buffer, aborted: Iterable[AbortedTransaction] = ()) -> None:
        """Add the batches of an answer, without the records of its aborted transactions. Raises
        BatchError unless the bytes are whole batches."""
        end = 0
        aborted_records = AbortedRecords(aborted)
        for start, header in batches(data):
            end = start + header.size_bytes
            is_left_out = aborted_records.has(header) or header.is_control
            if header.next_offset <= self.fetch_offset:
                continue
            self._batches.append(FetchedBatch(data, start, header, is_left_out))
            self.epochs.note(header.leader_epoch, max(header.base_offset, self.fetch_offset))
            self.buffered_bytes += header.size_bytes
            self.fetch_offset = header.next_offset
        if end == 0 and data:
            raise PartialBatchError(f"{self.partition}: {len(data)} bytes are not a whole batch")

    def hand_out(self, max_records: int, *, check_crcs: bool) -> list[ConsumerRecord]:
        """Take up to ``max_records`` records from the buffer, and move the position. Raises
        UnreadableBatchError at each call that meets an unreadable batch first."""
        taken: list[ConsumerRecord] = []
        while len(taken) < max_records:
            if not self._records:
                if not self._batches:
                    break
                try:
                    self._open_batch(check_crcs)
                except UnreadableBatchError:
                    # The next call meets the batch again, and then has no records to lose.
                    if taken:
                        break
                    raise
                continue
            room = max_records - len(taken)
            taken += self._records[: -room - 1 : -1]
            del self._records[-room:]
            self.read_id = self.topic_id
            self.offset = taken[-1].offset + 1
            self.consumed_epoch = taken[-1].leader_epoch
            if not self._records:
                self._leave_batch()
        # A batch of which records are left is not left out.
        while self._batches and self._batches[0].is_left_out:
            self._leave_batch()
        return taken

    def hand_out_batches(self, max_bytes: int) -> list[RawBatch]:
        """Take whole batches from the buffer, one at least and up to some ``max_bytes``, and move
        the position behind them. Nothing of them is checked but the header."""
        self._records.clear()  # those that were decoded: their batch is still the first one
        taken: list[RawBatch] = []
        size_bytes = 0
        while self._batches and size_bytes < max_bytes:
            data, start, header, is_left_out = self._batches[0]
            if not is_left_out:
                taken.append(self._raw(data, start, header))
                size_bytes += header.size_bytes
            self.consumed_epoch = header.leader_epoch
            self.read_id = self.topic_id
            self._leave_batch()
        return taken

    def hand_out_rows(
        self, max_bytes: int, rows_of: Callable[[list[RawBatch]], Iterator[Rows]]
    ) -> list[Rows]:
        """Take whole batches from the buffer, as the rows that ``rows_of`` makes of them: one with
        rows at least, and up to some ``max_bytes``. Raises UnreadableBatchError at each call that
        meets an unreadable batch first.

        The position moves behind what was made, and nowhere if ``rows_of`` fails otherwise.
        """
        self._records.clear()
        taken: list[Rows] = []
        while self._batches and not taken:
            raw, end_offset = self._next_batches(max_bytes)
            try:
                taken.extend(each for each in rows_of(raw) if len(each))
            except UnreadableBatchError as error:
                self._leave_below(error.offset)
                # The next call meets the batch again, and then has no rows to lose.
                if taken:
                    break
                self.drop_buffer()
                raise
            self._leave_below(end_offset)
        return taken

    def _next_batches(self, max_bytes: int) -> tuple[list[RawBatch], int]:
        """One batch at least, if there is one with records, and the offset after them."""
        raw: list[RawBatch] = []
        size_bytes = end_offset = 0
        for data, start, header, is_left_out in self._batches:
            if raw and size_bytes >= max_bytes:
                break
            if not is_left_out:
                raw.append(self._raw(data, start, header))
                size_bytes += header.size_bytes
            end_offset = header.next_offset
        return raw, end_offset

    def _leave_below(self, offset: int) -> None:
        while self._batches and self._batches[0].header.next_offset <= offset:
            self.consumed_epoch = self._batches[0].header.leader_epoch
            self.read_id = self.topic_id
            self._leave_batch()

    def _open_batch(self, check_crcs: bool) -> None:
        data, start, header, is_left_out = self._batches[0]
        if is_left_out:
            self._leave_batch()
            return
        try:
            records = self._raw(data, start, header).consumer_records(check_crcs=check_crcs)
        except UnreadableBatchError:
            self.drop_buffer()
            raise
        records.reverse()
        self._records = records
        if not records:
            self._leave_batch()

    def _raw(self, data: Buffer, start: int, header: BatchHeader) -> RawBatch:
        assert self.offset is not None  # it was fetched from there on
        return RawBatch(self.partition, data, start, header, self.offset)

    def _leave_batch(self) -> None:
        """Leave the first batch, all of whose records were taken. The position skips offsets that
        compaction has removed."""
        header = self._batches.popleft().header
        self.buffered_bytes -= header.size_bytes
        self.offset = header.next_offset
