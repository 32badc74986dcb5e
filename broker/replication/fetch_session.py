"""Incremental fetch sessions, server side (KIP-227). Only brokers get one.

Within a session a Fetch and its answer name only partitions that changed. The leader looks at no
others: a session knows which of its partitions were stirred, by the follower's requests or by
events here. So the cost of a request goes by what changed, not by what the session holds. Other
clients get no session, because consumers' sessions would take memory that nobody gives back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from broker.partition.effects import UNKNOWN_BROKER_EPOCH, BrokerStatus
from broker.partition.progress import NEVER, Attendance
from broker.replication.replica import Replica
from broker.replication.types import FetchEntry, FetchResult
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.world import Rng

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1

ADVANCES_AFTER_MS: Final = 100
"""The least time between two answers with high watermarks that rose without new records. The high
watermark of a partition with new records comes with these."""

_MAX_EPOCH = 2**31 - 1


def next_epoch(epoch: int) -> int:
    """The session epoch after ``epoch``: 0 only ever opens a session."""
    return 1 if epoch >= _MAX_EPOCH else epoch + 1


class _Sent(NamedTuple):
    """The offsets that a follower was last told of a partition."""

    high_watermark: int
    log_start_offset: int


class FetchSession:
    """One follower's session."""

    __slots__ = (
        "_events",
        "_looked_after",
        "_replicas",
        "_told_advances_ms",
        "_who",
        "_woken_by",
        "advanced",
        "answer_waiting",
        "attendance",
        "entries",
        "epoch",
        "held",
        "replica_id",
        "sent",
        "session_id",
        "stirred",
        "wake",
    )

    def __init__(self, session_id: int, replica_id: int) -> None:
        self.session_id = session_id
        self.replica_id = replica_id
        self.epoch = next_epoch(INITIAL_EPOCH)  # that the next request must carry
        # All partitions of the session.
        self.entries: dict[PartitionId, FetchEntry] = {}
        # Partitions to look at. The ones that got records last stand at the end, so that under a
        # limit of bytes every partition has a turn. For every other partition the follower has all
        # records and its machine counts it at rest. It has been told all offsets too, unless the
        # partition is in `advanced`. Each with the number of its last event.
        self.stirred: dict[PartitionId, int] = {}
        # Partitions whose high watermark has risen since the follower got it last. That can wait
        # for a while, so that it comes with the next records, or for many partitions at once. Each
        # with the number of the event.
        self.advanced: dict[PartitionId, int] = {}
        self._told_advances_ms = NEVER
        # Those that wait for quota, in order; not looked at with the others. Only partitions of
        # `entries`, and none of `stirred`.
        self.held: dict[PartitionId, None] = {}
        self._events = 0
        self._woken_by = 0  # the last event that was to wake
        self._looked_after = 0  # the last event when the last look began
        # Only partitions of `entries`.
        self.sent: dict[PartitionId, _Sent] = {}
        self.attendance = Attendance()
        # Of the fetch that waits, if one does: have it look again; have it answered at once.
        self.wake: Callable[[], None] | None = None
        self.answer_waiting: Callable[[], None] | None = None
        # The replicas that tell of changes: of every partition that was looked at and is here.
        self._replicas: dict[PartitionId, Replica] = {}
        # As which incarnation the follower fetched last, and what the metadata said of it.
        self._who: tuple[int, BrokerStatus] = (UNKNOWN_BROKER_EPOCH, BrokerStatus())

    def update(self, entries: Sequence[FetchEntry], forgotten: Sequence[PartitionId]) -> None:
        """Take up a request, after the one before it was answered."""
        for partition in forgotten:
            self.entries.pop(partition, None)
            self.stirred.pop(partition, None)
            self.advanced.pop(partition, None)
            self.held.pop(partition, None)
            self.sent.pop(partition, None)
            self._unwatch(partition)
        for entry in entries:
            self.entries[entry.id] = entry
            self.held.pop(entry.id, None)
            self.stirred[entry.id] = self._events

    def close(self) -> None:
        """No request comes any more."""
        for partition in list(self._replicas):
            self._unwatch(partition)
        self.entries.clear()
        self.stirred.clear()
        self.advanced.clear()
        self.held.clear()

    # ---------------------------------------------------------------------------- reading

    def begin_look(self, replica_epoch: int, status: BrokerStatus) -> None:
        """A request has come. If the follower's incarnation changed, every partition is looked at
        anew."""
        who = (replica_epoch, status)
        if who != self._who:
            self._who = who
            self.held.clear()
            for partition in self.entries:
                self.stirred[partition] = self._events

    def end_look(self, now_ms: float) -> None:
        """The stirred partitions were looked at: the request also acknowledges all the others."""
        replica_epoch, status = self._who
        if replica_epoch == status.epoch:
            self.attendance.last_fetch_ms = now_ms

    def to_look_at(self, now_ms: Callable[[], float]) -> list[FetchEntry]:
        self._looked_after = self._events
        if self.advanced:
            self._stir_advanced(now_ms())
        return list(map(self.entries.__getitem__, self.stirred))

    def _stir_advanced(self, now_ms: float) -> None:
        if now_ms - self._told_advances_ms >= ADVANCES_AFTER_MS:
            self._told_advances_ms = now_ms
            for partition, event in self.advanced.items():
                self.stirred.setdefault(partition, event)
            self.advanced.clear()

    def watch(self, replica: Replica) -> None:
        """Hear of the replica's changes from now on."""
        if self._replicas.get(replica.id) is not replica:
            self._unwatch(replica.id)
            self._replicas[replica.id] = replica
            replica.watchers[self] = None

    def _unwatch(self, partition: PartitionId) -> None:
        replica = self._replicas.pop(partition, None)
        if replica is not None:
            replica.unwatch(self)

    def stir(self, partition: PartitionId, *, wakes: bool) -> None:
        """See ``broker.replication.replica.Watcher``."""
        self._events += 1
        self.held.pop(partition, None)
        self.stirred[partition] = self._events
        if wakes:
            self._wake_up()

    def advance(self, partition: PartitionId) -> None:
        """See ``broker.replication.replica.Watcher``."""
        if partition in self.held:
            self.stir(partition, wakes=False)
        elif partition in self.entries:
            self._events += 1
            self.advanced[partition] = self._events

    def look_again(self) -> None:
        """There may be quota for what is held."""
        self._events += 1
        self._wake_up()

    def _wake_up(self) -> None:
        self._woken_by = self._events
        if self.wake is not None:
            self.wake()

    # ---------------------------------------------------------------------------- holding

    def hold(self, partition: PartitionId) -> None:
        """There is no quota for the partition: leave it until there is, or until it is stirred."""
        if self.stirred[partition] <= self._looked_after:
            del self.stirred[partition]
            self.held[partition] = None

    def next_held(self) -> FetchEntry:
        """Look at the partition that has waited longest, as part of the present look."""
        partition = next(iter(self.held))
        del self.held[partition]
        self.stirred[partition] = self._looked_after
        return self.entries[partition]

    @property
    def was_woken(self) -> bool:
        """Whether something came up during the last look that it may not have seen."""
        return self._woken_by > self._looked_after

    # -------------------------------------------------------------------------- answering

    def has_new_high_watermark(self, results: Sequence[FetchResult]) -> bool:
        """Whether the high watermark of any of these partitions has risen since the follower got
        it."""
        for result in results:
            told = self.sent.get(result.id)
            if told is not None and result.high_watermark > told.high_watermark:
                return True
        return False

    def parked(self, results: Sequence[FetchResult]) -> None:
        """The last look led to no answer. Partitions at rest need no further look, even if their
        high watermark has risen."""
        for result in results:
            told = self.sent.get(result.id)
            if (
                result.at_rest
                and told is not None
                and told.log_start_offset == result.log_start_offset
                and self.stirred[result.id] <= self._looked_after
            ):
                del self.stirred[result.id]
                if told.high_watermark != result.high_watermark:
                    self.advanced.setdefault(result.id, self._looked_after)

    def changed(self, results: Sequence[FetchResult]) -> list[FetchResult]:
        """Note that results were told, and return those with news."""
        news = []
        for result in results:
            told = _Sent(result.high_watermark, result.log_start_offset)
            if result.error is not ErrorCode.NONE or result.diverging is not None:
                self.sent.pop(result.id, None)  # earlier answers of the session no longer count
                news.append(result)
                continue
            if result.records or self.sent.get(result.id) != told:
                self.sent[result.id] = told
                if self.advanced.get(result.id, self._events) <= self._looked_after:
                    self.advanced.pop(result.id, None)
                news.append(result)
            if result.at_rest and self.stirred[result.id] <= self._looked_after:
                del self.stirred[result.id]
            elif result.records:
                self._to_the_end(result.id)
        return news

    def _to_the_end(self, partition: PartitionId) -> None:
        self.stirred[partition] = self.stirred.pop(partition)


