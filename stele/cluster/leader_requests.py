"""Requests to partition leaders over one stream per broker, for producer and consumer.

One loop asks its client what to send. It wakes when that may change: after an answer, a broken
stream, news of a leader, or at a certain time. The client decides what an answer means. This module
finds out when no answer will come: the stream broke, the broker is silent, or another broker leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from stele.backoff import Backoff
from stele.cluster.kafka_link import KafkaLink
from stele.cluster.messages import Leader, LeaderStream, UnsentError
from stele.cluster.view import ClusterView
from stele.cluster.waiting import client_backoff
from stele.ids import TopicPartition

LONGEST_PAUSE_S = 1.0
"""The loop runs a turn at least this often."""


class PartitionRetry:
    """When a partition's leader may be asked again after a failure."""

    __slots__ = (
        "_awaits_leader",
        "_backoff",
        "_partition",
        "_view",
        "at",
        "failed_leader",
        "reason",
    )

    def __init__(self, partition: TopicPartition, view: ClusterView) -> None:
        self._partition = partition
        self._view = view
        self._backoff = client_backoff(view.config, view.world)
        self.at = 0.0  # the earliest time, unless there is another leader by then
        self.failed_leader: Leader | None = None  # the leader that failed last
        self.reason = ""  # the reason of the last failure, in words; empty after a success
        self._awaits_leader = False  # No leader was known. A leader that is known now is news.

    def must_wait(self, leader: Leader | None, now: float) -> bool:
        is_news = self._awaits_leader or self.failed_leader not in (None, leader)
        moved = leader is not None and is_news
        return now < self.at and not moved

    def postpone(
        self, reason: str, now: float, *, awaits_leader: bool = False, is_told: bool = True
    ) -> None:
        """``awaits_leader``: no leader is known. One that becomes known is asked at once.
        ``is_told`` False: another part of the client tells the user why it waits."""
        self.reason = reason
        self._awaits_leader = awaits_leader
        if now >= self.at:  # requests that failed together cause one pause
            self.at = now + self._backoff.next_s()
        # A change of leader is normal; only lasting failures are reported.
        if is_told and self._backoff.failures > 2:
            self._view.waiting.say(f"waiting: {reason}", f"{self._partition} {reason[:60]}")

    def pause_until(self, at: float) -> None:
        """Ask no leader before this time, for a reason that is no failure."""
        self.at = at
        self._awaits_leader = False

    def succeed(self) -> None:
        self._backoff.reset()
        self._awaits_leader = False
        self.at = 0.0
        self.failed_leader = None
        self.reason = ""


class Item(Protocol):
    """One partition's share of a request."""

    @property
    def partition(self) -> TopicPartition: ...

    @property
    def topic_id(self) -> bytes: ...

    @property
    def leader(self) -> Leader:
        """The leader to which it was sent."""

    @property
    def is_current(self) -> bool:
        """Whether the answer still counts."""


class Part(Protocol):
    """The part of an answer for one partition."""

    topic_id: bytes
    topic: str  # set if the request named no topic id
    partition: int
    leader: Leader


RequestT = TypeVar("RequestT")
PartT = TypeVar("PartT", bound=Part)
PartT_contra = TypeVar("PartT_contra", bound=Part, contravariant=True)
ItemT = TypeVar("ItemT", bound=Item)
ItemT_contra = TypeVar("ItemT_contra", bound=Item, contravariant=True)
Result = TypeVar("Result")


class LeaderClient(Protocol[ItemT_contra, PartT_contra]):
    """The sender of requests. It is called at most once for each item, and only while that is
    current."""

    def turn(self, now: float) -> float:
        """Send everything that may be sent now. Returns the time when there may be more."""

    def on_answer(self, item: ItemT_contra, part: PartT_contra) -> None: ...

    def on_lost(self, item: ItemT_contra, reason: str, *, maybe_taken: bool) -> None:
        """No answer will count. The item must not be current afterwards. ``maybe_taken``: the
        leader may have carried the request out."""

    def on_error(self, error: Exception) -> None:
        """One of these methods raised. All sending has stopped."""


class BrokerConnection(Generic[RequestT, PartT]):
    """The connection to one broker. ``stream`` is opened when there is something to send."""

    __slots__ = ("backoff", "broker_id", "in_flight", "retry_at", "stream", "throttled_until")

    def __init__(self, broker_id: int, backoff: Backoff) -> None:
        self.broker_id = broker_id
        self.backoff = backoff
        self.in_flight = 0  # the number of requests without an answer
        self.retry_at = 0.0  # it is not opened before this time
        self.throttled_until = 0.0  # the broker reads nothing before this time: a quota
        self.stream: LeaderStream[RequestT, PartT] | None = None


