"""The fetch function of followers and consumers: read, or wait, and answer.

A waiting fetch stands in a list of each of its partitions and in the deadline wheel; it costs no
task. Woken fetches are looked at together once the events at hand are handled, so one answer
carries the records of several produce requests. A consumer's fetch that waits for more bytes counts
them by their positions in the log; bytes are read only for the answer.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Callable

from broker.partition.effects import BrokerStatus
from broker.replication.deadlines import Deadline, DeadlineWheel
from broker.replication.fetch_query import FetchQuery
from broker.replication.fetch_session import FetchSession
from broker.replication.leader_throttle import LeaderThrottle, is_held_back
from broker.replication.replica import Replica, ReplicaState, ReportCorrupt
from broker.replication.replicas import Replicas
from broker.replication.types import Cancel, EpochEnd, FetchEntry, FetchResult
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from storage.errors import CorruptLogError
from storage.log import PartitionLog
from storage.segment import ColdRange

logger = logging.getLogger(__name__)

TURN_BYTES = 256 * 1024
"""Once consumers have read so many bytes, in one turn of the event loop or in several, further
fetches of consumers wait for the next turn, whether they have just come, are due or were woken. So
requests of producers and followers come between, however busy the consumers are."""

_CONSUMER = BrokerStatus()
"""What the metadata say of a reader that is no broker."""

Done = Callable[[list[FetchResult]], None]


class _WaitingFetch:
    """A fetch between its arrival and its answer."""

    __slots__ = (
        "counted",
        "counted_bytes",
        "deadline",
        "done",
        "has_begun",
        "is_due",
        "is_expired",
        "is_follower",
        "is_queued",
        "min_bytes",
        "parked",
        "query",
        "stirred",
        "unread",
        "warming",
        "woken",
    )

    def __init__(self, query: FetchQuery, done: Done) -> None:
        self.query = query
        self.is_follower = query.replica_id >= 0
        # The bytes to wait for: never more than the answer may hold.
        self.min_bytes = min(query.min_bytes, query.max_bytes)
        # None once answered or withdrawn.
        self.done: Done | None = done
        # The replicas whose lists it stands in.
        self.parked: list[Replica] = []
        self.deadline: Deadline | None = None
        # Of a consumer's: whether it had its first look, whether its time is over, and whether it
        # is to be looked at in a later turn of the loop.
        self.has_begun = False
        self.is_expired = False
        self.is_queued = False
        self.woken = False
        self.warming: _Warming | None = None
        # Partitions of which a read failed: that is their answer.
        self.unread: set[PartitionId] = set()
        # Of a consumer's: how much each partition has to give, as counted last, and the entries
        # to be counted anew; once it is due, it is read and answered.
        self.counted: dict[PartitionId, int] = {}
        self.counted_bytes = 0  # of all of them together
        self.stirred: dict[PartitionId, FetchEntry] = {}
        self.is_due = False


class _Warming:
    """A range of a log on its way into memory, and the fetches that wait for it.

    It goes on even if all of them have been answered: a device takes longer over a bad sector than
    a fetch lasts, and the error must not be lost.
    """

    __slots__ = ("task", "waiting")

    def __init__(self) -> None:
        self.task: asyncio.Task[None] | None = None
        self.waiting: dict[_WaitingFetch, None] = {}


class _Reading:
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


class FetchRequests:
    """Every read of a client or follower goes through here, whatever plane it came on."""

    def __init__(
        self,
        replicas: Replicas,
        deadlines: DeadlineWheel,
        on_corrupt: ReportCorrupt,
        answer_share: Callable[[], int],
        throttle: LeaderThrottle,
    ) -> None:
        """``answer_share``: how many bytes the next answer to a consumer may take.

        It gets its first batch in any case, so that every consumer makes progress.
        """
        self._answer_share = answer_share
        self._throttle = throttle
        self._replicas = replicas
        self._deadlines = deadlines
        self._on_corrupt = on_corrupt
        self._woken: list[_WaitingFetch] = []
        # All that wait, in order of arrival.
        self._waiting: dict[_WaitingFetch, None] = {}
        # Of those, the one of each follower without a session.
        self._of_follower: dict[int, _WaitingFetch] = {}
        # What consumers may still read before a turn of the loop ends; the fetches that were to be
        # looked at when it was used up, all in `_waiting` too.
        self._turn_bytes = TURN_BYTES
        self._queued: deque[_WaitingFetch] = deque()
        self._warmings: dict[ColdRange, _Warming] = {}

    def fetch(self, query: FetchQuery, done: Done) -> Cancel:
        waiting = _WaitingFetch(query, done)
        if waiting.is_follower:
            # A follower sends another behind a waiting one when it has something new to say. In a
            # session it was answered before what is new was taken up.
            before = self._of_follower.get(query.replica_id)
            if before is not None and query.session is None:
                self._answer_now(before)
            self._begin(waiting)
        elif self._turn_bytes > 0:
            self._begin(waiting)
        else:
            self._waiting[waiting] = None
            self._queue(waiting)
        return lambda: self._leave(waiting)

    def _begin(self, waiting: _WaitingFetch) -> None:
        """The first look: answer, or wait."""
        query = waiting.query
        waiting.has_begun = True
        is_enough = True
        if not waiting.is_follower and query.max_wait_ms > 0 and waiting.min_bytes > 1:
            waiting.stirred = {entry.id: entry for entry in query.entries}
            is_enough = self._count(waiting)
        if is_enough and self._finish(waiting, self._read(waiting, counts=waiting.is_follower)):
            return
        self._waiting[waiting] = None
        if waiting.is_follower and query.session is None:
            self._of_follower[query.replica_id] = waiting
        waiting.deadline = self._deadlines.add(
            query.max_wait_ms, lambda: self._deadline_passed(waiting)
        )
        self._park(waiting)

    # ---------------------------------------------------------------- turns of the event loop

    def _use_turn(self, read_bytes: int) -> None:
        was_left = self._turn_bytes > 0
        self._turn_bytes -= read_bytes
        if was_left and self._turn_bytes <= 0:
            asyncio.get_running_loop().call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._turn_bytes = TURN_BYTES
        while self._queued and self._turn_bytes > 0:
            waiting = self._queued.popleft()
            waiting.is_queued = False
            self._look(waiting)

    def _queue(self, waiting: _WaitingFetch) -> None:
        if not waiting.is_queued:
            waiting.is_queued = True
            self._queued.append(waiting)

    def _look_in_turn(self, waiting: _WaitingFetch) -> None:
        """Many consumers may be due at one moment, or woken by one append. They are read for as
        those that have just come: a turn's bytes in each turn. Followers do not wait."""
        if waiting.is_follower or self._turn_bytes > 0:
            self._look(waiting)
        else:
            self._queue(waiting)

    def _look(self, waiting: _WaitingFetch) -> None:
        if waiting.done is None:
            return
        if waiting.is_expired:
            self._answer_now(waiting)
        elif waiting.has_begun:
            self._retry(waiting)
        else:
            self._begin(waiting)

    def stop(self) -> None:
        """Answer every waiting fetch with the records there are."""
        for waiting in list(self._waiting):
            self._answer_now(waiting)
        for warming in self._warmings.values():
            if warming.task is not None:
                warming.task.cancel()

    # --------------------------------------------------------------------------- waiting

    def _park(self, waiting: _WaitingFetch) -> None:
        session = waiting.query.session
        if session is not None:
            session.wake = functools.partial(self._wake, waiting)
            session.answer_waiting = functools.partial(self._answer_now, waiting)
            if session.was_woken:
                self._wake(waiting)
            return
        is_follower = waiting.is_follower
        for entry in waiting.query.entries:
            replica = self._replicas.by_id.get(entry.id)
            if replica is not None:
                parked = replica.followers if is_follower else replica.consumers
                parked[waiting] = functools.partial(self._wake, waiting, entry)
                waiting.parked.append(replica)

    def _wake(self, waiting: _WaitingFetch, entry: FetchEntry | None = None) -> None:
        if entry is not None:
            waiting.stirred[entry.id] = entry
        if waiting.woken or waiting.warming is not None:
            return
        waiting.woken = True
        if not self._woken:
            asyncio.get_running_loop().call_soon(self._retry_woken)
        self._woken.append(waiting)

    def _retry_woken(self) -> None:
        woken, self._woken = self._woken, []
        for waiting in woken:
            waiting.woken = False
            self._look_in_turn(waiting)

    def _retry(self, waiting: _WaitingFetch) -> None:
        if not waiting.is_follower and not self._count(waiting):
            return
        self._finish(waiting, self._read(waiting))

    def _count(self, waiting: _WaitingFetch) -> bool:
        """Whether to answer a consumer's fetch: there are enough bytes, or there is news.

        This looks only at partitions that were stirred since the last time, and reads nothing.
        """
        stirred, waiting.stirred = waiting.stirred, {}
        for entry in stirred.values():
            if waiting.is_due:
                break
            available = self._available_bytes(waiting, entry)
            if available is None:
                waiting.is_due = True
            else:
                size = min(available, entry.max_bytes)
                waiting.counted_bytes += size - waiting.counted.get(entry.id, 0)
                waiting.counted[entry.id] = size
        if not waiting.is_due:
            waiting.is_due = waiting.counted_bytes >= waiting.min_bytes
        return waiting.is_due

    def _available_bytes(self, waiting: _WaitingFetch, entry: FetchEntry) -> int | None:
        """The bytes that a partition has for the reader; None if a read has to tell."""
        replica = self._replicas.by_id.get(entry.id)
        if replica is None or entry.id in waiting.unread:
            return None
        if self._refusal(replica, entry, waiting.query, _CONSUMER) is not ErrorCode.NONE:
            return None
        log = replica.log
        try:
            if entry.last_fetched_epoch >= 0 and _divergence(log, entry) is not None:
                return None
            limit = replica.machine.readable_end(entry.fetch_offset)
            return log.readable_bytes(entry.fetch_offset, limit)
        except (ApiError, CorruptLogError):
            return None  # and reading meets it again

    def _deadline_passed(self, waiting: _WaitingFetch) -> None:
        waiting.is_expired = True
        self._look_in_turn(waiting)

    def _answer_now(self, waiting: _WaitingFetch) -> None:
        """Answer with whatever is there; what is still being warmed comes with the next fetch."""
        if waiting.done is not None:
            self._answer(waiting, self._read(waiting))

    def _leave(self, waiting: _WaitingFetch) -> None:
        waiting.done = None
        if waiting not in self._waiting:
            return  # it was answered at the first look, or has left
        del self._waiting[waiting]
        if self._of_follower.get(waiting.query.replica_id) is waiting:
            del self._of_follower[waiting.query.replica_id]
        session = waiting.query.session
        if session is not None:
            session.wake = session.answer_waiting = None
        for replica in waiting.parked:
            replica.followers.pop(waiting, None)
            replica.consumers.pop(waiting, None)
        waiting.parked.clear()
        if waiting.deadline is not None:
            waiting.deadline.cancel()
        if waiting.warming is not None:
            del waiting.warming.waiting[waiting]
            waiting.warming = None

    def _finish(self, waiting: _WaitingFetch, reading: _Reading) -> bool:
        """Answer if there is enough or reason to; else it goes on waiting."""
        query = waiting.query
        if not reading.urgent and reading.read_bytes < waiting.min_bytes:
            if reading.cold is not None and not reading.read_bytes:
                waiting.is_due = not waiting.is_follower
                self._warm(waiting, *reading.cold)
                return False
            if query.max_wait_ms > 0 and not waiting.is_due:
                return False
        self._answer(waiting, reading)
        return True

    def _answer(self, waiting: _WaitingFetch, reading: _Reading) -> None:
        done = waiting.done
        if done is None:
            return
        self._leave(waiting)
        counters = self._replicas.counters
        if waiting.is_follower:
            counters.replication_bytes_out += reading.read_bytes
            if reading.throttled_bytes:
                self._throttle.sent(reading.throttled_bytes)
        else:
            counters.bytes_out += reading.read_bytes
        done(reading.results)

    # ------------------------------------------------------------------------ cold reads

    def _warm(
        self, waiting: _WaitingFetch, replica: Replica, log: PartitionLog, cold: ColdRange
    ) -> None:
        if waiting.warming is not None:
            return
        warming = self._warmings.get(cold)
        if warming is None:
            warming = self._warmings[cold] = _Warming()
            warming.task = asyncio.get_running_loop().create_task(
                self._warm_and_retry(warming, replica, log, cold), name="cold-read"
            )
        waiting.warming = warming
        warming.waiting[waiting] = None

    async def _warm_and_retry(
        self, warming: _Warming, replica: Replica, log: PartitionLog, cold: ColdRange
    ) -> None:
        failed = False
        try:
            await log.warm(cold)
        except (CorruptLogError, ApiError) as error:
            # What cannot be warmed stays cold: to read again would be to wait for ever.
            failed = True
            logger.warning("%r: warming %s: %s", replica, cold.path, error)
            if isinstance(error, CorruptLogError):
                self._on_corrupt(replica, log, error)
        finally:
            del self._warmings[cold]
        for waiting in list(warming.waiting):
            waiting.warming = None
            if failed:
                waiting.unread.add(replica.id)
            self._look_in_turn(waiting)

    def _refusal(
        self, replica: Replica, entry: FetchEntry, query: FetchQuery, status: BrokerStatus
    ) -> ErrorCode:
        machine = replica.machine
        if query.replica_id >= 0:
            error = machine.check_follower(
                query.replica_id, query.replica_epoch, entry.current_leader_epoch, status
            )
        else:
            error = machine.fence(entry.current_leader_epoch)
        if error is ErrorCode.NONE and self._replicas.deposed():
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if error is ErrorCode.NONE and replica.state is not ReplicaState.ONLINE:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return error

    # --------------------------------------------------------------------------- reading

    def _read(self, waiting: _WaitingFetch, *, counts: bool = False) -> _Reading:
        """``counts``: a follower's fetch has just come, and its positions acknowledge."""
        query, session = waiting.query, waiting.query.session
        if waiting.is_follower:
            reading = _Reading(query.max_bytes)
            status = self._replicas.status(query.replica_id)
        else:
            reading = _Reading(min(query.max_bytes, self._answer_share()))
            status = _CONSUMER
        now_ms = self._replicas.now_ms() if counts else None
        results = reading.results
        if session is not None and counts:
            session.begin_look(query.replica_epoch, status)
        for entry in query.entries if session is None else session.to_look_at():
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
        if not waiting.is_follower:
            self._use_turn(reading.read_bytes)
        return reading

    def _has_quota(self, reading: _Reading) -> bool:
        """Whether this answer may hold more of throttled replicas."""
        return reading.left_bytes > 0 and (
            self._throttle.available_bytes() > reading.throttled_bytes
        )

    def _read_entry(
        self,
        waiting: _WaitingFetch,
        entry: FetchEntry,
        status: BrokerStatus,
        reading: _Reading,
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
        error = self._refusal(replica, entry, query, status)
        if error is ErrorCode.NONE and entry.id in waiting.unread:
            error = ErrorCode.KAFKA_STORAGE_ERROR
        if error is not ErrorCode.NONE:
            if session is not None:
                replica.machine.left(query.replica_id, session.attendance)
            return FetchResult(entry.id, error, leader=replica.leader_hint)
        machine, log = replica.machine, replica.log
        is_follower = query.replica_id >= 0
        result = FetchResult(entry.id, ErrorCode.NONE, log_start_offset=machine.start_offset)
        try:
            if entry.last_fetched_epoch >= 0:
                result.diverging = _divergence(log, entry)
            if result.diverging is None:
                limit = machine.readable_end(entry.fetch_offset, is_follower=is_follower)
                if is_follower:
                    _check_history(log, entry)
                if now_ms is not None:
                    self._acknowledge(replica, entry, query, status, now_ms)
                if entry.fetch_offset < limit:
                    self._read_log(replica, entry, limit, result, reading, query.replica_id)
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
        reading: _Reading,
        follower_id: int,
    ) -> None:
        """Within the bytes left, but the first batch of the whole answer may be of any size.

        So may be the first one that uses up the quota of throttled replicas: it is paid off later.
        """
        nothing_yet = reading.read_bytes == 0
        max_bytes = min(entry.max_bytes, reading.left_bytes)
        if max_bytes <= 0 and not nothing_yet:
            return
        is_throttled = follower_id >= 0 and replica.throttled_as_leader
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
            result.records.append(found.data)
            reading.read_bytes += size
            reading.left_bytes -= size
            if is_throttled:
                reading.throttled_bytes += size


