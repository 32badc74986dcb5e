"""The append function: validate, append, wait, answer. No task and no timer per request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from broker.partition.view import Role
from broker.replication.deadlines import Deadline, DeadlineWheel
from broker.replication.produce_tracing import (
    SyncWait,
    begin_append,
    begin_replicate,
    begin_sync,
    note_traced,
)
from broker.replication.recompression import Recompressed, Recompression, target_of
from broker.replication.refusal_log import RefusalLog
from broker.replication.replica import ProduceToken, Replica, ReplicaState, ReportCorrupt
from broker.replication.replicas import Replicas
from broker.replication.slow_checks import Progress, SlowChecks
from broker.replication.transactional import TransactionalBatches
from broker.replication.types import Marker, ProduceEntry, ProduceResult
from metadata.topic_config import TopicConfig
from stele.errors import ApiError, ErrorCode
from stele.wire.batch import (
    HEADER_SIZE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    read_header,
    stamp_max_timestamp,
)
from stele.wire.batch_errors import RejectedRecordsError
from stele.wire.control_records import EndMarker, end_marker_batch
from stele.wire.produced import validate_produced
from stele.wire.record_check import RecordCheck, TimeDeltas
from storage.errors import CorruptLogError
from storage.producer_admission import UnknownProducerRefusedError
from world.tracing import Span

logger = logging.getLogger(__name__)

ACKS_ALL = -1
ACKS_NONE = 0

Done = Callable[[list[ProduceResult]], None]

_BUMPS_EPOCH_FROM: Final = 2
"""From this transaction.version on, a marker has a later epoch than its transaction (KIP-890)."""

_RECORD_ERRORS_MAX: Final = 1000
"""The most rejected records in one answer. Producers treat the others as part of their batch."""

_ANY_TIME_MS: Final = (-(1 << 63), (1 << 63) - 1)
"""What a header has room for."""

_SOUND: Final = object()
"""What ``next`` gives for a check of records that has come to its end."""


class _Part:
    """One partition of a waiting request."""

    __slots__ = ("_request", "end_offset", "number", "replica", "result", "span", "wait")

    def __init__(
        self,
        request: _WaitingProduce,
        replica: Replica,
        result: ProduceResult,
        end_offset: int,
        span: Span | None,
    ) -> None:
        self._request = request
        self.replica = replica
        self.result = result
        self.end_offset = end_offset
        self.number = -1  # of the machine's wait
        self.span = span  # of the request, if it is traced
        self.wait: Span | None = None  # of the machine's wait

    def acknowledge(self) -> None:
        self._request.acknowledged(self)

    def refuse(self, error: ErrorCode) -> None:
        self._request.refused(self, error)


class _Unchecked:
    """A batch whose records or whose transaction are still being checked, that is compressed anew,
    or that waits behind such a batch."""

    __slots__ = (
        "acks",
        "checks",
        "entry",
        "failure",
        "header",
        "is_abandoned",
        "request",
        "result",
    )

    def __init__(
        self, request: _WaitingProduce, entry: ProduceEntry, acks: int, result: ProduceResult
    ) -> None:
        self.request = request
        self.entry = entry
        self.acks = acks
        self.result = result
        self.header: BatchHeader | None = None
        self.checks: RecordCheck | None = None  # with the header, from its turn on
        self.failure: ApiError | None = None  # why it cannot be compressed anew
        self.is_abandoned = False  # answered already: it must not be appended any more

    @property
    def sound_header(self) -> BatchHeader:
        """The header once the records are checked."""
        assert self.header is not None
        return self.header


class _WaitingProduce:
    """A request with partitions that do not yet have the replicas that ``acks`` asks for."""

    __slots__ = ("_done", "_lease_valid", "_open", "_record_errors", "deadline", "results")

    def __init__(
        self, results: list[ProduceResult], done: Done, lease_valid: Callable[[], bool]
    ) -> None:
        self.results = results
        self._done: Done | None = done
        self._lease_valid = lease_valid
        # The parts without an outcome, in order; answered exactly when it is empty. One None
        # more while parts are still being added.
        self._open: dict[_Part | _Unchecked | None, None] = {None: None}
        self._record_errors = 0  # in the results so far
        self.deadline: Deadline | None = None

    @property
    def is_open(self) -> bool:
        return self._done is not None

    def add(self, part: _Part | _Unchecked) -> None:
        self._open[part] = None

    def checked(self, batch: _Unchecked) -> None:
        """It is appended, and what it waits for now has been added; or it is refused."""
        self._settle(batch)

    def complete(self) -> None:
        """All parts have been added."""
        self._settle(None)

    def acknowledged(self, part: _Part) -> None:
        # A leader that may have been replaced acknowledges nothing. The clock is read at this
        # moment: the process may have been paused since the loop's time.
        if self._lease_valid():
            # The epoch is that of now: others may have led, in between, since the append.
            part.result.leader = part.replica.leader_hint
            if part.wait is not None:
                part.wait.end()
            self._settle(part)
        else:
            self.refused(part, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def refused(self, part: _Part, error: ErrorCode) -> None:
        if part.wait is not None:
            part.wait.end(error.name)
        part.result.error = error
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            part.result.leader = part.replica.leader_hint
        part.result.base_offset = -1
        self._settle(part)

    def name_records(self, result: ProduceResult, error: RejectedRecordsError) -> None:
        """Tell which records were rejected. The answer has a bound: a small request can have very
        many such records."""
        room = _RECORD_ERRORS_MAX - self._record_errors
        result.record_errors = error.record_errors[:room]
        self._record_errors += len(result.record_errors)

    def time_out(self, *, replicated: bool) -> None:
        for part in list(self._open):
            if isinstance(part, _Part):
                part.replica.machine.withdraw(part.number, replicated=replicated)
                self.refused(part, ErrorCode.REQUEST_TIMED_OUT)
            elif part is not None:
                part.is_abandoned = True
                part.result.error = ErrorCode.REQUEST_TIMED_OUT
                self._settle(part)

    def _settle(self, part: _Part | _Unchecked | None) -> None:
        self._open.pop(part, None)
        if self._open or self._done is None:
            return
        if self.deadline is not None:
            self.deadline.cancel()
        done, self._done = self._done, None
        done(self.results)


class ProduceRequests:
    """Every append of a client goes through here, those of thin clients, too."""

    def __init__(
        self,
        replicas: Replicas,
        deadlines: DeadlineWheel,
        lease_valid: Callable[[], bool],
        recompression: Recompression,
        on_corrupt: ReportCorrupt,
    ) -> None:
        self._on_corrupt = on_corrupt
        self._replicas = replicas
        self._deadlines = deadlines
        self._lease_valid = lease_valid
        self._recompression = recompression
        self._refusals = RefusalLog(replicas.clock)
        self._slow_checks: SlowChecks[_Unchecked] = SlowChecks(self._advance)
        self.transactional: TransactionalBatches[_Unchecked] = TransactionalBatches(
            self._take, self._refuse_waiting
        )

    def begin(
        self, entries: Sequence[ProduceEntry], acks: int, timeout_ms: int, done: Done
    ) -> None:
        """Validate, stamp and append batches; answer by ``acks`` (0, 1 or -1). ``done`` is called
        exactly once, possibly before this returns, with results in the order of the entries.

        0: answered at once after the append; 1: when durable here (by ``flush.messages``);
        -1: when below the high watermark, NOT_ENOUGH_REPLICAS_AFTER_APPEND when the ISR falls
        below min.insync.replicas before, REQUEST_TIMED_OUT after ``timeout_ms``.
        """
        results: list[ProduceResult] = []
        request = _WaitingProduce(results, done, self._lease_valid)
        parts: list[_Part] = []
        for entry in entries:
            result = ProduceResult(entry.id, ErrorCode.NONE)
            results.append(result)
            part = self._append(entry, acks, request, result)
            if part is not None:
                parts.append(part)
        if acks != ACKS_NONE:
            for part in parts:
                self._await(request, part, acks)
        request.complete()
        if request.is_open:
            replicated = acks == ACKS_ALL
            request.deadline = self._deadlines.add(
                timeout_ms, lambda: request.time_out(replicated=replicated)
            )

    def append_own(
        self, replica: Replica, batch: bytearray, leader_epoch: int, token: ProduceToken
    ) -> int:
        """Append a batch that this broker has made itself, as acks=all; its base offset.

        ``token`` hears when the batch is below the high watermark, or that the ISR has become too
        small. Raises ApiError, also if the leader epoch is not ``leader_epoch`` any more.
        """
        entry = ProduceEntry(replica.id, batch)
        machine = self._leader_of(entry, ACKS_ALL).machine
        if machine.leader_epoch != leader_epoch:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        header = validate_produced(batch, replica.config.max_message_bytes)
        result = ProduceResult(entry.id, ErrorCode.NONE)
        end_offset = self._append_to(replica, entry, header, result, check_sequence=False)
        _, effects = machine.await_replicated(end_offset, token, self._replicas.now_ms())
        if effects:
            self._replicas.carry_out(replica, effects)
        return result.base_offset

    def append_marker(self, marker: Marker, token: ProduceToken) -> None:
        """Append a marker, as acks=all. ``token`` as for ``append_own``. Raises ApiError,
        StorageError: nothing was appended.

        A marker whose epoch says that the log has it already is not appended again, but waits to be
        committed.
        """
        bumps_epoch = marker.transaction_version >= _BUMPS_EPOCH_FROM
        replica = self._leader_of(ProduceEntry(marker.partition, bytearray()), ACKS_ALL)
        machine, producers = replica.machine, replica.log.producers
        producer_id, producer_epoch = marker.producer_id, marker.producer_epoch
        producers.check_marker(
            producer_id, producer_epoch, marker.coordinator_epoch, bumps_epoch=bumps_epoch
        )
        known = producers.get(producer_id)
        if bumps_epoch and known is not None and known.epoch == producer_epoch:
            end_offset = replica.log.end_offset
        else:
            # What a marker ends has its epoch, or the one before.
            is_lost = producers.is_left_open(producer_id, producer_epoch - 1)
            if is_lost:
                _tell_lost(replica, producer_id)
            end = EndMarker(marker.commit and not is_lost, marker.coordinator_epoch)
            end_offset = self._append_end(replica, producer_id, producer_epoch, end)
            if not bumps_epoch:  # else it ends the transaction of the epoch before
                self.transactional.transaction_ended(replica.id, producer_id, producer_epoch)
        _, effects = machine.await_replicated(end_offset, token, self._replicas.now_ms())
        self._replicas.carry_out(replica, effects)

    def _append_end(
        self, replica: Replica, producer_id: int, producer_epoch: int, end: EndMarker
    ) -> int:
        """Append a marker. Returns the offset after it."""
        batch = end_marker_batch(
            producer_id,
            producer_epoch,
            commit=end.commit,
            coordinator_epoch=end.coordinator_epoch,
            timestamp_ms=self._replicas.clock.time_ms(),
        )
        result = ProduceResult(replica.id, ErrorCode.NONE)
        entry = ProduceEntry(replica.id, batch)
        end_offset = self._append_to(
            replica, entry, read_header(batch), result, check_sequence=False
        )
        if replica.on_marker is not None:
            replica.on_marker(result.base_offset, producer_id, end)
        return end_offset

    def _abort_lost(self, replica: Replica, header: BatchHeader) -> None:
        """Before the first batch of a transaction: end an earlier one whose marker was lost. It
        would be committed with this one, even if it was aborted."""
        producers = replica.log.producers
        if not producers.is_left_open(header.producer_id, header.producer_epoch):
            return
        known = producers.get(header.producer_id)
        assert known is not None, "a transaction is open"
        _tell_lost(replica, header.producer_id)
        end = EndMarker(commit=False, coordinator_epoch=known.coordinator_epoch)
        self._append_end(replica, known.producer_id, known.epoch, end)

    def _await(self, request: _WaitingProduce, part: _Part, acks: int) -> None:
        request.add(part)
        machine = part.replica.machine
        if part.span is not None:
            self._trace_wait(part, part.span, acks)
        if acks == ACKS_ALL:
            now_ms = self._replicas.now_ms()
            part.number, effects = machine.await_replicated(part.end_offset, part, now_ms)
        else:
            part.number, effects = machine.await_durable(part.end_offset, part)
        if effects:  # usually what it waits for is still to come
            self._replicas.carry_out(part.replica, effects)

    def _trace_wait(self, part: _Part, request: Span, acks: int) -> None:
        replica = part.replica
        if acks != ACKS_ALL:
            part.wait = begin_sync(request, replica)
            return
        part.wait = begin_replicate(request, replica)
        own = SyncWait(begin_sync(request, replica))
        _, effects = replica.machine.await_durable(part.end_offset, own)
        self._replicas.carry_out(replica, effects)

    def _append(
        self, entry: ProduceEntry, acks: int, request: _WaitingProduce, result: ProduceResult
    ) -> _Part | None:
        """Append one batch. Returns None, with the error in ``result``, if that is not possible.

        It also returns None if the batch takes more time than one turn of the event loop. The order
        in a partition is kept: batches behind such a batch wait for it.
        """
        if self._slow_checks.is_busy(entry.id):
            self._defer(_Unchecked(request, entry, acks, result))
            return None
        try:
            replica = self._leader_of(entry, acks)
            header, checks = self._validated(replica, entry)
            is_sound = next(checks, _SOUND) is _SOUND
            if not is_sound or target_of(replica.config, header) is not None:
                batch = _Unchecked(request, entry, acks, result)
                batch.header, batch.checks = header, checks
                self._defer(batch)
                return None
            header = _corrected(entry, header, checks)
            if header.attributes & TRANSACTIONAL:
                batch = _Unchecked(request, entry, acks, result)
                batch.header = header
                request.add(batch)
                self._take(batch)
                return None
            end_offset = self._append_to(replica, entry, header, result)
        except ApiError as error:
            self._refuse(request, entry, result, error)
            return None
        return _Part(request, replica, result, end_offset, entry.span)

    def _refuse(
        self, request: _WaitingProduce, entry: ProduceEntry, result: ProduceResult, error: ApiError
    ) -> None:
        self._replicas.counters.failed_produce_total += 1
        if isinstance(error, UnknownProducerRefusedError):
            self._replicas.counters.refused_producers_total += 1
        self._refusals.note(self._replicas.by_id.get(entry.id, entry.id), error)
        result.error = error.code
        result.message = error.message
        if isinstance(error, RejectedRecordsError):
            request.name_records(result, error)
        if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            result.leader = self._replicas.hint(entry.id)

    # ------------------------------------------------------------------ large batches

    def _defer(self, batch: _Unchecked) -> None:
        batch.request.add(batch)
        self._slow_checks.add(batch.entry.id, batch)

    def _advance(self, batch: _Unchecked) -> Progress:
        """Do one slice of the work on a batch."""
        if batch.is_abandoned:
            return Progress.DONE
        entry = batch.entry
        try:
            if batch.failure is not None:
                raise batch.failure
            # Asked for again after each pause: it may lead no more.
            replica = self._leader_of(entry, batch.acks)
            if batch.checks is None:
                batch.header, batch.checks = self._validated(replica, entry)
            if next(batch.checks, _SOUND) is not _SOUND:
                return Progress.MORE
            batch.header = _corrected(entry, batch.sound_header, batch.checks)
            if self._recompresses(replica, batch, batch.header):
                return Progress.WAITING
        except ApiError as error:
            self._refuse_waiting(batch, error)
        else:
            self._take(batch)
        return Progress.DONE

    def _recompresses(self, replica: Replica, batch: _Unchecked, header: BatchHeader) -> bool:
        """Begin to compress a sound batch anew if it must be. Its partition's later batches wait,
        which keeps sequences in order."""
        config = replica.config
        target = target_of(config, header)
        if target is None:
            return False

        def done(made: Recompressed | ApiError) -> None:
            if isinstance(made, ApiError):
                batch.failure = made
            else:
                batch.entry = replace(batch.entry, batch=made.batch)
                batch.header = made.header
            self._slow_checks.resume(batch.entry.id)

        self._recompression.begin(config, batch.entry.batch, header, target, done)
        return True

    def _take(self, batch: _Unchecked) -> None:
        """Append a batch whose records are sound, unless it has to wait for its transaction."""
        entry = batch.entry
        try:
            replica = self._leader_of(entry, batch.acks)
            header = batch.sound_header
            if header.attributes & TRANSACTIONAL and self.transactional.must_wait(replica, batch):
                return
            if header.attributes & TRANSACTIONAL:
                self._abort_lost(replica, header)
            end_offset = self._append_to(replica, entry, header, batch.result)
        except ApiError as error:
            self._refuse_waiting(batch, error)
            return
        except Exception:
            logger.exception("%r: a batch cannot be appended", self._replicas.by_id.get(entry.id))
            batch.result.error = ErrorCode.UNKNOWN_SERVER_ERROR
        else:
            if batch.acks != ACKS_NONE:
                part = _Part(batch.request, replica, batch.result, end_offset, batch.entry.span)
                self._await(batch.request, part, batch.acks)
        batch.request.checked(batch)

    def _refuse_waiting(self, batch: _Unchecked, error: ApiError) -> None:
        self._refuse(batch.request, batch.entry, batch.result, error)
        batch.request.checked(batch)

    # ------------------------------------------------------------------ one batch

    def _leader_of(self, entry: ProduceEntry, acks: int) -> Replica:
        replica = self._replicas.by_id.get(entry.id)
        if replica is None:
            raise ApiError(self._replicas.refusal(entry.id))
        machine = replica.machine
        if machine.role is not Role.LEADER or self._replicas.deposed():
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if replica.state is not ReplicaState.ONLINE:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log is {replica.state.value}")
        if acks == ACKS_ALL and machine.is_under_min_isr:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(machine.state.isr)} in sync, {machine.min_insync} needed",
            )
        return replica

    def _validated(self, replica: Replica, entry: ProduceEntry) -> tuple[BatchHeader, RecordCheck]:
        """The sound header of a batch, and the check of its records, which is still to be made."""
        config = replica.config
        header = validate_produced(entry.batch, config.max_message_bytes)
        return header, RecordCheck(
            header.compression,
            memoryview(entry.batch)[HEADER_SIZE:],
            header.record_count,
            times=_allowed_times(header, config, self._replicas.clock.time_ms()),
            keys_required="compact" in config.cleanup_policy,
        )

    def _append_to(
        self,
        replica: Replica,
        entry: ProduceEntry,
        header: BatchHeader,
        result: ProduceResult,
        *,
        check_sequence: bool = True,
    ) -> int:
        """The offset after the batch; a duplicate gets its original's. Only batches of this broker
        itself have no sequence to be checked."""
        log, counters = replica.log, self._replicas.counters
        known = log.producers.begun
        span = None if entry.span is None else begin_append(entry.span, replica)
        try:
            appended = log.append_as_leader(
                entry.batch,
                header,
                leader_epoch=replica.machine.leader_epoch,
                now_ms=self._replicas.clock.time_ms(),
                check_sequence=check_sequence,
            )
        except CorruptLogError as error:  # a marker may need the transaction index
            self._on_corrupt(replica, log, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        finally:
            if span is not None:
                span.end()
        result.base_offset = appended.base_offset
        result.log_append_time_ms = appended.log_append_time_ms
        result.log_start_offset = replica.machine.start_offset
        if log.producers.begun != known and entry.on_new_producer is not None:
            entry.on_new_producer()
        if not appended.duplicate:
            counters.messages_in += header.record_count
            counters.bytes_in += header.size_bytes
            replica.traffic.messages_in += header.record_count
            replica.traffic.bytes_in += header.size_bytes
            if entry.span is not None:
                note_traced(entry.span, replica, appended.base_offset)
            effects = replica.machine.appended(replica.position, self._replicas.now_ms())
            self._replicas.carry_out(replica, effects)
        return appended.last_offset + 1


def _tell_lost(replica: Replica, producer_id: int) -> None:
    logger.warning(
        "%r: an unclean election has lost the marker of a transaction of producer %d. The records "
        "of the transaction count as aborted here",
        replica,
        producer_id,
    )


def _allowed_times(header: BatchHeader, config: TopicConfig, time_ms: int) -> TimeDeltas:
    """What message.timestamp.before.max.ms and .after.max.ms allow for each record. The header's
    times are not looked at, since they are only what the producer claims."""
    oldest_ms, newest_ms = _ANY_TIME_MS
    if config.message_timestamp_type != "LogAppendTime":
        oldest_ms = time_ms - config.message_timestamp_before_max_ms
        newest_ms = time_ms + config.message_timestamp_after_max_ms
    return TimeDeltas.of(header.base_timestamp_ms, oldest_ms, newest_ms)


def _corrected(entry: ProduceEntry, header: BatchHeader, checks: RecordCheck) -> BatchHeader:
    """The header with the greatest timestamp of the checked records, as in Kafka. A producer's
    claim decides neither about retention nor about look-ups by time. The base timestamp is not
    corrected: it is only what the records' times are relative to."""
    newest_ms = max(header.base_timestamp_ms + checks.newest_ms, NO_TIMESTAMP)
    if newest_ms == header.max_timestamp_ms:
        return header
    return stamp_max_timestamp(entry.batch, header, newest_ms)
