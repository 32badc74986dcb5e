"""The reading of one fetch: from the logs that it names, within its bytes, and what was found.

The reader neither waits nor answers. What is not in memory is left to the caller
(``Reading.cold``).
"""

from __future__ import annotations

from collections.abc import Callable

from broker.partition.effects import BrokerStatus
from broker.partition.machine import PartitionMachine
from broker.replication.fetch_query import FetchQuery
from broker.replication.fetch_session import FetchSession
from broker.replication.fetch_waiting import WaitingFetch
from broker.replication.leader_throttle import LeaderThrottle, is_held_back
from broker.replication.replica import Replica, ReplicaState, ReportCorrupt
from broker.replication.replicas import Replicas
from broker.replication.types import EpochEnd, FetchEntry, FetchResult
from stele.errors import ApiError, ErrorCode
from storage.cold_range import ColdRange
from storage.errors import CorruptLogError
from storage.log import PartitionLog

_CONSUMER = BrokerStatus()
"""What the metadata say of a reader that is no broker."""


class Reading:
    """One pass over the entries of a fetch."""

    __slots__ = ("cold", "left_bytes", "read_bytes", "results", "throttled_bytes", "urgent")

    def __init__(self, max_bytes: int) -> None:
        self.results: list[FetchResult] = []
        self.left_bytes = max_bytes
        self.read_bytes = 0
        self.throttled_bytes = 0  # of those, what counts against the leader's quota
        # There is an error or a divergence, of which the client must hear at once.
        self.urgent = False
        # What to bring into memory first, for the first entry that needs it.
        self.cold: tuple[Replica, PartitionLog, ColdRange] | None = None


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

    def available_bytes(self, waiting: WaitingFetch, entry: FetchEntry) -> int | None:
        """The bytes that a partition has for the reader; None if a read has to tell."""
        replica = self._replicas.by_id.get(entry.id)
        if replica is None:
            return None
        if self._refusal(replica, entry, waiting, _CONSUMER) is not ErrorCode.NONE:
            return None
        log = replica.log
        try:
            machine = replica.machine
            nearby = waiting.query.nearby
            if nearby and machine.preferred_replica(entry.fetch_offset, nearby) >= 0:
                return None
            if (
                entry.last_fetched_epoch >= 0
                and machine.knows_history(entry.fetch_offset)
                and _divergence(log, entry) is not None
            ):
                return None
            limit = machine.readable_end(
                entry.fetch_offset, read_committed=waiting.query.read_committed
            )
            return log.readable_bytes(entry.fetch_offset, limit)
        except (ApiError, CorruptLogError):
            return None  # and reading meets it again

    def _refusal(
        self, replica: Replica, entry: FetchEntry, waiting: WaitingFetch, status: BrokerStatus
    ) -> ErrorCode:
        machine, query = replica.machine, waiting.query
        if query.replica_id >= 0:
            error = machine.check_follower(
                query.replica_id, query.replica_epoch, entry.current_leader_epoch, status
            )
        else:
            error = machine.fence(entry.current_leader_epoch, any_replica=query.any_replica)
        if error is ErrorCode.NONE and self._replicas.deposed():
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error is ErrorCode.NONE and (
            replica.state is not ReplicaState.ONLINE or entry.id in waiting.unread
        ):
            return ErrorCode.KAFKA_STORAGE_ERROR
        return error

    def read(self, waiting: WaitingFetch, *, counts: bool = False) -> Reading:
        """``counts``: a follower's fetch has just come, and its positions acknowledge."""
        query, session = waiting.query, waiting.query.session
        if waiting.is_follower:
            reading = Reading(query.max_bytes)
            status = self._replicas.status(query.replica_id)
        else:
            reading = Reading(min(query.max_bytes, self._answer_share()))
            status = _CONSUMER
        now_ms = self._replicas.now_ms() if counts else None
        results = reading.results
        if session is not None and counts:
            session.begin_look(query.replica_epoch, status)
        now = self._replicas.now_ms
        for entry in query.entries if session is None else session.to_look_at(now):
            results.append(self._read_entry(waiting, entry, status, reading, now_ms))
        if session is not None:
            while session.held and reading.cold is None and self._has_quota(reading):
                entry = session.next_held()
                results.append(self._read_entry(waiting, entry, status, reading, now_ms))
            if session.held:
                self._throttle.await_quota(session)
            if now_ms is not None:
                session.end_look(now_ms)
        for result in results:
            if result.error is not ErrorCode.NONE or result.diverging is not None:
                reading.urgent = True
                break
        if session is not None and self._replicas.tells_high_watermarks_at_once:
            reading.urgent = reading.urgent or session.has_new_high_watermark(results)
        return reading

    def _has_quota(self, reading: Reading) -> bool:
        """Whether this answer may hold more of throttled replicas."""
        return reading.left_bytes > 0 and (
            self._throttle.available_bytes() > reading.throttled_bytes
        )

    def _read_entry(
        self,
        waiting: WaitingFetch,
        entry: FetchEntry,
        status: BrokerStatus,
        reading: Reading,
        now_ms: float | None,
    ) -> FetchResult:
        query = waiting.query
        replica = self._replicas.by_id.get(entry.id)
        if replica is None:
            error = self._replicas.refusal(entry.id)
            return FetchResult(entry.id, error, leader=self._replicas.hint(entry.id))
        session = query.session
        if session is not None:
            session.watch(replica)
        error = self._refusal(replica, entry, waiting, status)
        if error is not ErrorCode.NONE:
            if session is not None:
                replica.machine.left(query.replica_id, session.attendance)
            return FetchResult(entry.id, error, leader=replica.leader_hint)
        machine, log = replica.machine, replica.log
        is_follower = query.replica_id >= 0
        result = FetchResult(entry.id, ErrorCode.NONE, log_start_offset=machine.start_offset)
        try:
            if entry.last_fetched_epoch >= 0 and machine.knows_history(entry.fetch_offset):
                result.diverging = _divergence(log, entry)
            if result.diverging is None:
                limit = machine.readable_end(
                    entry.fetch_offset,
                    is_follower=is_follower,
                    read_committed=query.read_committed,
                )
                if is_follower:
                    _check_history(machine, log, entry, query)
                    _check_tombstones(machine, log, entry, query, result)
                if now_ms is not None:
                    self._acknowledge(replica, entry, query, status, now_ms)
                if query.nearby:
                    self._name_nearer(machine, entry, query, result, reading)
                if result.preferred_replica < 0:
                    self._read_below(limit, waiting, replica, entry, result, reading)
        except ApiError as refused:
            result.error = refused.code
        except CorruptLogError as corrupt:
            self._on_corrupt(replica, log, corrupt)
            result.error = ErrorCode.KAFKA_STORAGE_ERROR
        if session is not None:
            self._judge_rest(replica, entry, session, result)
        result.high_watermark = machine.high_watermark
        result.last_stable_offset = machine.last_stable_offset
        return result

    def _read_below(
        self,
        limit_offset: int,
        waiting: WaitingFetch,
        replica: Replica,
        entry: FetchEntry,
        result: FetchResult,
        reading: Reading,
    ) -> None:
        """The records up to the limit. A consumer that has waited in vain for there to be any is
        refused by a leader without a lease."""
        if entry.fetch_offset < limit_offset:
            self._read_log(replica, entry, limit_offset, result, reading, waiting.query)
        elif (
            waiting.is_expired
            and not waiting.is_follower
            and replica.machine.is_leader
            and not self._lease_valid()
        ):
            result.error = ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _name_nearer(
        self,
        machine: PartitionMachine,
        entry: FetchEntry,
        query: FetchQuery,
        result: FetchResult,
        reading: Reading,
    ) -> None:
        """Send a consumer to a replica that is nearer to it, at once and without records."""
        result.preferred_replica = machine.preferred_replica(entry.fetch_offset, query.nearby)
        if result.preferred_replica >= 0:
            reading.urgent = True

    def _acknowledge(
        self,
        replica: Replica,
        entry: FetchEntry,
        query: FetchQuery,
        status: BrokerStatus,
        now_ms: float,
    ) -> None:
        """All below the position is on the follower's disk."""
        attendance = query.session.attendance if query.session is not None else None
        effects = replica.machine.fetched(
            query.replica_id,
            entry.fetch_offset,
            status,
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
        replica: Replica,
        entry: FetchEntry,
        limit_offset: int,
        result: FetchResult,
        reading: Reading,
        query: FetchQuery,
    ) -> None:
        """Within the bytes left, but the first batch of the whole answer may be of any size.

        So may be the first one that uses up the quota of throttled replicas: it is paid off later.
        """
        nothing_yet = reading.read_bytes == 0
        max_bytes = min(entry.max_bytes, reading.left_bytes)
        if max_bytes <= 0 and not nothing_yet:
            return
        follower_id = query.replica_id
        is_follower = follower_id >= 0
        is_throttled = is_follower and replica.throttled_as_leader
        if is_throttled and is_held_back(replica, follower_id):
            available = self._throttle.available_bytes() - reading.throttled_bytes
            if available <= 0:
                result.awaits_quota = True
                return
            max_bytes, nothing_yet = min(max_bytes, available), True
        log = replica.log
        found = log.read(
            entry.fetch_offset, max_bytes, limit_offset=limit_offset, min_one_batch=nothing_yet
        )
        if found.cold is not None:
            if reading.cold is None:
                reading.cold = (replica, log, found.cold)
            return
        size = len(found.data)
        if size:
            if query.read_committed and not is_follower and log.transactions.has_aborted:
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


