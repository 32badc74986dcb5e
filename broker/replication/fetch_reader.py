"""The reading of one fetch: from the logs that it names, within its bytes, and what was found.

The reader neither waits nor answers. What is not in memory is left to the caller
(``Reading.cold``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.partition.effects import BrokerStatus
from broker.partition.machine import PartitionMachine
from broker.replication.fetch_session import FetchSession
from broker.replication.fetch_waiting import WaitingFetch
from broker.replication.leader_throttle import LeaderThrottle, is_held_back
from broker.replication.produce_tracing import traced_from
from broker.replication.replica import Replica, ReplicaState, ReportCorrupt
from broker.replication.replicas import Replicas
from broker.replication.types import EpochEnd, FetchEntry, FetchResult
from stele.errors import ApiError, ErrorCode
from storage.cold_range import ColdRange
from storage.errors import CorruptLogError
from storage.log import PartitionLog
from storage.log_types import ReadResult
from storage.producer_handover import producers_below

_CONSUMER = BrokerStatus()
"""The partition for a reader that is no broker, by the metadata."""


_PRODUCERS_PER_ANSWER: Final = 512
"""Encoding so many takes a few milliseconds, as does decoding them."""
_PRODUCERS_MIN: Final = 1
"""For each partition of an answer that hands over more than that to others."""


class Reading:
    """One pass over the entries of a fetch."""

    __slots__ = (
        "_left_producers",
        "cold",
        "fetch",
        "left_bytes",
        "now_ms",
        "read_bytes",
        "results",
        "status",
        "throttled_bytes",
        "urgent",
    )

    def __init__(
        self, fetch: WaitingFetch, max_bytes: int, status: BrokerStatus, now_ms: float | None
    ) -> None:
        """``status``: what the metadata say of the reader. ``now_ms``: of a follower's fetch that
        has just come, whose positions acknowledge. None for any other pass."""
        self.fetch = fetch
        self.status = status
        self.now_ms = now_ms
        self.results: list[FetchResult] = []
        self.left_bytes = max_bytes
        self.read_bytes = 0
        self.throttled_bytes = 0  # of those, what counts against the leader's quota
        # There is an error or a divergence, which the client must get at once.
        self.urgent = False
        # What to bring into memory first, for the first entry that needs it.
        self.cold: tuple[Replica, PartitionLog, ColdRange] | None = None
        self._left_producers = _PRODUCERS_PER_ANSWER

    def take_producers(self) -> int:
        """How many producers to hand over with the next result that hands any over. At least some:
        otherwise a follower could not go on."""
        most = max(_PRODUCERS_MIN, self._left_producers)
        self._left_producers -= most
        return most


class FetchReader:
    """Reads for every fetch of this broker."""

    def __init__(
        self,
        replicas: Replicas,
        on_corrupt: ReportCorrupt,
        answer_share: Callable[[], int],
        throttle: LeaderThrottle,
        lease_valid: Callable[[], bool],
    ) -> None:
        """``answer_share``: how many bytes the next answer to a consumer may take.

        It gets its first batch in any case, so that every consumer makes progress.

        ``lease_valid``: a leader without it may have a successor. It still shows what it has. But a
        consumer that has waited here for more in vain is sent to look for another leader, or it
        would wait for as long as this broker is cut off from the controllers.
        """
        self._lease_valid = lease_valid
        self._replicas = replicas
        self._on_corrupt = on_corrupt
        self._answer_share = answer_share
        self._throttle = throttle
        # While several fetches are read one after the other in one turn of the event loop: what
        # was found. The followers of a partition mostly read the same. Nothing is truncated
        # within a turn, and the answers have the bytes anyway. None at any other time.
        self.found_in_round: dict[tuple[PartitionLog, int, int, int, bool], ReadResult] | None
        self.found_in_round = None

    def available_bytes(self, fetch: WaitingFetch, entry: FetchEntry) -> int | None:
        """The bytes that a partition has for the reader; None if a read has to tell."""
        replica = self._replicas.by_id.get(entry.id)
        if replica is None:
            return None
        if self._refusal(replica, entry, fetch, _CONSUMER) is not ErrorCode.NONE:
            return None
        log = replica.log
        try:
            machine = replica.machine
            nearby = fetch.nearby
            if nearby and machine.preferred_replica(entry.fetch_offset, nearby) >= 0:
                return None
            if entry.last_fetched_epoch >= 0 and _divergence(machine, log, entry) is not None:
                return None
            limit = machine.readable_end(entry.fetch_offset, read_committed=fetch.read_committed)
            return log.readable_bytes(entry.fetch_offset, limit)
        except (ApiError, CorruptLogError):
            return None  # and reading meets it again

    def _refusal(
        self, replica: Replica, entry: FetchEntry, fetch: WaitingFetch, status: BrokerStatus
    ) -> ErrorCode:
        machine = replica.machine
        if self._replicas.deposed():
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if fetch.is_follower:
            error = machine.check_follower(
                fetch.replica_id, fetch.replica_epoch, entry.current_leader_epoch, status
            )
        else:
            error = machine.fence(entry.current_leader_epoch, any_replica=fetch.any_replica)
        if error is ErrorCode.NONE and (
            replica.state is not ReplicaState.ONLINE or entry.id in fetch.unread
        ):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return error

    def read(self, fetch: WaitingFetch, *, counts: bool = False) -> Reading:
        """``counts``: a follower's fetch has just come, and its positions acknowledge."""
        session = fetch.session
        now_ms = self._replicas.now_ms() if counts else None
        if fetch.is_follower:
            status = self._replicas.status(fetch.replica_id)
            reading = Reading(fetch, fetch.max_bytes, status, now_ms)
        else:
            max_bytes = min(fetch.max_bytes, self._answer_share())
            reading = Reading(fetch, max_bytes, _CONSUMER, now_ms)
        results = reading.results
        if session is None:
            for entry in fetch.entries:
                results.append(self._read_entry(reading, entry))
        else:
            self._read_session(session, reading)
        for result in results:
            if result.error is not ErrorCode.NONE or result.diverging is not None:
                reading.urgent = True
                break
        if session is not None and self._replicas.tells_high_watermarks_at_once:
            reading.urgent = reading.urgent or session.has_new_high_watermark(results)
        return reading

    def _read_session(self, session: FetchSession, reading: Reading) -> None:
        """What has changed in the session, and then what waits for quota, as far as that goes."""
        results, now_ms = reading.results, reading.now_ms
        if now_ms is not None:
            session.begin_look(reading.fetch.replica_epoch, reading.status)
        for entry in session.to_look_at(self._replicas.now_ms):
            results.append(self._read_entry(reading, entry))
        while session.held and reading.cold is None and self._has_quota(reading):
            results.append(self._read_entry(reading, session.next_held()))
        if session.held:
            self._throttle.await_quota(session)
        if now_ms is not None:
            session.end_look(now_ms)

    def _has_quota(self, reading: Reading) -> bool:
        """Whether this answer may hold more of throttled replicas."""
        return reading.left_bytes > 0 and (
            self._throttle.available_bytes() > reading.throttled_bytes
        )

    def _read_entry(self, reading: Reading, entry: FetchEntry) -> FetchResult:
        fetch = reading.fetch
        replica = self._replicas.by_id.get(entry.id)
        if replica is None:
            error = self._replicas.refusal(entry.id)
            return FetchResult(entry.id, error, leader=self._replicas.hint(entry.id))
        session = fetch.session
        if session is not None:
            session.watch(replica)
        error = self._refusal(replica, entry, fetch, reading.status)
        if error is not ErrorCode.NONE:
            if session is not None:
                replica.machine.left(fetch.replica_id, session.attendance)
            return FetchResult(entry.id, error, leader=replica.leader_hint)
        machine, log = replica.machine, replica.log
        result = FetchResult(entry.id, ErrorCode.NONE, log_start_offset=machine.start_offset)
        try:
            if entry.last_fetched_epoch >= 0:
                result.diverging = _divergence(machine, log, entry)
            if result.diverging is None:
                self._read_agreed(reading, replica, entry, result)
        except ApiError as refused:
            result.error = refused.code
            if refused.code is ErrorCode.OFFSET_OUT_OF_RANGE and fetch.is_follower:
                most = reading.take_producers()
                result.producers = producers_below(
                    log.producers, result.log_start_offset, entry.producers_after, most
                )
        except CorruptLogError as corrupt:
            self._on_corrupt(replica, log, corrupt)
            result.error = ErrorCode.KAFKA_STORAGE_ERROR
        if session is not None:
            self._judge_rest(replica, entry, session, result)
        if replica.traced is not None and fetch.is_follower:
            result.traced = traced_from(replica, entry.fetch_offset)
        result.high_watermark = machine.high_watermark
        if not fetch.is_follower:
            result.last_stable_offset = machine.last_stable_offset
        return result

    def _read_agreed(
        self, reading: Reading, replica: Replica, entry: FetchEntry, result: FetchResult
    ) -> None:
        """Read for a reader whose history agrees with this log's. Raises ApiError,
        CorruptLogError."""
        fetch, machine, log = reading.fetch, replica.machine, replica.log
        limit = machine.readable_end(
            entry.fetch_offset,
            is_follower=fetch.is_follower,
            read_committed=fetch.read_committed,
        )
        if fetch.is_follower:
            if 0 <= entry.last_fetched_epoch < log.epochs.latest_epoch:
                _check_history(machine, log, entry, fetch)
            if entry.fetch_offset < log.dropped_end:
                _check_tombstones(machine, log, entry, fetch, result)
        if reading.now_ms is not None:
            self._acknowledge(reading, replica, entry, reading.now_ms)
        if fetch.nearby:
            # A consumer is sent to a replica that is nearer to it, at once and without records.
            nearer = machine.preferred_replica(entry.fetch_offset, fetch.nearby)
            result.preferred_replica = nearer
            reading.urgent = reading.urgent or nearer >= 0
            if nearer >= 0:
                return
        if entry.fetch_offset < limit:
            self._read_log(reading, replica, entry, limit, result)
        elif (
            # A consumer that has waited in vain is refused by a leader without a lease.
            fetch.is_expired
            and not fetch.is_follower
            and machine.is_leader
            and not self._lease_valid()
        ):
            result.error = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _acknowledge(
        self, reading: Reading, replica: Replica, entry: FetchEntry, now_ms: float
    ) -> None:
        """All below the position is on the follower's disk."""
        fetch = reading.fetch
        attendance = fetch.session.attendance if fetch.session is not None else None
        effects = replica.machine.fetched(
            fetch.replica_id,
            entry.fetch_offset,
            reading.status,
            now_ms,
            attendance,
            start_offset=max(0, entry.log_start_offset),
            time_ms=self._replicas.clock.time_ms(),
        )
        if entry.fetch_offset < replica.log.end_offset:
            self._replicas.unsettled[replica.id] = None
        if effects:
            self._replicas.carry_out(replica, effects)

    def _judge_rest(
        self, replica: Replica, entry: FetchEntry, session: FetchSession, result: FetchResult
    ) -> None:
        """Whether the session need not look at the partition before something changes."""
        machine = replica.machine
        if result.error is not ErrorCode.NONE or result.diverging is not None:
            machine.left(session.replica_id, session.attendance)
        else:
            result.at_rest = (
                not result.records
                and entry.fetch_offset == machine.log.end_offset
                and machine.rests(session.replica_id, session.attendance)
            )
            if result.awaits_quota:
                session.hold(entry.id)

    def _read_log(
        self,
        reading: Reading,
        replica: Replica,
        entry: FetchEntry,
        limit_offset: int,
        result: FetchResult,
    ) -> None:
        """Within the bytes left, but the first batch of the whole answer may be of any size.

        So may be the first one that uses up the quota of throttled replicas: it is paid off later.
        """
        nothing_yet = reading.read_bytes == 0
        max_bytes = min(entry.max_bytes, reading.left_bytes)
        if max_bytes <= 0 and not nothing_yet:
            return
        fetch = reading.fetch
        is_throttled = fetch.is_follower and replica.throttled_as_leader
        if is_throttled and is_held_back(replica, fetch.replica_id):
            available = self._throttle.available_bytes() - reading.throttled_bytes
            if available <= 0:
                result.awaits_quota = True
                return
            max_bytes, nothing_yet = min(max_bytes, available), True
        log = replica.log
        found = self._found(log, entry.fetch_offset, max_bytes, limit_offset, nothing_yet)
        if found.cold is not None:
            if reading.cold is None:
                reading.cold = (replica, log, found.cold)
            return
        size = len(found.data)
        if size:
            if fetch.read_committed and not fetch.is_follower and log.transactions.has_aborted:
                aborted = log.transactions.aborted(entry.fetch_offset, found.next_offset)
                if isinstance(aborted, ColdRange):
                    if reading.cold is None:
                        reading.cold = (replica, log, aborted)
                    return
                result.aborted = aborted
            result.records.append(found.data)
            reading.read_bytes += size
            reading.left_bytes -= size
            if is_throttled:
                reading.throttled_bytes += size

    def _found(
        self,
        log: PartitionLog,
        offset: int,
        max_bytes: int,
        limit_offset: int,
        min_one_batch: bool,
    ) -> ReadResult:
        """As ``PartitionLog.read``, or what the same read has found in this round."""
        found_in_round = self.found_in_round
        if found_in_round is None:
            return log.read(
                offset, max_bytes, limit_offset=limit_offset, min_one_batch=min_one_batch
            )
        key = log, offset, max_bytes, limit_offset, min_one_batch
        found = found_in_round.get(key)
        if found is None:
            found = found_in_round[key] = log.read(
                offset, max_bytes, limit_offset=limit_offset, min_one_batch=min_one_batch
            )
        return found


