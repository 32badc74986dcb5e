"""One hosted partition in one leader epoch: its machine, its log, and the waiting requests.

Requests of one turn of the event loop share a batch, because a batch costs a sync on every in-sync
replica: a thousand commits that come at once cost a few syncs. Each request is decided on the state
after the requests before it.

No answer may depend on records that could vanish. An answer leaves when the high watermark has
passed all records that it depends on, and only while this broker's lease holds. Otherwise a
coordinator that was replaced without knowing it would answer with old offsets, although its
successor has newer ones.

A failing event concerns no other event. If the machine cannot decide it, it has made no records,
and only its own request is refused. A deadline whose step fails or fits into no batch is put off by
itself. The shard is loaded anew only if the machine and its log may differ.
"""

from __future__ import annotations

import asyncio
import bisect
import enum
import logging
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

from broker.coordinator.errors import coordinator_error
from broker.coordinator.step import (
    KeyValue,
    Machine,
    Now,
    Producer,
    Reply,
    Request,
    Step,
    Waiter,
)
from broker.replication.deadlines import Deadline, DeadlineWheel
from broker.replication.hosted import Loaded
from broker.replication.replica import OnMarker, ProduceToken
from stele.errors import ErrorCode
from stele.wire.batch import HEADER_SIZE, BatchBuilder, Record, record_size_bound
from stele.wire.control_records import EndMarker
from stele.world import Clock

logger = logging.getLogger(__name__)

M = TypeVar("M", bound=Machine)

RETRY_MS: Final = 1000.0
"""The pause before the shard tries again after a refusal of its log or a lost lease."""

PUT_OFF_MS: Final = 60_000.0
"""The pause before a deadline comes again whose step cannot be made. The cause may go away: an
administrator may raise max.message.bytes."""

_STEPS_A_TURN: Final = 100
_RECORDS_A_TURN: Final = 500
"""A turn of the loop begins no other step after so many records. Each takes some microseconds."""