class FetchSessions:
    """The sessions that this broker keeps for its followers: at most one for each of them.

    A session belongs to its connection, and only a proven registered broker gets one. So a client
    that claims to be a follower takes no memory, and nothing from the real follower. The end of a
    connection may be noticed late, or never. So a follower that opens a session on another
    connection ends its earlier one: it can rest in one session only.
    """

    def __init__(self, rng: Rng) -> None:
        self._rng = rng
        self._by_owner: dict[object, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._by_owner)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._by_owner.values())

    def open(
        self,
        *,
        owner: object,
        session_id: int,
        session_epoch: int,
        replica_id: int,
        is_proven: bool,
        entries: Sequence[FetchEntry],
        forgotten: Sequence[PartitionId],
    ) -> FetchSession | None:
        """The session of a request that names these entries; ``owner`` is its connection.

        None: the request is of a client that is no follower, or is not ``is_proven`` to be one by
        its broker epoch. A waiting request of the same session is answered first.
        Raises ApiError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH.
        """
        session = self._by_owner.get(owner)
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None and session_id in (INVALID_SESSION_ID, session.session_id):
                self.forget(owner)
            if session_epoch == FINAL_EPOCH or replica_id < 0 or not is_proven:
                return None
            session = self._create(owner, replica_id)
            session.update(entries, ())
            return session
        if session is None or session.session_id != session_id or session.replica_id != replica_id:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"session {session_id}")
        if session.epoch != session_epoch:
            raise ApiError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"epoch {session_epoch}, expected {session.epoch}",
            )
        if session.answer_waiting is not None:
            session.answer_waiting()
        session.epoch = next_epoch(session_epoch)
        session.update(entries, forgotten)
        return session

    def forget(self, owner: object) -> None:
        """The connection is lost, or its session ended."""
        session = self._by_owner.pop(owner, None)
        if session is not None:
            if session.answer_waiting is not None:
                session.answer_waiting()
            session.close()

    def _create(self, owner: object, replica_id: int) -> FetchSession:
        """Ids are random: after a restart an old one must not meet another's session."""
        self.forget(owner)
        for each in [each for each, of in self._by_owner.items() if of.replica_id == replica_id]:
            self.forget(each)
        session = FetchSession(self._rng.randrange(1, 2**31), replica_id)
        self._by_owner[owner] = session
        return session