def _check_history(log: PartitionLog, entry: FetchEntry) -> None:
    """Raises ApiError OFFSET_OUT_OF_RANGE for a follower that ends at this log's start in an epoch
    of which nothing is left here: nobody can tell whether its records were committed. It deletes
    them and begins anew at the start. Otherwise, after a crash that forgets its own start, it could
    show records that were never committed.
    """
    if 0 <= entry.last_fetched_epoch < log.epochs.start_epoch:
        raise ApiError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"{entry.id}: nothing is left of epoch {entry.last_fetched_epoch}",
        )


def _divergence(log: PartitionLog, entry: FetchEntry) -> EpochEnd | None:
    """The divergence of the history of a reader that names its last epoch from this log's
    (KIP-595); None: it agrees.

    Raises ApiError OFFSET_OUT_OF_RANGE where this log no longer knows of such old epochs.
    """
    if entry.last_fetched_epoch == log.latest_epoch and entry.fetch_offset <= log.end_offset:
        return None
    end = log.end_offset_for_epoch(entry.last_fetched_epoch)
    if end.epoch < 0:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {entry.last_fetched_epoch}")
    if end.epoch < entry.last_fetched_epoch or end.end_offset < entry.fetch_offset:
        return EpochEnd(end.epoch, end.end_offset)
    return None
