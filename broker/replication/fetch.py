"""The fetch function of followers and consumers: read, or wait, and answer.

A waiting fetch stands in a list of each of its partitions and in the deadline wheel; it costs no
task. Woken fetches are looked at together once the events at hand are handled, so one answer
carries the records of several produce requests. A consumer's fetch that waits for more bytes counts
them by their positions in the log; bytes are read only for the answer.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable

from broker.replication.cold_reads import ColdReads
from broker.replication.deadlines import DeadlineWheel
from broker.replication.fetch_reader import FetchReader, Reading
from broker.replication.fetch_turns import ConsumerTurns
from broker.replication.fetch_waiting import WaitingFetch
from broker.replication.leader_throttle import LeaderThrottle
from broker.replication.replica import ReportCorrupt
from broker.replication.replicas import Replicas
from broker.replication.types import FetchEntry


class FetchRequests:
    """Every read of a client or follower goes through here, those of thin clients, too."""

    def __init__(
        self,
        replicas: Replicas,
        deadlines: DeadlineWheel,
        on_corrupt: ReportCorrupt,
        answer_share: Callable[[], int],
        throttle: LeaderThrottle,
        lease_valid: Callable[[], bool],
        consumer_max_bytes: int,
    ) -> None:
        """``answer_share`` and ``lease_valid``: as for ``FetchReader``. ``consumer_max_bytes``: no
        answer to a consumer holds more, apart from its first batch (``fetch.max.bytes``)."""
        self._throttle = throttle
        self._replicas = replicas
        self._deadlines = deadlines
        self._consumer_max_bytes = consumer_max_bytes
        self._reader = FetchReader(replicas, on_corrupt, answer_share, throttle, lease_valid)
        self._turns = ConsumerTurns(self._look)
        self._cold = ColdReads(on_corrupt, self._look_in_turn)
        self._woken: list[WaitingFetch] = []
        # All that wait, in order of arrival.
        self._waiting: dict[WaitingFetch, None] = {}
        # Of those, the one of each follower without a session.
        self._of_follower: dict[int, WaitingFetch] = {}

    @property
    def waiting(self) -> int:
        """The number of fetches that wait for their answers."""
        return len(self._waiting)

    def begin(self, waiting: WaitingFetch) -> None:
        """Read for it from local replicas, and answer it once: now, or when there is enough, when
        its time is over, or when there is an error.

        A follower without a session has one fetch at a time: a newer one has the one before
        answered at once.
        """
        if waiting.is_refused:
            waiting.take([])
            return
        waiting.is_open = True
        if not waiting.is_follower:
            waiting.max_bytes = min(waiting.max_bytes, self._consumer_max_bytes)
        if waiting.min_bytes > waiting.max_bytes:
            waiting.min_bytes = waiting.max_bytes  # more can never come
        if waiting.is_follower:
            # A follower sends another behind a waiting one when it has something new to say. In a
            # session it was answered before what is new was taken up.
            before = self._of_follower.get(waiting.replica_id)
            if before is not None and waiting.session is None:
                self._answer_now(before)
            self._look_first(waiting)
        elif self._turns.is_open:
            self._look_first(waiting)
        else:
            self._waiting[waiting] = None
            self._turns.queue(waiting)

    def _look_first(self, waiting: WaitingFetch) -> None:
        """Answer, or let it wait."""
        waiting.has_begun = True
        is_enough = True
        if not waiting.is_follower and waiting.max_wait_ms > 0 and waiting.min_bytes > 1:
            waiting.stirred = {entry.id: entry for entry in waiting.entries}
            is_enough = self._count(waiting)
        if is_enough and self._finish(waiting, self._read(waiting, counts=waiting.is_follower)):
            return
        self._waiting[waiting] = None
        if waiting.is_follower and waiting.session is None:
            self._of_follower[waiting.replica_id] = waiting
        waiting.deadline = self._deadlines.add(
            waiting.max_wait_ms, functools.partial(self._deadline_passed, waiting)
        )
        self._park(waiting)

    # ---------------------------------------------------------------- turns of the event loop

    def _look_in_turn(self, waiting: WaitingFetch) -> None:
        """Many consumers may be due at one moment, or woken by one append. They are read for as
        those that have just come: a turn's bytes in each turn. Followers do not wait."""
        if waiting.is_follower or self._turns.is_open:
            self._look(waiting)
        else:
            self._turns.queue(waiting)

    def _look(self, waiting: WaitingFetch) -> None:
        if not waiting.is_open:
            return
        look = self._look_first
        if waiting.is_expired:
            look = self._answer_now
        elif waiting.has_begun:
            look = self._retry
        if waiting.spend is None:
            look(waiting)
        else:
            waiting.spend(look, waiting)

    def stop(self) -> None:
        """Answer every waiting fetch with the records there are."""
        for waiting in list(self._waiting):
            self._answer_now(waiting)
        self._cold.stop()

    # --------------------------------------------------------------------------- waiting

    def _park(self, waiting: WaitingFetch) -> None:
        session = waiting.session
        if session is not None:
            session.wake = functools.partial(self._wake, waiting)
            session.answer_waiting = functools.partial(self._answer_now, waiting)
            if session.was_woken:
                self._wake(waiting)
            return
        is_follower = waiting.is_follower
        for entry in waiting.entries:
            replica = self._replicas.by_id.get(entry.id)
            if replica is not None:
                parked = replica.followers if is_follower else replica.consumers
                parked[waiting] = functools.partial(self._wake, waiting, entry)
                waiting.parked.append(replica)

    def _wake(self, waiting: WaitingFetch, entry: FetchEntry | None = None) -> None:
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
        if len(woken) > 1:
            self._reader.found_in_round = {}
        try:
            for waiting in woken:
                waiting.woken = False
                self._look_in_turn(waiting)
        finally:
            self._reader.found_in_round = None

    def _retry(self, waiting: WaitingFetch) -> None:
        if not waiting.is_follower and not self._count(waiting):
            return
        self._finish(waiting, self._read(waiting))

    def _count(self, waiting: WaitingFetch) -> bool:
        """Whether to answer a consumer's fetch: there are enough bytes, or there is news.

        This looks only at partitions that were stirred since the last time, and reads nothing.
        """
        stirred, waiting.stirred = waiting.stirred, {}
        for entry in stirred.values():
            if waiting.is_due:
                break
            available = self._reader.available_bytes(waiting, entry)
            if available is None:
                waiting.is_due = True
            else:
                size = min(available, entry.max_bytes)
                waiting.counted_bytes += size - waiting.counted.get(entry.id, 0)
                waiting.counted[entry.id] = size
        if not waiting.is_due:
            waiting.is_due = waiting.counted_bytes >= waiting.min_bytes
        return waiting.is_due

    def _deadline_passed(self, waiting: WaitingFetch) -> None:
        waiting.is_expired = True
        self._look_in_turn(waiting)

    def _answer_now(self, waiting: WaitingFetch) -> None:
        """Answer with whatever is there; what is still being warmed comes with the next fetch."""
        if waiting.is_open:
            self._answer(waiting, self._read(waiting))

    def withdraw(self, waiting: WaitingFetch) -> None:
        """Nobody waits for the answer any more: it is not given. Harmless after the answer."""
        waiting.is_open = False
        if waiting not in self._waiting:
            return  # it is answered at its first look, or has left
        del self._waiting[waiting]
        if self._of_follower.get(waiting.replica_id) is waiting:
            del self._of_follower[waiting.replica_id]
        session = waiting.session
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

    def _read(self, waiting: WaitingFetch, *, counts: bool = False) -> Reading:
        """``counts``: a follower's fetch has just come, and its positions acknowledge."""
        reading = self._reader.read(waiting, counts=counts)
        if not waiting.is_follower:
            self._turns.use(reading.read_bytes)
        return reading

    def _finish(self, waiting: WaitingFetch, reading: Reading) -> bool:
        """Answer if there is enough or reason to; else it goes on waiting."""
        if not reading.urgent and reading.read_bytes < waiting.min_bytes:
            if reading.cold is not None and not reading.read_bytes:
                waiting.is_due = not waiting.is_follower
                self._cold.warm(waiting, *reading.cold)
                return False
            if waiting.max_wait_ms > 0 and not waiting.is_due:
                if waiting.session is not None:
                    waiting.session.parked(reading.results)
                return False
        self._answer(waiting, reading)
        return True

    def _count_by_topic(self, reading: Reading, *, to_follower: bool) -> None:
        """In the turn of the event loop in which they were read: every replica is still here."""
        by_id = self._replicas.by_id
        for result in reading.results:
            if result.records:
                traffic = by_id[result.id].traffic
                size_bytes = sum(map(len, result.records))
                if to_follower:
                    traffic.replication_bytes_out += size_bytes
                else:
                    traffic.bytes_out += size_bytes

    def _answer(self, waiting: WaitingFetch, reading: Reading) -> None:
        if not waiting.is_open:
            return
        self.withdraw(waiting)
        if reading.cold is not None:
            self._cold.warm_for_later(*reading.cold)
        if not waiting.is_follower and not waiting.admits(reading.read_bytes):
            return
        counters = self._replicas.counters
        if reading.read_bytes:
            self._count_by_topic(reading, to_follower=waiting.is_follower)
        if waiting.is_follower:
            counters.replication_bytes_out += reading.read_bytes
            if reading.throttled_bytes:
                self._throttle.sent(reading.throttled_bytes)
        else:
            counters.bytes_out += reading.read_bytes
        waiting.take(reading.results)
