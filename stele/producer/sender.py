"""Sends a producer's batches to the partition leaders, and handles the answers.

Every turn looks at all partitions that have batches. The lanes decide what may be sent, and what an
answer means for order and repetition (``stele.producer.idempotence``).
``stele.cluster.leader_requests`` keeps the streams and notices when no answer will come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from stele.cluster.leader_requests import LONGEST_PAUSE_S, LeaderRequests
from stele.cluster.messages import Leader, ProduceAnswer, ProducedPart, ProduceRequest
from stele.cluster.metrics_push import Measured
from stele.cluster.missing_right import missing_right
from stele.cluster.view import ClusterView
from stele.config import ProducerConfig
from stele.errors import (
    ApiError,
    DeliveryTimeoutError,
    ErrorCode,
    SequenceError,
    SteleError,
)
from stele.ids import TopicPartition
from stele.producer.accumulator import Accumulator, PartitionQueue, PendingBatch
from stele.producer.idempotence import Entry, Failed
from stele.producer.producer_ids import ProducerIds
from stele.producer.reasons import Surroundings, why_waiting
from stele.producer.transactional import Transactional
from stele.wire.compression import Compression

log = logging.getLogger(__name__)

GAPS_FROM_DEPOSED = 5
"""We blame this many gaps in a row on a deposed leader. After that the records count as lost."""

SLOW_ANSWER_S = 1.0
"""If an answer takes longer, the sender asks whether the leader still leads."""

# Codes of a broker that refused before it appended. After any other failure the batch may be or
# become part of the log. Example: a leader that is deposed while it waits for followers answers
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
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
_TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
_FENCED = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
_ENDS_TRANSACTION = frozenset(
    {
        *_FENCED,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""Errors after which a transaction must be aborted. Its producer may go on."""
_TOPIC_GONE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)

_METRICS = "org.apache.kafka.producer."
"""Begins the names of a producer's metrics. The time of throttles is in milliseconds."""


@dataclass(slots=True)
class Item:
    """One batch of a request."""

    queue: PartitionQueue
    entry: Entry[PendingBatch]
    attempt: int
    leader: Leader
    topic_id: bytes

    @property
    def partition(self) -> TopicPartition:
        return self.queue.partition

    @property
    def is_current(self) -> bool:
        """Whether this attempt still counts and was not given up."""
        return self.entry.in_flight and self.entry.attempt == self.attempt


