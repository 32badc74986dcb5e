"""Carries a producer's batches to the partitions' leaders, and their answers back.

One loop looks at all partitions that hold something, and is woken by whatever may change what it
sees: a record, an answer, a refusal, news of a leader, a point in time. What may be sent and what
an answer means for order and repetition, the lanes decide (``stele.producer.idempotence``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from stele.cluster.broker_stream import BrokerStream, UnsentError
from stele.cluster.view import ClusterView, Leader, error_code
from stele.cluster.waiting import Backoff
from stele.config import ProducerConfig
from stele.errors import (
    ApiError,
    DeliveryTimeoutError,
    ErrorCode,
    SequenceError,
    SteleError,
)
from stele.producer.accumulator import Accumulator, PartitionQueue, PendingBatch
from stele.producer.idempotence import Entry, Failed
from stele.producer.producer_ids import ProducerIds
from stele.wire.compression import Compression
from stele.wire.v1 import data_pb2

log = logging.getLogger(__name__)

SLOW_ANSWER_S = 1.0
"""An answer that takes longer makes the sender ask whether the leader is still the leader."""

# Codes by which a broker refuses before it appends. After any other failure the batch may be, or
# become, part of the log: a leader that is deposed while it waits for followers answers
# NOT_LEADER_OR_FOLLOWER for a batch that the next leader may have.
REFUSED_BEFORE_APPEND = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUIRED_ACKS,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.POLICY_VIOLATION,
    }
)
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_TOPIC_GONE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

Result = TypeVar("Result")
Stream = BrokerStream[data_pb2.ProduceResponse]


class Link:
    """The way to one broker. ``stream`` is opened when there is something to send."""

    __slots__ = ("backoff", "broker_id", "in_flight", "retry_at", "stream")

    def __init__(self, broker_id: int, backoff: Backoff) -> None:
        self.broker_id = broker_id
        self.backoff = backoff
        self.in_flight = 0  # requests of the present stream without an answer
        self.retry_at = 0.0  # not opened before
        self.stream: Stream | None = None


@dataclass(slots=True)
class Item:
    """One batch of a request."""

    queue: PartitionQueue
    entry: Entry[PendingBatch]
    attempt: int
    leader: Leader
    topic_id: bytes

    @property
    def is_current(self) -> bool:
        """Whether this attempt still counts: it was not given up meanwhile."""
        return self.entry.in_flight and self.entry.attempt == self.attempt


@dataclass(slots=True, eq=False)
class Sent:
    link: Link
    stream: Stream
    items: list[Item]
    sent_at: float
    deadline: float  # then the attempt is given up


class Sender:
    def __init__(
        self,
        config: ProducerConfig,
        view: ClusterView,
        accumulator: Accumulator,
        on_failed: Callable[[PendingBatch, SteleError], None],
        on_fatal: Callable[[SteleError], None],
        on_drained: Callable[[PendingBatch], None],
    ) -> None:
        self._config = config
        self._view = view
        self._clock = view.world.clock
        self._accumulator = accumulator
        self._on_failed = on_failed
        self._on_fatal = on_fatal
        self._on_drained = on_drained
        self._compression = Compression.of(config.compression)
        self._links: dict[int, Link] = {}
        self._sent: dict[Sent, None] = {}  # in the order of sending
        self._stopped = False  # after a fatal error or close: answers count no more
        self._producer_ids = ProducerIds(view, on_news=self.wake, on_refused=self._fatal)
        self._background: dict[asyncio.Task[None], None] = {}
        self._wake = asyncio.Event()
        self._asked_about_slow_at = 0.0
        self._task: asyncio.Task[None] | None = None
        view.on_change.append(self.wake)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    def wake(self) -> None:
        self._wake.set()

    def in_flight(self, broker_id: int) -> int:
        """Batches sent to the broker and not answered."""
        return sum(len(sent.items) for sent in self._sent if sent.link.broker_id == broker_id)

    async def close(self) -> None:
        """Stop at once; what is not delivered stays where it is."""
        self._stopped = True
        await self._producer_ids.close()
        tasks = [self._task, *self._background]
        for task in tasks:
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)
        for link in self._links.values():
            if link.stream is not None:
                await link.stream.close()
                link.stream = None

    def _fatal(self, cause: SteleError) -> None:
        if not self._stopped:
            self._stopped = True
            self._on_fatal(cause)

    # ----------------------------------------------------------------------- the loop

    async def _run(self) -> None:
        try:
            await self._loop()
        except SequenceError as error:
            self._fatal(error)
        except Exception as error:
            self._fatal(_bug(error))

    async def _loop(self) -> None:
        while not self._stopped:
            self._wake.clear()
            now = self._clock.monotonic()
            next_at = min(self._expire(now), self._send_ready(now))
            pause_s = min(max(next_at - now, 0.001), 1.0)
            handle = asyncio.get_running_loop().call_later(pause_s, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                handle.cancel()

    def _send_ready(self, now: float) -> float:
        """Send all that may be sent now; returns when there may be more to send."""
        next_at = now + 1.0
        if self._view.is_stale:
            self._view.refresh_soon()
        while True:
            chosen: dict[int, list[tuple[PartitionQueue, Leader]]] = {}
            sizes: dict[int, int] = {}
            for queue in self._accumulator.active.values():
                at, leader = self._ready_at(queue, now)
                if at > now or leader is None:
                    next_at = min(next_at, at)
                    continue
                size = self._next_size(queue)
                total = sizes.get(leader.broker_id, 0)
                if total and total + size > self._config.max_request_size:
                    continue
                sizes[leader.broker_id] = total + size
                chosen.setdefault(leader.broker_id, []).append((queue, leader))
            if not chosen:
                return next_at
            for broker_id, queues in chosen.items():
                self._send(self._links[broker_id], queues, now)

    def _ready_at(self, queue: PartitionQueue, now: float) -> tuple[float, Leader | None]:
        """When the queue's next batch may go and to whom; later than ``now`` if it must wait."""
        never = now + 1.0
        lane = queue.lane
        if not lane.window or lane.may_admit():
            if not queue.waiting:
                return never, None
            batch = queue.waiting[0]
            if not self._accumulator.is_ready(batch, now):
                return batch.created + self._config.linger_ms / 1000, None
        elif lane.to_resend() is None and not lane.needs_identity:
            return never, None
        leader = self._view.leader(queue.partition)
        moved = leader is not None and queue.failed_at is not None and leader != queue.failed_at
        if now < queue.retry_at and not moved:
            return queue.retry_at, None
        if leader is None:
            self._wait_for_leader(queue, now)
            return queue.retry_at, None
        if not self._prepare_lane(queue):
            return never, None
        link = self._links.get(leader.broker_id)
        if link is None:
            link = Link(leader.broker_id, Backoff.of(self._config, self._view.world))
            self._links[leader.broker_id] = link
        if link.in_flight >= self._config.max_in_flight:
            return never, None
        if now < link.retry_at:
            return link.retry_at, None
        return now, leader

    def _wait_for_leader(self, queue: PartitionQueue, now: float) -> None:
        code = self._view.topic_error(queue.partition.topic)
        because = f" ({code.name})" if code else ""
        self._postpone(queue, f"{queue.partition} has no leader that is known{because}", now)
        self._view.refresh_soon()

    def _prepare_lane(self, queue: PartitionQueue) -> bool:
        """Give the lane what it needs to send: the topic's present id, a producer id."""
        lane = queue.lane
        topic = self._view.topic(queue.partition.topic)
        assert topic is not None  # it has a leader
        if queue.topic_id != topic.topic_id:
            if lane.any_in_flight:
                return False
            if queue.topic_id:
                lane.restart()
            queue.topic_id = topic.topic_id
        if not lane.needs_identity:
            return True
        if lane.any_in_flight:
            return False
        identity = self._producer_ids.newest
        if identity is None or identity == queue.last_identity:
            self._producer_ids.ask()
            return False
        lane.give(identity)
        queue.last_identity = identity
        return True

    def _next_size(self, queue: PartitionQueue) -> int:
        entry = queue.lane.to_resend()
        return entry.batch.size_bytes if entry is not None else queue.waiting[0].size_bytes

    # ------------------------------------------------------------------------ sending

    def _send(self, link: Link, queues: list[tuple[PartitionQueue, Leader]], now: float) -> None:
        stream = link.stream
        if stream is None:
            stream = link.stream = BrokerStream(
                self._view.channel(link.broker_id),
                "/stele.v1.Data/Produce",
                data_pb2.ProduceResponse.FromString,
                f"broker {link.broker_id}",
            )
        request = data_pb2.ProduceRequest(
            correlation_id=stream.next_correlation_id(),
            acks=self._config.acks_number,
            timeout_ms=self._config.request_timeout_ms,
        )
        deadline = now + self._config.request_timeout_ms / 1000
        items = []
        for queue, leader in queues:
            entry = queue.lane.to_resend() or self._admit(queue)
            deadline = min(deadline, max(self._delivery_deadline(entry.batch), now + 0.001))
            attempt = queue.lane.sending(entry)
            items.append(Item(queue, entry, attempt, leader, queue.topic_id))
            part = request.partitions.add(
                partition=queue.partition.partition,
                records=entry.batch.encoded(entry, self._compression),
            )
            if queue.topic_id:
                part.topic_id = queue.topic_id
            else:
                part.topic = queue.partition.topic
            # Served: it moves behind the others, so that none of them starves.
            self._accumulator.active[queue.partition] = self._accumulator.active.pop(
                queue.partition
            )
        sent = Sent(link, stream, items, now, deadline)
        self._sent[sent] = None
        link.in_flight += 1
        message = request.SerializeToString()
        if request.acks == 0:
            stream.post(message).add_done_callback(partial(self._on_posted, sent))
        else:
            future = stream.request(request.correlation_id, message)
            future.add_done_callback(partial(self._on_answer, sent))

    def _admit(self, queue: PartitionQueue) -> Entry[PendingBatch]:
        batch = queue.waiting.popleft()
        if not batch.is_closed:
            batch.is_closed = True
            self._on_drained(batch)
        return queue.lane.admit(batch, batch.record_count)

    # ------------------------------------------------------------------------ answers

    def _on_posted(self, sent: Sent, future: asyncio.Future[None]) -> None:
        """Handed over, and there will be no answer (acks=0)."""
        self._take_back(sent, future, lambda _: self._posted(sent))

    def _on_answer(self, sent: Sent, future: asyncio.Future[data_pb2.ProduceResponse]) -> None:
        self._take_back(sent, future, lambda response: self._answered(sent, response))

    def _posted(self, sent: Sent) -> None:
        for item in sent.items:
            if item.is_current:
                self._written(item, -1, -1)

    def _take_back(
        self, sent: Sent, future: asyncio.Future[Result], go_on: Callable[[Result], None]
    ) -> None:
        """A request has come to its end, this way or that."""
        self._sent.pop(sent, None)
        sent.link.in_flight -= 1
        self.wake()
        error = None if future.cancelled() else future.exception()
        if future.cancelled() or self._stopped:
            return
        try:
            if error is not None:
                self._broken(sent, error)
            else:
                go_on(future.result())
        except SequenceError as contradiction:
            self._fatal(contradiction)
        except Exception as bug:
            self._fatal(_bug(bug))

    def _answered(self, sent: Sent, response: data_pb2.ProduceResponse) -> None:
        sent.link.backoff.reset()
        answers: dict[tuple[bytes | str, int], data_pb2.ProduceResponse.Partition] = {}
        for part in response.partitions:
            answers[part.topic_id or part.topic, part.partition] = part
        for item in sent.items:
            if not item.is_current:
                continue
            name = item.queue.partition
            answer = answers.get((item.topic_id or name.topic, name.partition))
            if answer is None:
                self._fail_attempt(item, f"broker {sent.link.broker_id} left {name} unanswered")
            else:
                self._take_answer(item, answer)

    def _take_answer(self, item: Item, answer: data_pb2.ProduceResponse.Partition) -> None:
        code = error_code(answer.error)
        lane, entry, name = item.queue.lane, item.entry, item.queue.partition
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            # The view may lag: a leader deposed before this one must not be gone back to. It can
            # lack this batch and would say that what follows it is out of order.
            self._hint(item, answer)
            offset = answer.base_offset if code is ErrorCode.NONE else -1
            self._written(item, offset, answer.log_append_time_ms)
            return
        said = answer.message or code.name
        reason = f"{name}: broker {item.leader.broker_id} answers {code.name}" + (
            f" ({answer.message})" if answer.message else ""
        )
        if code in _FENCED:
            raise SequenceError(code, f"{name}: another instance uses this producer id ({said})")
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._note(lane.out_of_order(entry, f"{name}: {said}"))
            self._postpone(item.queue, reason, self._clock.monotonic())
        elif code is ErrorCode.UNKNOWN_PRODUCER_ID:
            self._note(lane.unknown_producer(entry, f"{name}: {said}"))
        elif code.retriable:
            self._retry(item, code, answer, reason)
        else:
            entry.maybe_written |= code not in REFUSED_BEFORE_APPEND
            self._note(lane.rejected(entry, ApiError(code, _advice(code, str(name), said))))

    def _retry(
        self,
        item: Item,
        code: ErrorCode,
        answer: data_pb2.ProduceResponse.Partition,
        reason: str,
    ) -> None:
        queue = item.queue
        self._fail_attempt(item, reason, written=code not in REFUSED_BEFORE_APPEND)
        queue.failed_at = item.leader
        if code in REFUSED_BEFORE_APPEND or code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            return
        if code in _TOPIC_GONE or not self._hint(item, answer):
            self._view.refresh_soon()

    def _hint(self, item: Item, answer: data_pb2.ProduceResponse.Partition) -> bool:
        leader = Leader(answer.leader, answer.leader_epoch)
        return self._view.hint(item.queue.partition, item.topic_id, leader)

    def _fail_attempt(self, item: Item, reason: str, *, written: bool = True) -> None:
        """The attempt came to nothing that is known; ``written``: it may have been written."""
        lane = item.queue.lane
        self._note(lane.unknown(item.entry) if written else lane.refused(item.entry))
        self._postpone(item.queue, reason, self._clock.monotonic())

    def _broken(self, sent: Sent, error: BaseException) -> None:
        """The stream broke before the answer."""
        link = sent.link
        if link.stream is sent.stream:
            link.stream = None
            link.retry_at = self._clock.monotonic() + link.backoff.next_s()
            self._in_background(sent.stream.close())
            self._view.refresh_soon()
        for item in sent.items:
            if item.is_current:
                reason = f"{item.queue.partition}: broker {link.broker_id} is unreachable ({error})"
                self._fail_attempt(item, reason, written=not isinstance(error, UnsentError))
                item.queue.failed_at = item.leader

    def _written(self, item: Item, base_offset: int, log_append_time_ms: int) -> None:
        queue = item.queue
        queue.backoff.reset()
        queue.retry_at = 0.0
        queue.failed_at = None
        queue.reason = ""
        batch = item.entry.batch
        self._note(queue.lane.written(item.entry))
        batch.succeed(base_offset, log_append_time_ms)
        self._finish(batch)

    def _note(self, failed: list[Failed[PendingBatch]]) -> None:
        for each in failed:
            self._fail(each.batch, each.cause)

    def _fail(self, batch: PendingBatch, cause: SteleError) -> None:
        batch.fail(cause)
        self._on_failed(batch, cause)
        self._finish(batch)

    def _finish(self, batch: PendingBatch) -> None:
        self._accumulator.finish(batch)
        queue = self._accumulator.active.get(batch.partition)
        if queue is not None and queue.is_empty:
            del self._accumulator.active[batch.partition]

    def _postpone(self, queue: PartitionQueue, reason: str, now: float) -> None:
        queue.reason = reason
        if now >= queue.retry_at:  # one pause for all batches that failed together
            queue.retry_at = now + queue.backoff.next_s()
        if queue.backoff.failures > 2:  # a change of leader is no news; what lasts is
            self._view.waiting.say(f"waiting: {reason}", f"{queue.partition} {reason[:60]}")

    # ---------------------------------------------------------------------- deadlines

    def _delivery_deadline(self, batch: PendingBatch) -> float:
        return batch.created + self._config.delivery_timeout_ms / 1000

    def _expire(self, now: float) -> float:
        """Give up what is over its time; returns when the next is due."""
        next_at = self._give_up_attempts(now)
        for queue in list(self._accumulator.active.values()):
            lane = queue.lane
            while lane.window and not lane.any_in_flight:
                head = lane.window[0]
                if self._delivery_deadline(head.batch) > now:
                    next_at = min(next_at, self._delivery_deadline(head.batch))
                    break
                cause = self._timeout(queue, head.batch, maybe_written=head.maybe_written)
                self._note(lane.give_up(head, cause))
            while queue.waiting and self._delivery_deadline(queue.waiting[0]) <= now:
                batch = queue.waiting.popleft()
                self._fail(batch, self._timeout(queue, batch, maybe_written=False))
            if queue.waiting:
                next_at = min(next_at, self._delivery_deadline(queue.waiting[0]))
        return next_at

    def _timeout(
        self, queue: PartitionQueue, batch: PendingBatch, *, maybe_written: bool
    ) -> DeliveryTimeoutError:
        outcome = "it may have been written" if maybe_written else "it was not written"
        reason = queue.reason or self._producer_ids.reason or "the broker did not answer"
        return DeliveryTimeoutError(
            f"a batch of {batch.record_count} records for {batch.partition} was not acknowledged "
            f"within delivery_timeout_ms={self._config.delivery_timeout_ms}; {outcome}. "
            f"Last: {reason}",
            maybe_written=maybe_written,
        )

    def _give_up_attempts(self, now: float) -> float:
        next_at = now + 1.0
        slow = False
        for sent in list(self._sent):
            if sent.deadline <= now:
                sent.stream.break_off("no answer in time")  # fails all its futures
                for item in sent.items:
                    if item.is_current:
                        reason = (
                            f"{item.queue.partition}: broker {sent.link.broker_id} did not answer "
                            f"within {now - sent.sent_at:.1f} s"
                        )
                        self._fail_attempt(item, reason)
                continue
            next_at = min(next_at, sent.deadline)
            if now - sent.sent_at > SLOW_ANSWER_S:
                slow = True
                self._leave_deposed(sent)
        if slow and now - self._asked_about_slow_at > SLOW_ANSWER_S:
            self._asked_about_slow_at = now
            self._view.refresh_soon()
        return next_at

    def _leave_deposed(self, sent: Sent) -> None:
        """A leader that hangs and was replaced: its answer is not waited for."""
        for item in sent.items:
            leader = self._view.leader(item.queue.partition)
            if item.is_current and leader is not None and leader.epoch > item.leader.epoch:
                item.queue.failed_at = item.leader
                self._fail_attempt(
                    item,
                    f"{item.queue.partition}: broker {item.leader.broker_id} no longer leads and "
                    "has not answered",
                )

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background[task] = None
        task.add_done_callback(lambda done: self._background.pop(done, None))


def _bug(error: Exception) -> SteleError:
    """Something that must not happen did: the producer stops rather than guess what it has sent."""
    log.error("the producer stops because of a bug in it", exc_info=error)
    return SteleError(f"a bug in the producer, see the log: {error!r}")


def _advice(code: ErrorCode, partition: str, said: str) -> str:
    if code is ErrorCode.MESSAGE_TOO_LARGE:
        return f"{partition}: {said}. Lower batch_size, or raise the topic's max.message.bytes"
    return f"{partition}: {said}"