class Log(Protocol):
    """The partition as a shard needs it: ``broker.replication.hosted.HostedPartition``."""

    @property
    def refusal(self) -> ErrorCode: ...

    @property
    def write_refusal(self) -> ErrorCode: ...

    @property
    def max_batch_bytes(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def high_watermark(self) -> int: ...

    def transaction_refusal(self, producer_id: int, producer_epoch: int) -> ErrorCode: ...

    def append(self, batch: bytearray, token: ProduceToken) -> int: ...

    def watch(self, on_advanced: Callable[[], None], on_marker: OnMarker) -> None: ...

    def unwatch(self) -> None: ...


class ShardState(enum.Enum):
    """How a shard treats requests."""

    LOADING = "loading"
    ACTIVE = "active"
    UNLOADED = "unloaded"


class _Undecided(NamedTuple):
    """One request that is not decided yet."""

    request: Request[Any]
    waiter: Waiter


class _Waiting(NamedTuple):
    """A decided answer that rests on records below ``after``, which are not committed yet."""

    after: int
    until_ms: float
    reply: Reply


class _Draft:
    """The batch that is being made. Its records are replayed already, at the offsets that they get
    when it is appended, which is in the same turn."""

    def __init__(self, base_offset: int, producer: Producer | None = None) -> None:
        self.builder = BatchBuilder(base_offset)
        self._producer = producer

    @property
    def end_offset(self) -> int:
        return self.builder.base_offset + self.builder.record_count

    def has_room(self, step: Step, size: int, max_batch_bytes: int) -> bool:
        """A batch belongs to one transaction, or to none."""
        return self.builder.size_bytes + size <= max_batch_bytes and step.producer == self._producer

    def build(self) -> bytearray:
        if self._producer is None:
            return self.builder.build()
        # As Kafka's coordinator numbers them. These sequences are never checked.
        return self.builder.build(
            producer_id=self._producer.id,
            producer_epoch=self._producer.epoch,
            base_sequence=0,
            is_transactional=True,
        )


class _Appended:
    """A batch on its way below the high watermark; the token of the partition machine's wait."""

    __slots__ = ("_end_offset", "_shard", "_start_offset")

    def __init__(self, shard: Shard[Any], start_offset: int, end_offset: int) -> None:
        self._shard = shard
        self._start_offset = start_offset
        self._end_offset = end_offset

    def acknowledge(self) -> None:
        self._shard.advanced()

    def refuse(self, error: ErrorCode) -> None:
        self._shard.uncommitted(self._start_offset, self._end_offset, error)


class Shard(Generic[M]):
    """The coordinator of one partition. Life: ``begin``, ``replay`` all records, ``activate``,
    ``submit``; ``unload`` at the end."""

    def __init__(
        self,
        machine: M,
        log: Log,
        *,
        clock: Clock,
        deadlines: DeadlineWheel,
        commit_timeout_ms: float,
        on_broken: Callable[[], None],
    ) -> None:
        """``commit_timeout_ms``: how long an answer waits for its records to be committed.
        ``on_broken`` is called when the shard has unloaded itself, because its machine may say
        something else than its log: the partition has to be loaded anew."""
        self.machine = machine
        self.state = ShardState.LOADING
        self._log = log
        self._clock = clock
        self._deadlines = deadlines
        self._commit_timeout_ms = commit_timeout_ms
        self._on_broken = on_broken
        # The end of the log when all of it was replayed; None before that.
        self._loaded_end: int | None = None
        # Whether the machine knows that it is loaded. Before that it decides nothing.
        self._is_begun = False
        self._asked: list[_Undecided] = []
        self._is_scheduled = False
        # Ordered by `after`; every `after` is above `_committed`.
        self._waiting: list[_Waiting] = []
        self._expiry: Deadline | None = None  # there exactly while an answer waits
        # The high watermark that the machine got last.
        self._committed = -1
        self._timer: Deadline | None = None
        self._timer_ms = float("inf")
        self._tick_not_before_ms = float("-inf")
        # Set while committed answers could not leave because there was no lease.
        self._untold: Deadline | None = None

    # ------------------------------------------------------------------ life

    def begin(self) -> None:
        """The load begins. The machine gets the high watermark before the replay: otherwise it
        would have to remember everything as not committed yet."""
        self._log.watch(self.advanced, self.end_transaction)
        self.advanced()

    def replay(self, loaded: Loaded) -> int:
        """The next records of the log, while loading. Returns the bytes of their keys and
        values."""
        if loaded.marker is not None:
            self._end(loaded.records[0].offset, loaded.producer_id, loaded.marker)
            return 0
        return self._replay(loaded.records, self._replayer(loaded.producer_id))

    def _replay(
        self, records: Sequence[Record], replay: Callable[[int, KeyValue, Now], None]
    ) -> int:
        now, size = self._now(), 0
        for offset, _, key, value, _ in records:
            if key is None:
                logger.warning("%r: the record at %d has no key", self._log, offset)
                continue
            size += len(key) + len(value or b"")
            try:
                replay(offset, KeyValue(bytes(key), None if value is None else bytes(value)), now)
            except ValueError as error:
                logger.warning("%r: the record at %d is passed over: %s", self._log, offset, error)
        return size

    def _replayer(self, producer_id: int) -> Callable[[int, KeyValue, Now], None]:
        """The function that replays records of a transaction, or of none (-1), in the machine."""
        if producer_id < 0:
            return self.machine.replay

        def replay(offset: int, record: KeyValue, now: Now) -> None:
            self.machine.replay_pending(offset, record, producer_id, now)

        return replay

    def end_transaction(self, offset: int, producer_id: int, marker: EndMarker) -> None:
        """A marker was appended. While the log is still read, it is read, too."""
        if self.state is ShardState.UNLOADED or self._loaded_end is None:
            return
        try:
            self._end(offset, producer_id, marker)
        except Exception as error:
            self._break(error)

    def _end(self, offset: int, producer_id: int, marker: EndMarker) -> None:
        self.machine.end_transaction(offset, producer_id, commits=marker.commit, now=self._now())

    def activate(self) -> None:
        """All records of the log have been replayed. Requests are decided once all of them are
        committed: the previous coordinator may have answered with the last ones, and this broker
        may not know yet that they are committed."""
        self._loaded_end = self._log.end_offset
        self.advanced()

    def unload(self) -> None:
        """Another broker leads the partition, or none; all waiting requests are refused."""
        if self.state is ShardState.UNLOADED:
            return
        self.state = ShardState.UNLOADED
        self._log.unwatch()
        for deadline in (self._timer, self._expiry, self._untold):
            if deadline is not None:
                deadline.cancel()
        # A request that fails while it is decided may be in the machine's hands, too.
        waiters = dict.fromkeys(each.reply.waiter for each in self._waiting)
        waiters |= dict.fromkeys(self.machine.unloaded())
        waiters |= dict.fromkeys(each.waiter for each in self._asked)
        self._waiting, self._asked = [], []
        for waiter in waiters:
            _refuse(waiter, ErrorCode.NOT_COORDINATOR)

    # ------------------------------------------------------------------ deciding

    @property
    def request_refusal(self) -> ErrorCode:
        """Why requests are refused; NONE: they are decided."""
        match self.state:
            case ShardState.ACTIVE:
                return ErrorCode.NONE
            case ShardState.LOADING:
                return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            case ShardState.UNLOADED:
                return ErrorCode.NOT_COORDINATOR

    def submit(self, request: Request[Any], waiter: Waiter) -> None:
        """Have a request decided in the next turn of the loop, behind those that came before."""
        if self.state is not ShardState.ACTIVE:
            _refuse(waiter, self.request_refusal)
            return
        self._asked.append(_Undecided(request, waiter))
        self._schedule()

    def inform(self, news: object) -> None:
        """Have the machine take note of something, whether the log takes records or not. It makes
        no records of it now, but may have a deadline for that. Without effect while the machine is
        not loaded: ``loaded`` looks at everything."""
        if self.state is not ShardState.ACTIVE or not self._is_begun:
            return
        try:
            self.machine.note(news, self._now())
        except Exception as error:  # it may lack a record
            self._break(error)
        else:
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._decide)

    def _decide(self) -> None:
        """Decide waiting requests and due deadlines, as many as fit into a turn."""
        self._is_scheduled = False
        if self.state is not ShardState.ACTIVE:
            return
        refusal = self._log.refusal
        if refusal is not ErrorCode.NONE:
            self._refuse_all(coordinator_error(refusal))
            return
        self.advanced()  # the high watermark may have risen while there was no lease
        if self.request_refusal is not ErrorCode.NONE:  # the machine has failed at that
            return
        now = self._now()
        draft = _Draft(self._log.end_offset)
        turn_end = draft.end_offset + _RECORDS_A_TURN
        try:
            draft = self._begin(draft, now)
            draft = self._decide_asked(draft, now, turn_end)
            self._append(self._tick(draft, now, turn_end))
        except Exception as error:
            self._break(error)
            return
        if self._asked:
            self._schedule()
        self._set_timer(now)

    def _break(self, error: Exception) -> None:
        """The machine may have replayed records that are not in the log, or only a part of a
        step."""
        logger.error("%r: the coordinator is loaded anew", self._log, exc_info=error)
        self.unload()
        self._on_broken()

    def _begin(self, draft: _Draft, now: Now) -> _Draft:
        """Tell the machine once that it is loaded."""
        if self._is_begun:
            return draft
        draft, error = self._take(self.machine.loaded(now), draft, now)
        self._is_begun = error is ErrorCode.NONE
        if not self._is_begun:
            self._refuse_all(coordinator_error(error))
        return draft

    def _decide_asked(self, draft: _Draft, now: Now, turn_end: int) -> _Draft:
        """Decide waiting requests, up to a bound: the rest comes in the next turn."""
        decided = 0
        try:
            for asked in self._asked[:_STEPS_A_TURN]:
                step = self._asked_step(asked, now)
                error = ErrorCode.UNKNOWN_SERVER_ERROR
                if step is not None:
                    draft, error = self._take(step, draft, now)
                decided += 1
                if error is not ErrorCode.NONE:
                    _refuse(asked.waiter, coordinator_error(error))
                if draft.end_offset >= turn_end:
                    break
        finally:
            del self._asked[:decided]  # a failing request is refused with the others
        return draft

    def _asked_step(self, asked: _Undecided, now: Now) -> Step | None:
        """The step of a request if it fits into a batch. None if the machine fails at it: then it
        has made no records, and still agrees with its log."""
        try:
            step = self.machine.take(asked.request, asked.waiter, now)
            while step.instead is not None and not self._fits(step):
                step = step.instead()
        except Exception:
            logger.exception("%r: a request is refused because of an unexpected error", self._log)
            return None
        return step

    def _refuse_all(self, error: ErrorCode) -> None:
        asked, self._asked = self._asked, []
        for each in asked:
            _refuse(each.waiter, error)
        now = self._now()
        self._tick_not_before_ms = now.monotonic_ms + RETRY_MS
        self._set_timer(now)

    def _tick(self, draft: _Draft, now: Now, turn_end: int) -> _Draft:
        """Handle due deadlines, one step at least, up to a bound."""
        for _ in range(_STEPS_A_TURN):
            if self._next_tick_ms() > now.monotonic_ms:  # so it is if it could not begin
                break
            step = self._due_step(now)
            if step is None:
                continue
            draft, error = self._take(step, draft, now)
            if error is not ErrorCode.NONE:
                self._tick_not_before_ms = now.monotonic_ms + RETRY_MS
            if draft.end_offset >= turn_end:
                break
        return draft

    def _due_step(self, now: Now) -> Step | None:
        """The step of the first deadline, which is due. None: it failed, and comes again later. The
        others do not wait for it."""
        until_ms = now.monotonic_ms + PUT_OFF_MS
        try:
            step = self.machine.tick(now)
            while step.instead is not None and not self._fits(step):
                step = step.instead()
        except Exception:
            what = self.machine.put_off(until_ms, now)
            logger.exception(
                "%r: %s failed. It is tried again in %d s",
                self._log, what, PUT_OFF_MS / 1000,
            )  # fmt: skip
            return None
        if self._fits(step):
            return step
        what = self.machine.put_off(until_ms, now)
        logger.error(
            "%r: %s needs %d bytes in one batch, and max.message.bytes of the topic allows %d. "
            "It is tried again in %d s: raise max.message.bytes",
            self._log, what, _size(step), self._log.max_batch_bytes, PUT_OFF_MS / 1000,
        )  # fmt: skip
        return None

    def _fits(self, step: Step) -> bool:
        """Whether a batch can hold the records of the step, with the room that the step must
        leave."""
        return not step.records or self._has_room(step, _size(step))

    def _has_room(self, step: Step, size_bytes: int) -> bool:
        return size_bytes + step.headroom <= self._log.max_batch_bytes

    def _take(self, step: Step, draft: _Draft, now: Now) -> tuple[_Draft, ErrorCode]:
        """Make the step's records part of the draft, or of the next one; or say why they cannot be
        appended: then the step has changed nothing. Gives out its answers, or has them wait."""
        if step.records:
            refusal = self._refusal(step)
            if refusal is not ErrorCode.NONE:
                return draft, refusal
            size_bytes = _size(step)
            if not self._has_room(step, size_bytes):
                return draft, step.too_large
            if not draft.has_room(step, size_bytes - HEADER_SIZE, self._log.max_batch_bytes):
                self._append(draft)
                draft = _Draft(self._log.end_offset, step.producer)
            replay = self._replayer(-1 if step.producer is None else step.producer.id)
            for record in step.records:
                offset = draft.end_offset
                draft.builder.append(*record, timestamp_ms=now.time_ms)
                replay(offset, record, now)
        for reply in step.replies:
            after = draft.end_offset if step.records else reply.after
            self._give(reply, after, now)
        return draft, ErrorCode.NONE

    def _refusal(self, step: Step) -> ErrorCode:
        """Why the log takes no records of the step; NONE: it does."""
        refusal = self._log.write_refusal
        if refusal is ErrorCode.NONE and step.producer is not None:
            return self._log.transaction_refusal(*step.producer)
        return refusal

    def _append(self, draft: _Draft) -> None:
        """Raises if the log does not take what the machine has replayed."""
        start, end = draft.builder.base_offset, draft.end_offset
        if start == end:
            return
        batch = draft.build()
        if self._log.append(batch, _Appended(self, start, end)) != start:
            raise RuntimeError(f"the records of {start} to {end} were appended elsewhere")

    # ------------------------------------------------------------------ answering

    def _give(self, reply: Reply, after: int, now: Now) -> None:
        if after <= self._committed:
            _answer(reply)
            return
        until_ms = now.monotonic_ms + self._commit_timeout_ms
        bisect.insort(self._waiting, _Waiting(after, until_ms, reply), key=lambda each: each.after)
        if self._expiry is None:
            self._expiry = self._deadlines.add(self._commit_timeout_ms, self._expire)

    def advanced(self) -> None:
        """The high watermark may have risen."""
        high_watermark = self._log.high_watermark
        if self.state is ShardState.LOADING and self._is_all_committed(high_watermark):
            self.state = ShardState.ACTIVE
            self._schedule()
        if high_watermark <= self._committed or self.state is ShardState.UNLOADED:
            return
        if self._log.refusal is not ErrorCode.NONE:
            self._advance_later()
            return
        self._committed = high_watermark
        try:
            self.machine.committed(high_watermark)
        except Exception as error:
            self._break(error)
            return
        count = bisect.bisect_right(self._waiting, high_watermark, key=lambda each: each.after)
        told, self._waiting = self._waiting[:count], self._waiting[count:]
        self._settle_expiry()
        for each in told:
            _answer(each.reply)
        if self.state is ShardState.ACTIVE:  # the machine may have a deadline now
            self._set_timer(self._now())

    def _advance_later(self) -> None:
        """Without a lease no answer may leave. No event announces a new lease, and the high
        watermark may not rise any more, so the shard looks again."""

        def look_again() -> None:
            self._untold = None
            self.advanced()

        if self._untold is None:
            self._untold = self._deadlines.add(RETRY_MS, look_again)

    def _is_all_committed(self, high_watermark: int) -> bool:
        return self._loaded_end is not None and high_watermark >= self._loaded_end

    def uncommitted(self, start_offset: int, end_offset: int, error: ErrorCode) -> None:
        """The records in between cannot be committed for now. The machine agrees with its log, and
        no client gets a success."""
        self._refuse(lambda each: start_offset < each.after <= end_offset, error)

    def _expire(self) -> None:
        self._expiry = None
        now_ms = self._now().monotonic_ms
        self._refuse(lambda each: each.until_ms <= now_ms, ErrorCode.REQUEST_TIMED_OUT)
        if self._waiting:
            next_ms = min(each.until_ms for each in self._waiting)
            self._expiry = self._deadlines.add(next_ms - now_ms, self._expire)

    def _refuse(self, which: Callable[[_Waiting], bool], error: ErrorCode) -> None:
        refused = [each for each in self._waiting if which(each)]
        self._waiting = [each for each in self._waiting if not which(each)]
        self._settle_expiry()
        for each in refused:
            _refuse(each.reply.waiter, coordinator_error(error))

    def _settle_expiry(self) -> None:
        if not self._waiting and self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    # ------------------------------------------------------------------ time

    def _now(self) -> Now:
        return Now(self._clock.monotonic() * 1000, self._clock.time_ms())

    def _next_tick_ms(self) -> float:
        deadline_ms = self.machine.deadline_ms if self._is_begun else 0.0
        if deadline_ms is None:
            return float("inf")
        return max(deadline_ms, self._tick_not_before_ms)

    def _set_timer(self, now: Now) -> None:
        at_ms = self._next_tick_ms()
        if at_ms == self._timer_ms:
            return
        self._timer_ms = at_ms
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at_ms < float("inf"):
            self._timer = self._deadlines.add(max(0.0, at_ms - now.monotonic_ms), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._timer_ms = float("inf")
        self._schedule()


def _size(step: Step) -> int:
    """The most that a batch with the step's records takes."""
    size_bytes = HEADER_SIZE
    for key, value in step.records:
        size_bytes += record_size_bound(key, value)
    return size_bytes


def _refuse(waiter: Waiter, error: ErrorCode) -> None:
    try:
        waiter.refuse(error)
    except Exception:  # others wait, too
        logger.exception("a refusal of a coordinator was not sent")


def _answer(reply: Reply) -> None:
    try:
        reply.waiter.answer(reply.answer)
    except Exception:  # an answer that cannot be sent is no matter of the machine's
        logger.exception("an answer of a coordinator was not sent")