class Sender:
    def __init__(
        self,
        config: ProducerConfig,
        view: ClusterView,
        accumulator: Accumulator,
        on_failed: Callable[[PendingBatch, SteleError], None],
        on_fatal: Callable[[SteleError], None],
        on_drained: Callable[[PendingBatch], None],
        transactional: Transactional | None = None,
    ) -> None:
        self._transactional = transactional
        self._config = config
        self._view = view
        self._clock = view.world.clock
        self._accumulator = accumulator
        self._on_failed = on_failed
        self._on_fatal = on_fatal
        self._on_drained = on_drained
        self._compression = Compression.of(config.compression)
        self._requests: LeaderRequests[ProduceRequest, Item, ProduceAnswer] = LeaderRequests(
            view, view.plane.produce, self, max_in_flight=config.max_in_flight
        )
        self._producer_ids = ProducerIds(
            view, on_news=self.wake, on_refused=self._on_no_producer_id
        )
        self._asked_about_slow_at = 0.0
        self._sent_records = 0
        self._failed_records = 0

    def _measured(self) -> Measured:
        free = self._config.buffer_memory - self._accumulator.used_bytes
        return Measured(
            {f"{_METRICS}buffer.available.bytes": free},
            {
                f"{_METRICS}connection.creation.total": self._view.metrics.connections,
                f"{_METRICS}record.send.total": self._sent_records,
                f"{_METRICS}record.error.total": self._failed_records,
                f"{_METRICS}produce.throttle.time.total": self.throttled_s * 1000,
            },
        )

    def start(self) -> None:
        self._view.metrics.begin(self._measured)
        self._requests.start()

    def wake(self) -> None:
        self._requests.wake()

    def in_flight(self, broker_id: int) -> int:
        """The number of batches that were sent to the broker and not answered."""
        return self._requests.in_flight(broker_id)

    @property
    def throttled_s(self) -> float:
        return self._requests.throttled_s

    def why(self, queue: PartitionQueue, now: float) -> str:
        """Why the records in the queue are not delivered yet."""
        leader = self._view.leader(queue.partition)
        linger_until = 0.0
        if not queue.lane.window:
            batch = queue.waiting[0]  # a queue is asked for while it has records
            if not self._accumulator.is_ready(batch, now):
                linger_until = batch.created + self._config.linger_ms / 1000
        around = Surroundings(
            leader=leader,
            topic_error=self._view.topic_error(queue.partition.topic),
            broker_ready_at=0.0
            if leader is None
            else self._requests.ready_at(leader.broker_id, now),
            throttled_until=0.0
            if leader is None
            else self._requests.throttled_until(leader.broker_id),
            no_producer_id=self._producer_ids.reason,
            linger_until=linger_until,
        )
        return why_waiting(queue, around, now)

    async def close(self) -> None:
        """Stop at once. Batches that are not delivered stay in their queues."""
        self._requests.stop()
        await self._producer_ids.close()
        await self._requests.close()

    def on_error(self, error: Exception) -> None:
        """Fail everything. After a bug, or an answer that contradicts the sent batches, the state
        is unknown."""
        if not isinstance(error, SequenceError):
            log.error("the producer stops because of a bug in it", exc_info=error)
            error = SteleError(f"a bug in the producer, see the log: {error!r}")
        self._on_fatal(error)

    def _on_no_producer_id(self, cause: SteleError) -> None:
        if not self._requests.is_stopped:
            self._requests.stop()
            self._on_fatal(cause)

    # ------------------------------------------------------------------------ sending

    def turn(self, now: float) -> float:
        """Give up overdue batches, and send every batch that may be sent. Returns the time of the
        next one."""
        any_is_slow = self._requests.leave_deposed(now, SLOW_ANSWER_S)
        if any_is_slow and now - self._asked_about_slow_at > SLOW_ANSWER_S:
            self._asked_about_slow_at = now
            self._view.refresh_soon()
        return min(self._expire(now), self._send_ready(now))

    def _send_ready(self, now: float) -> float:
        """Send everything that may be sent now. Returns the time when there may be more."""
        next_at = now + LONGEST_PAUSE_S
        if self._transactional is not None:
            self._transactional.give_up_records()
            if not self._transactional.machine.may_send:
                return next_at
        while True:
            chosen: dict[int, list[tuple[PartitionQueue, Leader]]] = {}
            sizes: dict[int, int] = {}
            for queue in self._accumulator.active.values():
                at, leader = self._ready_at(queue, now)
                if leader is None:
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
                self._send(broker_id, queues, now)

    def _ready_at(self, queue: PartitionQueue, now: float) -> tuple[float, Leader | None]:
        """When the next batch of the queue may be sent, and to which broker. None: it must wait."""
        never = now + LONGEST_PAUSE_S
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
        if queue.retry.must_wait(leader, now):
            return queue.retry.at, None
        if leader is None:
            self._wait_for_leader(queue, now)
            return queue.retry.at, None
        if not self._prepare_lane(queue):
            return never, None
        at = self._requests.ready_at(leader.broker_id, now)
        return (at, None) if at > now else (now, leader)

    def _wait_for_leader(self, queue: PartitionQueue, now: float) -> None:
        code = self._view.topic_error(queue.partition.topic)
        because = f" ({code.name})" if code else ""
        reason = f"{queue.partition} has no leader that is known{because}"
        queue.retry.postpone(reason, now, awaits_leader=True)
        self._view.refresh_soon()

    def _prepare_lane(self, queue: PartitionQueue) -> bool:
        """Give the lane what it needs to send: the current topic id and a producer id."""
        lane = queue.lane
        topic = self._view.topic(queue.partition.topic)
        assert topic is not None  # it is known, since it has a leader
        if queue.topic_id != topic.topic_id:
            if lane.any_in_flight:
                return False
            if queue.topic_id:
                lane.restart()
                self._lose_topic(queue)
            queue.topic_id = topic.topic_id
        if self._transactional is not None:
            return self._join_transaction(queue, self._transactional)
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

    def _lose_topic(self, queue: PartitionQueue) -> None:
        """Its topic was deleted and created again, and the written records are lost."""
        tx = self._transactional
        if tx is not None and queue.last_identity == tx.machine.identity:
            name = queue.partition.topic
            cause = SteleError(f"topic {name!r} was deleted during the transaction, and made anew")
            tx.fail(cause, is_in_doubt=True)

    def _join_transaction(self, queue: PartitionQueue, tx: Transactional) -> bool:
        """Have the lane write as the producer of the present transaction."""
        lane, identity = queue.lane, tx.machine.identity
        if not tx.machine.may_send:  # another partition has lost its topic in this turn
            return False
        if lane.identity != identity:
            # Whatever takes its identity from a lane fails the transaction, and its sequences under
            # this identity are not certain. After that the producer goes on with another identity.
            assert identity is not None
            assert identity != queue.last_identity
            lane.give(identity)
            queue.last_identity = identity
        return True

    def _next_size(self, queue: PartitionQueue) -> int:
        entry = queue.lane.to_resend()
        return entry.batch.size_bytes if entry is not None else queue.waiting[0].size_bytes

    def _send(
        self, broker_id: int, queues: list[tuple[PartitionQueue, Leader]], now: float
    ) -> None:
        request = ProduceRequest(
            self._config.acks_number, self._config.request_timeout_ms, None, []
        )
        if self._transactional is not None:
            request.transactional_id = self._transactional.machine.transactional_id
            self._transactional.machine.used()
        deadline = now + self._config.request_timeout_ms / 1000
        items = []
        for queue, leader in queues:
            entry = queue.lane.to_resend() or self._admit(queue)
            deadline = min(deadline, max(self._delivery_deadline(entry.batch), now + 0.001))
            attempt = queue.lane.sending(entry)
            queue.sent_at, queue.sent_to = now, broker_id
            items.append(Item(queue, entry, attempt, leader, queue.topic_id))
            topic, number = queue.partition
            records = entry.batch.encoded(
                entry, self._compression, is_transactional=self._transactional is not None
            )
            request.partitions.append(ProducedPart(topic, queue.topic_id, number, records))
            # The partition was served and moves behind the others, so that none of them starves.
            self._accumulator.active[queue.partition] = self._accumulator.active.pop(
                queue.partition
            )
        if request.acks == 0:
            self._requests.post(broker_id, request, items, deadline, self._on_handed_over)
        else:
            self._requests.ask(broker_id, request, items, deadline)

    def _admit(self, queue: PartitionQueue) -> Entry[PendingBatch]:
        batch = queue.waiting.popleft()
        self._sent_records += batch.record_count
        if not batch.is_closed:
            batch.is_closed = True
            self._on_drained(batch)
        return queue.lane.admit(batch, batch.record_count)

    # ------------------------------------------------------------------------ answers

    def _on_handed_over(self, item: Item) -> None:
        """The batch was handed to the stream, and there will be no answer (acks=0)."""
        self._written(item, -1, -1)

    def on_answer(self, item: Item, answer: ProduceAnswer) -> None:
        code = answer.code
        lane, entry, name = item.queue.lane, item.entry, item.queue.partition
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            # The view may be old. The producer must not go back to a leader of an earlier epoch:
            # that one may lack this batch, and would call the next batch out of order.
            self._requests.take_hint(item, answer)
            item.queue.is_leader_told = answer.leader.broker_id >= 0
            offset = answer.base_offset if code is ErrorCode.NONE else -1
            self._written(item, offset, answer.log_append_time_ms)
            return
        said = answer.message or self._meaning(code, name.topic)
        reason = f"{name}: broker {item.leader.broker_id} answers {code.name}" + (
            f" ({answer.message})" if answer.message else ""
        )
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._may_be_deposed(item):
            self.on_lost(item, reason, maybe_taken=False)
            self._view.refresh_soon()
        elif self._transactional is not None and self._ends_transaction(code, entry):
            self._end_transaction(item, ApiError(code, f"{name}: {said}"))
        elif code in _FENCED:
            raise SequenceError(code, f"{name}: another instance uses this producer id ({said})")
        elif code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._note(lane.out_of_order(entry, f"{name}: {said}"))
            item.queue.retry.postpone(reason, self._clock.monotonic())
        elif code is ErrorCode.UNKNOWN_PRODUCER_ID:
            self._note(lane.unknown_producer(entry, f"{name}: {said}"))
        elif code.retriable:
            self._retry(item, code, answer, reason)
        elif code in _TOO_LARGE and lane.may_split(entry):
            self._split(item, reason)
        else:
            entry.maybe_written |= code not in REFUSED_BEFORE_APPEND
            self._note(lane.rejected(entry, ApiError(code, _advice(code, entry, str(name), said))))

    def _meaning(self, code: ErrorCode, topic: str) -> str:
        """The words for an answer without a text."""
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return missing_right(self._view.world.connector.security, "WRITE", "topic", topic)
        return code.name

    def _may_be_deposed(self, item: Item) -> bool:
        """Whether a broker that lacks earlier batches may be a leader of an earlier epoch than the
        leader that has them. Then the metadata soon name the later one."""
        if item.queue.is_leader_told or not item.entry.sent_as_head:
            return False
        item.queue.gaps += 1
        return item.queue.gaps < GAPS_FROM_DEPOSED

    def _ends_transaction(self, code: ErrorCode, entry: Entry[PendingBatch]) -> bool:
        is_gap = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and entry.sent_as_head
        return is_gap or code in _ENDS_TRANSACTION

    def _end_transaction(self, item: Item, cause: ApiError) -> None:
        """The next turn gives up the other batches of the transaction."""
        item.entry.maybe_written = True
        self._note(item.queue.lane.rejected(item.entry, cause))
        if self._transactional is not None:
            self._transactional.fail(cause, is_in_doubt=False)
        self.wake()

    def abandon(self, cause: SteleError) -> bool:
        """Fail all batches of a transaction. Whether any of them had been sent."""
        was_sent = False
        for queue in list(self._accumulator.active.values()):
            sent = queue.lane.abandon()
            was_sent |= bool(sent)
            batches = [*sent, *queue.waiting]
            queue.waiting.clear()
            for batch in batches:
                self._fail(batch, cause)
        return was_sent

    def _split(self, item: Item, reason: str) -> None:
        """Send a batch that is too large again, in halves."""
        queue, entry = item.queue, item.entry
        halves = self._accumulator.split(queue, entry.batch)
        log.info("%s: its %d records are sent in two batches", reason, entry.record_count)
        self._note(queue.lane.split(entry, [(half, half.record_count) for half in halves]))

    def _retry(self, item: Item, code: ErrorCode, answer: ProduceAnswer, reason: str) -> None:
        self.on_lost(item, reason, maybe_taken=code not in REFUSED_BEFORE_APPEND)
        if code in REFUSED_BEFORE_APPEND or code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            return
        if code in _TOPIC_GONE or not self._requests.take_hint(item, answer):
            self._view.refresh_soon()

    def on_lost(self, item: Item, reason: str, *, maybe_taken: bool) -> None:
        """The attempt has no known outcome. ``maybe_taken``: the batch may have been written."""
        queue = item.queue
        lane = queue.lane
        queue.retry.failed_leader = item.leader
        self._note(lane.unknown(item.entry) if maybe_taken else lane.refused(item.entry))
        now = self._clock.monotonic()
        # The delivery timeout may have cut the attempt short: that hides no earlier reason.
        was_cut_short = (
            now >= self._delivery_deadline(item.entry.batch)
            and now - queue.sent_at < self._config.request_timeout_ms / 1000
        )
        queue.retry.postpone((was_cut_short and queue.retry.reason) or reason, now)

    def _written(self, item: Item, base_offset: int, log_append_time_ms: int) -> None:
        queue = item.queue
        queue.retry.succeed()
        queue.gaps = 0
        batch = item.entry.batch
        self._note(queue.lane.written(item.entry))
        batch.succeed(base_offset, log_append_time_ms)
        self._finish(batch)

    def _note(self, failed: list[Failed[PendingBatch]]) -> None:
        for each in failed:
            self._fail(each.batch, each.cause)
            if self._transactional is not None:
                self._transactional.fail(each.cause, is_in_doubt=each.maybe_written)
                self.wake()

    def _fail(self, batch: PendingBatch, cause: SteleError) -> None:
        self._failed_records += batch.record_count
        batch.fail(cause)
        self._on_failed(batch, cause)
        self._finish(batch)

    def _finish(self, batch: PendingBatch) -> None:
        self._accumulator.finish(batch)
        queue = self._accumulator.active.get(batch.partition)
        if queue is not None and queue.is_empty:
            del self._accumulator.active[batch.partition]

    # ---------------------------------------------------------------------- deadlines

    def _delivery_deadline(self, batch: PendingBatch) -> float:
        return batch.created + self._config.delivery_timeout_ms / 1000

    def _expire(self, now: float) -> float:
        """Fail the batches whose delivery timeout is over. Returns when the next timeout is
        over."""
        next_at = now + LONGEST_PAUSE_S
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
                batch = queue.waiting[0]
                cause = self._timeout(queue, batch, maybe_written=False)
                queue.waiting.popleft()
                self._note([Failed(batch, cause, maybe_written=False)])
            if queue.waiting:
                next_at = min(next_at, self._delivery_deadline(queue.waiting[0]))
        return next_at

    def _timeout(
        self, queue: PartitionQueue, batch: PendingBatch, *, maybe_written: bool
    ) -> DeliveryTimeoutError:
        outcome = "it may have been written" if maybe_written else "it was not written"
        reason = self.why(queue, self._clock.monotonic())
        return DeliveryTimeoutError(
            f"a batch of {batch.record_count} records for {batch.partition} was not acknowledged "
            f"within delivery_timeout_ms={self._config.delivery_timeout_ms}; {outcome}. "
            f"Now: {reason}",
            maybe_written=maybe_written,
        )


def _advice(code: ErrorCode, entry: Entry[PendingBatch], partition: str, said: str) -> str:
    if code in _TOO_LARGE and entry.record_count == 1:
        batch = entry.batch
        return (
            f"{partition}: {said}. Its only record has about {batch.memory} bytes: raise the "
            "topic's max.message.bytes"
        )
    if code in _TOO_LARGE:
        return f"{partition}: {said}. Lower batch_size, or raise the topic's max.message.bytes"
    return f"{partition}: {said}"