def _check_history(
    machine: PartitionMachine, log: PartitionLog, entry: FetchEntry, fetch: WaitingFetch
) -> None:
    """For a follower whose last epoch is earlier than this log's. Raises ApiError
    OFFSET_OUT_OF_RANGE if it ends at this log's start in an epoch that has no batch left here,
    unless it may lead. Nothing shows whether its records were committed. So it deletes them and
    begins anew at the start. Otherwise, after a crash that forgets its own start, it could show
    records that were never committed.

    The records of a replica that may lead are committed, since a log begins at most at its high
    watermark. So it keeps them, and with them the producers that only they know. Example: a leader
    of epoch 5 has written nothing yet, and retention deletes all records. Every replica in sync
    ends at its start in epoch 4.
    """
    if entry.last_fetched_epoch < log.epochs.start_epoch and not machine.may_lead(fetch.replica_id):
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{entry.id}: nothing is left of epoch {entry.last_fetched_epoch}",
        )


def _check_tombstones(
    machine: PartitionMachine,
    log: PartitionLog,
    entry: FetchEntry,
    fetch: WaitingFetch,
    result: FetchResult,
) -> None:
    """For a follower that ends below compacted tombstones. Raises ApiError OFFSET_OUT_OF_RANGE if
    it was away for longer than tombstones are kept. It may have records of keys that were deleted
    meanwhile, so it begins anew."""
    result.dropped_end = log.dropped_end
    if machine.must_begin_anew(
        fetch.replica_id,
        fetch.replica_epoch,
        entry.fetch_offset,
        max(0, entry.log_start_offset),
        log.dropped_end,
    ):
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{entry.id}: tombstones from offset {entry.fetch_offset} on are compacted away",
        )


def _divergence(machine: PartitionMachine, log: PartitionLog, entry: FetchEntry) -> EpochEnd | None:
    """The divergence of the history of a reader that names its last epoch from this log's
    (KIP-595); None: it agrees, or this log cannot show whether it does.

    Raises ApiError OFFSET_OUT_OF_RANGE for an epoch that is later than all that this log knows.
    """
    if entry.last_fetched_epoch == log.epochs.latest_epoch and entry.fetch_offset <= log.end_offset:
        return None
    if not machine.knows_history(entry.fetch_offset):
        return None
    end = log.end_offset_for_epoch(entry.last_fetched_epoch)
    if end.epoch < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {entry.last_fetched_epoch}")
    if end.epoch < entry.last_fetched_epoch or end.end_offset < entry.fetch_offset:
        return EpochEnd(end.epoch, end.end_offset)
    return None