@dataclass(slots=True, eq=False)
class Sent(Generic[RequestT, ItemT, PartT]):
    connection: BrokerConnection[RequestT, PartT]
    stream: LeaderStream[RequestT, PartT]
    items: Sequence[ItemT]
    sent_at: float
    deadline: float  # the whole stream is given up then
    most_bytes: int = 0  # that the answer may bring


class LeaderRequests(Generic[RequestT, ItemT, PartT]):
    """One client's requests of one kind."""

    def __init__(
        self,
        view: ClusterView,
        open_stream: Callable[[KafkaLink], LeaderStream[RequestT, PartT]],
        client: LeaderClient[ItemT, PartT],
        *,
        max_in_flight: int | None = None,
    ) -> None:
        """``open_stream``: ``KafkaPlane.produce`` or ``fetch``.

        ``max_in_flight``: the most unanswered requests to one broker.
        """
        self._view = view
        self._clock = view.world.clock
        self._open_stream = open_stream
        self._client = client
        self._max_in_flight = max_in_flight
        self._connections: dict[int, BrokerConnection[RequestT, PartT]] = {}
        self._sent: dict[
            Sent[RequestT, ItemT, PartT], None
        ] = {}  # in the order in which they were sent
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._background: dict[asyncio.Task[None], None] = {}
        self.is_stopped = False  # nothing is sent any more, and answers do not count
        # How long brokers have let the client wait, since it is above a quota; each broker's time.
        self.throttled_s = 0.0
        view.on_change.append(self.wake)

    def start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self.is_stopped = True

    async def close(self) -> None:
        """Stop at once. The client gets no answers to unanswered requests."""
        self.stop()
        tasks = [*self._background] if self._task is None else [self._task, *self._background]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in self._connections.values():
            if connection.stream is not None:
                await connection.stream.close()
                connection.stream = None

    def _fail(self, error: Exception) -> None:
        self.stop()
        self._client.on_error(error)

    def in_flight(self, broker_id: int) -> int:
        """The number of items sent to the broker and not answered."""
        return sum(len(sent.items) for sent in self._sent if sent.connection.broker_id == broker_id)

    # ----------------------------------------------------------------------- the loop

    async def _run(self) -> None:
        while not self.is_stopped:
            self._wake.clear()
            now = self._clock.monotonic()
            try:
                next_at = min(self._give_up_silent(now), self._client.turn(now))
            except Exception as error:
                self._fail(error)
                return
            if self._view.is_stale:
                self._view.refresh_soon()
            pause_s = min(max(next_at - now, 0.001), LONGEST_PAUSE_S)
            handle = asyncio.get_running_loop().call_later(pause_s, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                handle.cancel()

    # ------------------------------------------------------------------------ sending

    def ready_at(self, broker_id: int, now: float) -> float:
        """The earliest time at which this broker may be sent something, as far as is known now."""
        connection = self._connection(broker_id)
        if self._max_in_flight is not None and connection.in_flight >= self._max_in_flight:
            return now + LONGEST_PAUSE_S
        return max(connection.retry_at, connection.throttled_until)

    def throttled_until(self, broker_id: int) -> float:
        """The time until which the broker lets this client wait, because it is above a quota. It
        may be over."""
        return self._connection(broker_id).throttled_until

    def awaited_bytes(self, *, without: int) -> int:
        """The bytes that answers of all brokers but this one may bring."""
        return sum(sent.most_bytes for sent in self._sent if sent.connection.broker_id != without)

    def ask(
        self,
        broker_id: int,
        request: RequestT,
        items: Sequence[ItemT],
        deadline: float,
        *,
        most_bytes: int = 0,
    ) -> None:
        """Send a request. ``items`` are its partitions. ``most_bytes``: see ``awaited_bytes``."""
        sent = self._open(broker_id, items, deadline)
        sent.most_bytes = most_bytes
        future = sent.stream.request(request)
        future.add_done_callback(partial(self._on_done, sent, self._answered))

    def post(
        self,
        broker_id: int,
        request: RequestT,
        items: Sequence[ItemT],
        deadline: float,
        on_handed_over: Callable[[ItemT], None],
    ) -> None:
        """Send a request that has no answer. ``on_handed_over`` is called for each item instead."""

        def handed_over(sent: Sent[RequestT, ItemT, PartT], _: None) -> None:
            for item in sent.items:
                if item.is_current:
                    on_handed_over(item)

        sent = self._open(broker_id, items, deadline)
        future = sent.stream.post(request)
        future.add_done_callback(partial(self._on_done, sent, handed_over))

    def _open(
        self, broker_id: int, items: Sequence[ItemT], deadline: float
    ) -> Sent[RequestT, ItemT, PartT]:
        connection = self._connection(broker_id)
        if connection.stream is None:
            link = self._view.link(broker_id)
            connection.stream = self._open_stream(link)
        sent = Sent(connection, connection.stream, items, self._clock.monotonic(), deadline)
        self._sent[sent] = None
        connection.in_flight += 1
        return sent

    def _connection(self, broker_id: int) -> BrokerConnection[RequestT, PartT]:
        connection = self._connections.get(broker_id)
        if connection is None:
            connection = BrokerConnection(
                broker_id, client_backoff(self._view.config, self._view.world)
            )
            self._connections[broker_id] = connection
        return connection

    # ------------------------------------------------------------------------ answers

    def take_hint(self, item: ItemT, part: PartT) -> bool:
        """Take the leader that an answer names. True if it is news and can be used at once."""
        return self._view.hint(item.partition, item.topic_id, part.leader)

    def _on_done(
        self,
        sent: Sent[RequestT, ItemT, PartT],
        take: Callable[[Sent[RequestT, ItemT, PartT], Result], None],
        future: asyncio.Future[Result],
    ) -> None:
        """A request has ended, with an answer or without."""
        del self._sent[sent]
        sent.connection.in_flight -= 1
        self.wake()
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or self.is_stopped:
            return
        try:
            if error is None:
                take(sent, future.result())
            else:
                self._broken(sent, error)
        except Exception as problem:
            self._fail(problem)

    def _answered(self, sent: Sent[RequestT, ItemT, PartT], answers: Sequence[PartT]) -> None:
        sent.connection.backoff.reset()
        self._heed_throttle(sent)
        parts: dict[tuple[bytes | str, int], PartT] = {}
        for part in answers:
            parts[part.topic_id or part.topic, part.partition] = part
        for item in sent.items:
            if not item.is_current:
                continue
            topic, partition = item.partition
            answer = parts.get((item.topic_id or topic, partition))
            if answer is None:
                self._lose(item, sent, "left it unanswered")
            else:
                self._client.on_answer(item, answer)

    def _heed_throttle(self, sent: Sent[RequestT, ItemT, PartT]) -> None:
        """Send nothing while the broker would not read it. What is under way may wait as long."""
        throttle_s = sent.stream.take_throttle_s()
        if throttle_s <= 0:
            return
        connection = sent.connection
        now = self._clock.monotonic()
        since, until = max(connection.throttled_until, now), now + throttle_s
        self.throttled_s += max(0.0, until - since)
        connection.throttled_until = max(since, until)
        for other in self._sent:
            if other.connection is connection:
                other.deadline += throttle_s

    # ---------------------------------------------------------------------- no answer

    def _broken(self, sent: Sent[RequestT, ItemT, PartT], error: BaseException) -> None:
        """The stream broke before the answer."""
        connection = sent.connection
        if connection.stream is sent.stream:
            connection.stream = None
            connection.retry_at = self._clock.monotonic() + connection.backoff.next_s()
            self._in_background(sent.stream.close())
            self._view.refresh_soon()
        for item in sent.items:
            maybe_taken = not isinstance(error, UnsentError)
            self._lose(item, sent, f"is unreachable ({error})", maybe_taken=maybe_taken)

    def _give_up_silent(self, now: float) -> float:
        """Break off streams with an overdue answer. Returns when the next answer is overdue."""
        next_at = now + LONGEST_PAUSE_S
        for sent in list(self._sent):
            if sent.deadline > now:
                next_at = min(next_at, sent.deadline)
                continue
            sent.stream.break_off("no answer in time")  # its other answers are lost as well
            for item in sent.items:
                self._lose(item, sent, f"did not answer within {now - sent.sent_at:.1f} s")
        return next_at

    def leave_deposed(self, now: float, silent_for_s: float | None = None) -> bool:
        """Stop waiting for leaders that were replaced, since they may hang.

        ``silent_for_s``: only for requests older than that. Returns whether there were any such
        requests, even if their leaders were not replaced.
        """
        any_is_silent = False
        for sent in self._sent:
            if silent_for_s is not None and now - sent.sent_at <= silent_for_s:
                continue
            any_is_silent = True
            for item in sent.items:
                leader = self._view.leader(item.partition)
                if leader is not None and leader.epoch > item.leader.epoch:
                    self._lose(item, sent, "no longer leads and has not answered")
        return any_is_silent

    def _lose(
        self,
        item: ItemT,
        sent: Sent[RequestT, ItemT, PartT],
        problem: str,
        *,
        maybe_taken: bool = True,
    ) -> None:
        if item.is_current:
            reason = f"{item.partition}: broker {sent.connection.broker_id} {problem}"
            self._client.on_lost(item, reason, maybe_taken=maybe_taken)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background[task] = None
        task.add_done_callback(lambda done: self._background.pop(done, None))
