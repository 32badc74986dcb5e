"""One share partition at the leader of its partition: the machine with its log, its persisted state
and its time.

Life: ``EMPTY`` until the first fetch, then the state is loaded from the share coordinator. That
raises the recorded leader epoch, so earlier leaders can persist nothing from then on. In the end
the share partition is dropped: this broker leads the partition no more, the state was set anew, the
topic or the group is gone, or no member reads from this broker. A later fetch makes a new one.

Invariants:

- One write of the state is under way at a time. What comes meanwhile is the next write.
- A write has a start offset that rests on persisted decisions, and on those of the same write.
- An acknowledgement is answered when its write is persisted, or when that has failed.
- A record that is given up keeps its place in the window until its dead letter is written.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from broker.coordinator.share.types import (
    NO_START,
    ReadRequest,
    ShareState,
    StateAnswer,
    StateKey,
    StateRequest,
    WriteRequest,
)
from broker.replication.deadlines import Deadline, DeadlineWheel
from broker.replication.replica import Wake
from broker.replication.shared import SharedBatch
from broker.share.machine import SharePartition
from broker.share.values import NO_DEADLINE, AcknowledgementBatch, Acquired, ReadBatch, StateWrite
from broker.sharing.dead_letters import DeadLetters, LetterOffice
from broker.sharing.settings import SharePartitionSettings
from broker.sharing.window_description import DescribedWindow, describe_window
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.world import Clock

logger = logging.getLogger(__name__)

_STATE_TIMEOUT_S: Final = 10.0
"""How long the share coordinator is asked for the state, or to persist it, before that counts as
failed."""

_RELOADED: Final = {
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_STATE_EPOCH: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_REQUEST: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}
"""Refusals of the share coordinator that say that what was loaded is not the state any more, and
what members are answered. At each of them a member asks for the newest metadata and fetches
again. INVALID_REQUEST: there is no state, since the group was deleted, or no member subscribes."""


class SharedLog(Protocol):
    """``broker.replication.shared.SharedPartition``."""

    @property
    def id(self) -> PartitionId: ...

    @property
    def leader_epoch(self) -> int: ...

    @property
    def is_led(self) -> bool: ...

    @property
    def refusal(self) -> ErrorCode: ...

    @property
    def start_offset(self) -> int: ...

    def end_offset(self, *, read_committed: bool) -> int: ...

    async def offset_of_time(self, time_ms: int) -> int: ...

    async def read(
        self, offset: int, max_bytes: int, *, read_committed: bool
    ) -> Sequence[SharedBatch]: ...

    def watch(self, token: object, wake: Wake) -> None: ...

    def unwatch(self, token: object) -> None: ...


class States(Protocol):
    """``broker.coordinator.share_states.ShareStates``."""

    async def ask(self, request: StateRequest, timeout_s: float) -> StateAnswer: ...


class Waiting(Protocol):
    """``broker.sharing.fetching.ShareFetch``."""

    def wake(self) -> bool:
        """Look for records again. Returns whether the fetch was at rest until now."""
        ...


class LedSharePartition:
    """The driver of one share partition."""

    def __init__(
        self,
        key: StateKey,
        log: SharedLog,
        settings: SharePartitionSettings,
        *,
        states: States,
        clock: Clock,
        deadlines: DeadlineWheel,
        office: LetterOffice,
        on_dropped: Callable[[LedSharePartition], None],
    ) -> None:
        self.key = key
        self.log = log
        self.settings = settings
        self.failure: ApiError | None = None
        """Why it was dropped. It serves nobody any more."""
        self.is_reading = False
        """Whether a fetch reads the log for its member. Others wait, or they would read the
        same."""
        self.record_bytes = 0.0
        """The mean size of the last records that were given, as they are in their batches. 0: none
        were given."""
        self.is_retired = False
        """Whether it is dropped as soon as nothing is under way."""
        self._states = states
        self._clock = clock
        self._deadlines = deadlines
        self._measures = office.measures
        self._office = office
        self._on_dropped = on_dropped
        self._machine: SharePartition | None = None
        self._letters: DeadLetters | None = None  # with the machine
        self._persisted_start = 0  # the start offset that every later leader has at least
        self._state_epoch = 0
        self._waiting: dict[Waiting, None] = {}
        # Writes that no request has yet, in order.
        self._queue: list[StateWrite] = []
        # Acknowledgements and dead letters that wait until a write is persisted, by its number.
        self._acknowledging: dict[int, asyncio.Future[None]] = {}
        self._deadline: Deadline | None = None
        self._deadline_ms = NO_DEADLINE
        self._task: asyncio.Task[None] | None = None  # loads or writes
        self._begin(self._load())

    def __repr__(self) -> str:
        return f"share partition {self.key.coordinator_key} of {self.log!r}"

    # ------------------------------------------------------------------------- questions

    @property
    def machine(self) -> SharePartition | None:
        """None while the state is loaded, and after the end. To be looked at only."""
        return self._machine

    def describe(self, from_offset: int, most: int) -> DescribedWindow | None:
        """At most so many ranges of its window; None while the state is loaded."""
        if self._machine is None:
            return None
        time_ms = self._clock.time_ms()
        return describe_window(
            self._machine, self._now_ms(), time_ms, from_offset, most, self.letter_trouble
        )

    def fetch_offset(self) -> int | None:
        """From where a member's next records are to be read; None: there are none now."""
        if self._machine is None:
            return None
        self.follow_log_start()
        offset = self._machine.fetch_offset()
        end = self.log.end_offset(read_committed=self.settings.read_committed)
        return None if offset is None or offset >= end else offset

    def wait(self, fetch: Waiting) -> None:
        """Have a fetch woken when there may be records for it, or when it is dropped.

        One record wakes one fetch. So each fetch that has read, or that leaves, wakes another one
        if records are left: it may have been woken for records that it does not take.
        """
        if not self._waiting:
            self.log.watch(self, self._wake_one)
        self._waiting[fetch] = None

    def pass_on(self) -> None:
        """Wake one of the fetches that wait, if there are records for it."""
        if self.is_reading or not self._waiting or self.fetch_offset() is None:
            return  # a fetch that reads passes on what it leaves
        self._wake_one()

    def forget(self, fetch: Waiting) -> None:
        self._waiting.pop(fetch, None)
        if self._waiting:
            self.pass_on()
        else:
            self.log.unwatch(self)

    # ------------------------------------------------------------------------- members

    def acquire(
        self,
        member: str,
        offset: int,
        read: Sequence[SharedBatch],
        max_records: int,
        *,
        is_strict: bool,
    ) -> list[Acquired]:
        """Give records to a member, out of what was read from ``offset`` on."""
        machine = self._machine
        if machine is None:
            return []
        # Records may have been done while the log was read.
        offset = max(offset, machine.start_offset)
        found = [
            ReadBatch(each.first, each.last, each.is_deliverable)
            for each in read
            if each.last >= offset
        ]
        acquired = machine.acquire(
            member, offset, found, max_records, self._now_ms(), is_strict=is_strict
        )
        self._measures.delivered(acquired)
        self._set_timer()
        return acquired

    def acknowledge(
        self, member: str, batches: Sequence[AcknowledgementBatch]
    ) -> asyncio.Future[None]:
        """Take a member's decisions, all or none. Raises ApiError INVALID_REQUEST,
        INVALID_RECORD_STATE: then none of them is taken.

        They count when the future has its result. It raises ApiError if the share coordinator
        refuses them: then none of them counts.
        """
        machine = self._machine
        if machine is None:
            raise ApiError(
                ErrorCode.INVALID_RECORD_STATE,
                "the partition has a new leader, which has given nobody any record yet",
            )
        start_offset = machine.start_offset
        write = machine.acknowledge(member, batches, self._now_ms())
        self._set_timer()
        if write is None and any(
            each.first < start_offset and each.last >= self._persisted_start for each in batches
        ):
            # The records are done here, by the end of their locks. A later leader does not know
            # that before it is persisted, and would deliver what it was told is accepted.
            write = machine.restate()
        if write is None:
            counted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            counted.set_result(None)
        else:
            counted = self._persisted(write)
        counted.add_done_callback(functools.partial(self._measure, batches))
        return counted

    def _measure(
        self, batches: Sequence[AcknowledgementBatch], counted: asyncio.Future[None]
    ) -> None:
        # A fetch that has failed does not ask for the outcome of its acknowledgements.
        if not counted.cancelled() and counted.exception() is None:
            self._measures.acknowledged(batches)

    def end_session(self, member: str) -> None:
        """The member is gone. Its records are available."""
        if self._machine is not None:
            self._changed(self._machine.end_session(member, self._now_ms()))

    def configure(self, settings: SharePartitionSettings) -> None:
        self.settings = settings
        if self._machine is not None:
            self._machine.limits = settings.limits
            self.pass_on()  # the window may be larger

    # ------------------------------------------------------------------------- dead letters

    @property
    def writes_letters(self) -> bool:
        """Whether records wait for their dead letters."""
        return self._letters is not None and self._letters.is_under_way

    @property
    def letter_trouble(self) -> str | None:
        """Why dead letters cannot be written now."""
        return None if self._letters is None else self._letters.trouble

    async def persist(self, write: StateWrite) -> None:
        """Raises ApiError: whether it is persisted is unknown."""
        await self._persisted(write)

    def _persisted(self, write: StateWrite) -> asyncio.Future[None]:
        waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._acknowledging[write.number] = waiting
        self._persist(write)
        return waiting

    def letters_ended(self) -> None:
        self._drop_if_retired()

    # ------------------------------------------------------------------------- state

    def _begin(self, work: object) -> None:
        assert asyncio.iscoroutine(work)
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(work, name=f"share-{self.key.coordinator_key}")

    async def _load(self) -> None:
        try:
            self._machine = await self._loaded()
        except ApiError as error:
            self.drop(error)
            return
        except Exception:
            logger.exception("%r cannot be loaded", self)
            self.drop(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the state cannot be loaded"))
            return
        self._task = None
        self._go_on()
        self.pass_on()
        self._drop_if_retired()

    async def _loaded(self) -> SharePartition:
        """Raises ApiError."""
        answer = await self._states.ask(
            ReadRequest(self.key, self.log.leader_epoch), _STATE_TIMEOUT_S
        )
        state = self._accepted(answer)
        assert state is not None
        self._state_epoch = state.state_epoch
        start = state.start_offset
        if start == NO_START:
            # It is persisted before the first record is delivered. A later leader would otherwise
            # begin at another one, and with `latest` leave out what nobody has acknowledged.
            start = await self._first_offset()
            self._accepted(await self._ask_to_write(start, 0, ()))
        self._persisted_start = start
        batches = [each for each in state.batches if each.last >= start]
        machine = SharePartition(start, batches, self.settings.limits, self._now_ms())
        self._letters = DeadLetters(
            self,
            self._office,
            machine,
            state.letters,
            group_id=self.key.group_id,
            partition=self.log.id,
        )
        return machine

    def _accepted(self, answer: StateAnswer) -> ShareState | None:
        if answer.error is not ErrorCode.NONE:
            raise _told(answer)
        if not self.log.is_led:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return answer.state

    async def _first_offset(self) -> int:
        settings, log = self.settings, self.log
        if settings.begins_earliest:
            return log.start_offset
        if settings.begins_latest:
            return log.end_offset(read_committed=False)
        return await log.offset_of_time(self._clock.time_ms() - settings.begins_ago_ms)

    async def _ask_to_write(
        self, start_offset: int, complete_count: int, writes: Sequence[StateWrite]
    ) -> StateAnswer:
        batches = tuple(
            each for write in writes for each in write.batches if each.last >= start_offset
        )
        request = WriteRequest(
            self.key,
            self._state_epoch,
            self.log.leader_epoch,
            start_offset,
            complete_count,
            batches,
            next((each.letters for each in writes if each.letters is not None), None),
        )
        return await self._states.ask(request, _STATE_TIMEOUT_S)

    def _persist(self, write: StateWrite) -> None:
        self._queue.append(write)
        if self._task is None:
            self._begin(self._write_all())

    async def _write_all(self) -> None:
        try:
            while self._queue:
                await self._write_queue()
        except Exception:
            logger.exception("%r cannot go on", self)
            self.drop(ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the state cannot be persisted"))
            return
        self._task = None
        self._drop_if_retired()

    async def _write_queue(self) -> None:
        """One request with all that waits."""
        machine = self._machine
        assert machine is not None
        writes, self._queue = self._queue, []
        # The decisions of these writes count only when they are persisted.
        decided = sum(
            each.last - each.first + 1
            for write in writes
            if write.number in self._acknowledging and not write.is_of_letters
            for each in write.batches
            if each.state.is_final or each.state.is_archiving
        )
        start_offset = machine.start_offset
        answer = await self._ask_to_write(start_offset, machine.complete_count + decided, writes)
        if self._machine is None:
            return  # it was dropped meanwhile, and every waiting member was refused
        if answer.error in _RELOADED:
            logger.info("%r is dropped: %s", self, answer.message)
            self.drop(_told(answer))
            return
        error = _told(answer) if answer.error is not ErrorCode.NONE else None
        if error is None:
            self._persisted_start = start_offset
        else:
            logger.warning("%r: its state could not be persisted: %s", self, error)
        for write in writes:
            self._settle(machine, write, error)
        self._go_on()
        self.pass_on()

    def _settle(self, machine: SharePartition, write: StateWrite, error: ApiError | None) -> None:
        waiting = self._acknowledging.pop(write.number, None)
        if error is None:
            machine.written(write.number, self._now_ms())
        else:
            following = machine.failed(write.number, self._now_ms())
            if following is not None:
                self._queue.append(following)
        if waiting is not None and not waiting.done():
            if error is None:
                waiting.set_result(None)
            else:
                waiting.set_exception(error)

    def retire(self) -> None:
        """No member of the group reads from this broker. When the state is written, it need not be
        known here. An administrator may set it anew, which the next member must not miss."""
        self.is_retired = True
        self._drop_if_retired()

    def _drop_if_retired(self) -> None:
        if self.is_retired and self._task is None and not self.writes_letters:
            self.drop(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "nobody reads it here"))

    def drop(self, why: ApiError) -> None:
        """It serves nobody any more. A write that is under way may still be persisted: whoever
        waits for it does not learn the outcome."""
        if self.failure is not None:
            return
        self.failure = why
        self._machine = None
        if self._letters is not None:
            self._letters.stop()
            self._letters = None
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        self._task = None
        if self._deadline is not None:
            self._deadline.cancel()
        acknowledging, self._acknowledging = self._acknowledging, {}
        for waiting in acknowledging.values():
            if not waiting.done():
                waiting.set_exception(ApiError(why.code, why.message))
        self._queue.clear()
        self._on_dropped(self)
        self._wake_all()

    # ------------------------------------------------------------------------- time and changes

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def follow_log_start(self) -> None:
        """Records that retention or DeleteRecords took are done."""
        machine = self._machine
        if machine is not None and machine.start_offset < self.log.start_offset:
            if self._letters is not None:
                self._letters.left_window(self.log.start_offset)
            write = machine.log_begins_at(self.log.start_offset, self._now_ms())
            if write is not None:
                self._persist(write)

    def _changed(self, write: StateWrite | None) -> None:
        """Records may have become available."""
        if write is not None:
            self._persist(write)
        self._set_timer()
        self._write_letters()
        self.pass_on()

    def _write_letters(self) -> None:
        if self._letters is not None:
            self._letters.begin()

    def _go_on(self) -> None:
        """After a load or a write: what has come due meanwhile."""
        self.follow_log_start()
        self._set_timer()
        self._write_letters()

    def _wake_one(self) -> None:
        """Wake the first fetch that is at rest. Those before it look again, too."""
        for each in self._waiting:
            if each.wake():
                return

    def _wake_all(self) -> None:
        for each in self._waiting:
            each.wake()

    def _set_timer(self) -> None:
        machine = self._machine
        at_ms = NO_DEADLINE if machine is None else machine.next_deadline_ms
        if at_ms == self._deadline_ms and self._deadline is not None:
            return
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._deadline_ms = at_ms
        if at_ms != NO_DEADLINE:
            delay_ms = max(0, at_ms - self._now_ms())
            self._deadline = self._deadlines.add(delay_ms, self._on_time)

    def _on_time(self) -> None:
        self._deadline = None
        if self._machine is not None:
            self._changed(self._machine.advance(self._now_ms()))


def _told(answer: StateAnswer) -> ApiError:
    """The error that members get for a refusal of the share coordinator."""
    code = _RELOADED.get(answer.error, answer.error)
    return ApiError(code, answer.message or answer.error.name)