def _check_history(
    machine: PartitionMachine, log: PartitionLog, entry: FetchEntry, query: FetchQuery
) -> None:
    """Raises ApiError OFFSET_OUT_OF_RANGE for a follower that ends at this log's start in an epoch
    of which nothing is left here: nobody can tell whether its records were committed. It deletes
    them and begins anew at the start. Otherwise, after a crash that forgets its own start, it could
    show records that were never committed.

    The records of a replica that may lead are committed, since a log begins at most at its high
    watermark. So it keeps them, and with them the producers that only they tell of. Example: a
    leader of epoch 5 has written nothing yet, and retention deletes all records. Every replica in
    sync ends at its start in epoch 4.
    """
    if 0 <= entry.last_fetched_epoch < log.epochs.start_epoch and not machine.may_lead(
        query.replica_id
    ):
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{entry.id}: nothing is left of epoch {entry.last_fetched_epoch}",
        )


def _check_tombstones(
    machine: PartitionMachine,
    log: PartitionLog,
    entry: FetchEntry,
    query: FetchQuery,
    result: FetchResult,
) -> None:
    """Raises ApiError OFFSET_OUT_OF_RANGE for a follower that was away for longer than tombstones
    are kept. A key that was deleted meanwhile would come back with it, so it begins anew."""
    if entry.fetch_offset >= log.dropped_end:
        return
    result.dropped_end = log.dropped_end
    if machine.must_begin_anew(
        query.replica_id,
        query.replica_epoch,
        entry.fetch_offset,
        max(0, entry.log_start_offset),
        log.dropped_end,
    ):
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{entry.id}: tombstones from offset {entry.fetch_offset} on are compacted away",
        )


def _divergence(log: PartitionLog, entry: FetchEntry) -> EpochEnd | None:
    """The divergence of the history of a reader that names its last epoch from this log's
    (KIP-595); None: it agrees.

    Raises ApiError OFFSET_OUT_OF_RANGE where this log no longer knows of such old epochs.
    """
    if entry.last_fetched_epoch == log.epochs.latest_epoch and entry.fetch_offset <= log.end_offset:
        return None
    end = log.end_offset_for_epoch(entry.last_fetched_epoch)
    if end.epoch < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {entry.last_fetched_epoch}")
    if end.epoch < entry.last_fetched_epoch or end.end_offset < entry.fetch_offset:
        return EpochEnd(end.epoch, end.end_offset)
    return None
