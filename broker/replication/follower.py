"""A follower's reaction to a leader's answer: append, truncate, begin anew, or rest."""

from __future__ import annotations

import logging
import sys
from typing import Final, NamedTuple

from broker.replication.produce_tracing import CopySpans
from broker.replication.replica import Replica, ReplicaState, ReportCorrupt
from stele.errors import ApiError, ErrorCode, SteleError
from stele.wire.kafka.messages import fetch as wire
from stele.world import Buffer
from storage.errors import CorruptLogError
from storage.producer_handover import FIRST, HandedProducers, ProducersPart
from world.tracing import Tracer

logger = logging.getLogger(__name__)

REST_MIN_S = 0.05
REST_MAX_S = 0.25

NONE_YET: Final = sys.maxsize
"""``told_in`` of a partition that no request has named yet: no answer is about it."""

# The leader has not heard of its leadership yet, or of ours: a matter of milliseconds.
_SOON = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.STALE_BROKER_EPOCH,
    }
)


class Verdict(NamedTuple):
    """The result of an answer."""

    moved: bool = False  # the log changed: the leader has to be told the new position
    rest_s: float = 0.0  # leave the partition alone for so long
    written_bytes: int = 0
    cut_transactions: int = 0  # those that an unclean election has cost records or the marker


class Following:
    """One partition followed in one leader epoch."""

    __slots__ = (
        "_backoff_s",
        "_failures",
        "_handed",
        "_inherited_dropped_end",
        "_on_corrupt",
        "_told_after",
        "_told_offset",
        "_told_start",
        "_tracer",
        "copying",
        "cuts",
        "leader_epoch",
        "replica",
        "start_moved",
        "told_in",
    )

    def __init__(
        self,
        replica: Replica,
        leader_epoch: int,
        backoff_s: float,
        on_corrupt: ReportCorrupt,
        tracer: Tracer | None,
    ) -> None:
        """``backoff_s``: ``replica.fetch.backoff.ms``, for what does not pass by itself."""
        self.replica = replica
        self.leader_epoch = leader_epoch
        self._backoff_s = backoff_s
        self._on_corrupt = on_corrupt
        self._tracer = tracer
        # The newest traced batch, while it is written and not on disk.
        self.copying: CopySpans | None = None
        # The number of the request that last named this partition. Answers to earlier ones are
        # about another position or epoch.
        self.told_in = NONE_YET
        # The log's end as that request named it. An answer is about what follows that offset.
        self._told_offset = -1
        self._told_start = -1  # the log's start, likewise
        # While the log is about to begin anew: the producers that the leader has handed over.
        self._handed: HandedProducers | None = None
        self._told_after = FIRST  # the producers that the last request asked for, likewise
        # How often the log was truncated or begun anew.
        self.cuts = 0
        self._failures = 0
        # From the leader, or an earlier one, whose end may not be on disk yet.
        is_online = replica.state is ReplicaState.ONLINE
        self._inherited_dropped_end = replica.log.dropped_end if is_online else 0
        # The leader's log begins later than this one does on disk, or than the leader knows. The
        # new start must be written and reported.
        self.start_moved = False

    @property
    def has_bounds_to_write(self) -> bool:
        """Whether the log's start or its dropped end must be on disk before the next request."""
        if self.replica.state is not ReplicaState.ONLINE:
            return False  # there may be no log any more
        return self.start_moved or not self._has_durable_dropped_end

    @property
    def _has_durable_dropped_end(self) -> bool:
        """This replica may be elected once the leader is told of records above its dropped end.
        Then this replica must know, even after a power loss, which tombstones its log lacks.

        What its own cleaner drops is on disk before it is dropped.
        """
        wanted = self._inherited_dropped_end
        if wanted:  # nothing of most logs is compacted away
            wanted = min(wanted, self.replica.log.dropped_end)
        return not wanted or self.replica.durable_dropped_end >= wanted

    @property
    def is_durable(self) -> bool:
        """Whether everything in the log may be acknowledged."""
        replica = self.replica
        if replica.state is not ReplicaState.ONLINE:
            return False
        log = replica.log
        return log.durability.durable_offset == log.end_offset and (
            not self._inherited_dropped_end or self._has_durable_dropped_end
        )

    def position(self, max_bytes: int) -> wire.FetchPartition:
        """The entry of a Fetch for this partition. Everything below its offset is durable, and so
        is the start."""
        log = self.replica.log
        self._told_offset = log.end_offset
        self._told_start = self.replica.durable_start_offset
        self._told_after = self._expected_after
        return wire.FetchPartition(
            partition=self.replica.id.partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=log.end_offset,
            last_fetched_epoch=log.epochs.epoch_for(log.end_offset - 1),
            log_start_offset=self._told_start,
            partition_max_bytes=max_bytes,
            producers_after=self._told_after,
        )

    @property
    def _expected_after(self) -> int:
        """The producer id that the next part has to follow."""
        return FIRST if self._handed is None else self._handed.after

    def take(self, data: wire.PartitionData) -> Verdict:
        """Do what the leader's answer for this partition asks for."""
        replica = self.replica
        if replica.state is not ReplicaState.ONLINE:
            return Verdict(rest_s=self._backoff_s)
        log = replica.log
        if log.end_offset != self._told_offset:
            return Verdict()  # of a request that crossed the answer which moved the log
        error = ErrorCode(data.error_code)
        if error is not ErrorCode.OFFSET_OUT_OF_RANGE:
            self._handed = None
        try:
            if error is ErrorCode.OFFSET_OUT_OF_RANGE:
                verdict = self._begin_anew(data)
            elif error is not ErrorCode.NONE:
                return self._refused(error)
            elif data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0:
                verdict = self._truncate(data.diverging_epoch)
            else:
                verdict = self._append(data)
        except CorruptLogError as corrupt:
            self._on_corrupt(replica, log, corrupt)
            return Verdict(rest_s=self._backoff_s)
        except (ApiError, SteleError) as failure:
            logger.warning("%r: the leader's records cannot be stored: %s", replica, failure)
            return Verdict(rest_s=self._backoff_s)
        except Exception:  # the session is that of other partitions, too
            logger.exception("%r: the leader's records cannot be stored", replica)
            return Verdict(rest_s=self._backoff_s)
        self._failures = 0
        return verdict

    def _refused(self, error: ErrorCode) -> Verdict:
        self._failures += 1
        if error not in _SOON:
            # FENCED_LEADER_EPOCH: newer metadata is on its way to us, and wakes us by itself.
            logger.info("%r: the leader answered %s", self.replica, error.name)
            return Verdict(rest_s=self._backoff_s)
        return Verdict(rest_s=min(REST_MIN_S * 2 ** min(self._failures - 1, 8), REST_MAX_S))

    def _append(self, data: wire.PartitionData) -> Verdict:
        records = _one_buffer(data.records)
        written = len(records)
        if written:
            self._begin_with_batch(records)
            self._inherit_dropped_end(data)
        spans = None
        if data.traced is not None and self._tracer is not None:
            spans = CopySpans(self._tracer, self.replica, data.traced)
        self.replica.copy(records, data.high_watermark, data.log_start_offset)
        if spans is not None and spans.written():
            self.copying = spans
        self._check_start(data)
        return Verdict(moved=written > 0 or self.has_bounds_to_write, written_bytes=written)

    def copied(self) -> None:
        """The traced batch is on disk, or cannot be brought there."""
        spans, self.copying = self.copying, None
        if spans is not None:
            spans.synced("" if self.is_durable else ErrorCode.KAFKA_STORAGE_ERROR.name)

    def _inherit_dropped_end(self, data: wire.PartitionData) -> None:
        log = self.replica.log
        if data.dropped_end > log.dropped_end:
            log.dropped_end = self._inherited_dropped_end = data.dropped_end

    def _begin_with_batch(self, records: Buffer) -> None:
        """An empty log may begin within a batch, and the leader sends the whole batch. The log gets
        the leader's start afterwards (as in Kafka)."""
        log = self.replica.log
        base_offset = log.base_to_begin_with(records)
        if base_offset is not None:
            handed = log.handed_producers(base_offset)
            handed.take_over(log.producers)
            self.cuts += 1
            self.replica.reset_to(base_offset, handed)

    def _check_start(self, data: wire.PartitionData) -> None:
        """Note a start that the leader has to be told of: it waits until this replica has it on
        disk.

        The file of the starts may have been written for another partition of the directory.
        """
        replica = self.replica
        wanted = min(data.log_start_offset, replica.log.end_offset)
        self.start_moved = min(replica.durable_start_offset, self._told_start) < wanted

    def _truncate(self, diverging: wire.EpochEndOffset) -> Verdict:
        """Cut where this log's history leaves the leader's (KIP-595), never at the high watermark.

        ``diverging`` is the leader's end of the greatest epoch not above our last one. Where we do
        not know that epoch, our own end of the epoch below it is the next guess.
        """
        replica, log = self.replica, self.replica.log
        own = log.end_offset_for_epoch(diverging.epoch)
        target = diverging.end_offset
        if own.epoch >= 0:
            target = min(target, own.end_offset)
        if target < log.start_offset:
            # The leader hands over the producers below its start only if this log is below it.
            target = 0
        before = log.end_offset
        if target < replica.machine.high_watermark:
            logger.warning(
                "%r: cutting to %d below the high watermark %d: after an unclean election",
                replica,
                target,
                replica.machine.high_watermark,
            )
        is_unclean = target < replica.machine.high_watermark
        open_before = dict(log.producers.open_transactions())
        self.cuts += 1
        replica.truncate_to(target)
        logger.info("%r: cut from %d to %d: epochs diverge", replica, before, log.end_offset)
        return Verdict(
            moved=True, cut_transactions=_cut_transactions(replica, open_before, is_unclean)
        )

    def _begin_anew(self, data: wire.PartitionData) -> Verdict:
        """Begin anew. The log ends below the leader's log start, so retention took the next
        records. Or compaction removed a later tombstone, and this log may have a record that it
        deletes."""
        replica, log = self.replica, self.replica.log
        if data.log_start_offset < 0:
            return Verdict(rest_s=self._backoff_s)
        handed = None
        if data.producers is not None and self._told_after != self._expected_after:
            # An answer that was under way with the one before it. A part does not say which
            # producers it follows, so only the answer to what was asked for last is one.
            return Verdict()
        if data.producers is not None:  # else the leader is of a version that hands none over
            handed = self._gather(data.log_start_offset, data.producers)
            if handed is None:
                return Verdict(moved=True)
        logger.warning(
            "%r: offset %d is out of the leader's range%s: beginning anew at %d",
            replica,
            log.end_offset,
            f" (tombstones below {data.dropped_end} are compacted away)"
            if data.dropped_end > log.end_offset
            else "",
            data.log_start_offset,
        )
        self.cuts += 1
        replica.reset_to(data.log_start_offset, handed)
        self._check_start(data)
        return Verdict(moved=True)

    def _gather(self, offset: int, part: wire.ProducersPart) -> HandedProducers | None:
        """Take in the next part of the leader's producers as of ``offset``. Returns them if all are
        here. Otherwise the next request asks for more, or from the beginning if the leader's start
        has moved."""
        handed, self._handed = self._handed, None
        if handed is None:
            handed = self.replica.log.handed_producers(offset)
        elif handed.offset != offset:
            return None
        if handed.add(ProducersPart(part.data, part.after)):
            return handed
        self._handed = handed
        return None


def _cut_transactions(replica: Replica, open_before: dict[int, int], is_unclean: bool) -> int:
    """Tell what an unclean election has done to transactions, and return their number.

    A transaction that has lost its records here does not come back: a marker for it ends nothing.
    One that has lost its marker is open again. Its coordinator takes it for ended. So it holds the
    last stable offset back until the producer's next transaction, or until an administrator aborts
    it.
    """
    if not is_unclean:
        return 0
    open_now = dict(replica.log.producers.open_transactions())
    lost = [producer_id for producer_id in open_before if producer_id not in open_now]
    reopened = [
        producer_id
        for producer_id, first_offset in open_now.items()
        if open_before.get(producer_id) != first_offset
    ]
    if lost or reopened:
        logger.warning(
            "%r: an unclean election has cost the open transactions of producers %s, and the "
            "markers of transactions of producers %s, which are open again",
            replica,
            lost,
            reopened,
        )
    return len(lost) + len(reopened)


def _one_buffer(records: object) -> Buffer:
    """Decoded answers hold one view or nothing."""
    if records is None:
        return b""
    assert isinstance(records, bytes | bytearray | memoryview)
    return records
