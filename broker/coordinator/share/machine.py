"""The share coordinator of one partition of ``__share_group_state`` (KIP-932)."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from broker.coordinator.layout import STRING_BYTES_MAX, is_too_long
from broker.coordinator.share.batches import merged
from broker.coordinator.share.letter_plans import newest_letters
from broker.coordinator.share.records import (
    StateKind,
    StateUpdate,
    decode_snapshot,
    decode_state_key,
    decode_update,
    snapshot_record,
    state_tombstone,
    update_record,
)
from broker.coordinator.share.types import (
    NO_COUNT,
    NO_EPOCH,
    NO_START,
    ForgetRequest,
    InitializeRequest,
    ReadRequest,
    ShareState,
    StateAnswer,
    StateKey,
    StateRequest,
    SummaryRequest,
    TopicIdsDeleted,
    WriteRequest,
)
from broker.coordinator.step import (
    STEP_BYTES,
    Decide,
    KeyValue,
    Now,
    Reply,
    Request,
    Step,
    Waiter,
    told,
)
from broker.share.values import RecordState, StateBatch
from stele.errors import ApiError, ErrorCode

UPDATES_PER_SNAPSHOT: Final = 500
LOG_RECORDS_MIN: Final = 1_000
"""A log that is not longer is not worth the snapshots that would let it be cut."""
_LOOKS_A_STEP: Final = 25
_DELIVERIES_MAX: Final = 32_767
_PERSISTED: Final = frozenset(RecordState) - {RecordState.ACQUIRED}


class _Entry:
    """A share partition with its persisted state."""

    __slots__ = ("end", "state", "updates")

    def __init__(self, state: ShareState, end: int) -> None:
        self.state = state
        # The offset after the last record. An answer about the state waits until it is committed.
        self.end = end
        self.updates = 0  # since the snapshot


class ShareMachine:
    """The states of all share partitions that the partition of the topic has; a
    ``broker.coordinator.step.Machine``.

    Invariants:

    - Of two leaders only one can persist. Reading raises the recorded leader epoch, and the answer
      waits until this is committed.
    - Neither the leader epoch nor the state epoch of a share partition goes back, nor, within a
      state epoch, its start offset. A record that is done stays done.
    - The records from ``needed_from`` on make the same states as the whole log.
    - The records that this rests on are committed when ``cut_offset`` says so. Otherwise a change
      of the leader could take away a new snapshot when the old one is deleted already.
    """

    def __init__(
        self,
        has_partition: Callable[[bytes, int], bool],
        updates_per_snapshot: int = UPDATES_PER_SNAPSHOT,
        log_records_min: int = LOG_RECORDS_MIN,
        on_cut_due: Callable[[], None] = lambda: None,
    ) -> None:
        """``has_partition``: whether the topic with this id has this partition now. ``on_cut_due``
        is called when ``cut_offset`` has risen. It must not call the machine at once."""
        self._has_partition = has_partition
        self._updates_per_snapshot = updates_per_snapshot
        self._log_records_min = log_records_min
        self._entries: dict[StateKey, _Entry] = {}
        self._of_topic: dict[bytes, dict[StateKey, None]] = {}
        # The offset of each share partition's snapshot, the oldest first.
        self._snapshots: OrderedDict[StateKey, int] = OrderedDict()
        self._end_offset = 0
        self.cut_offset = 0
        """The log may be cut below this offset now."""
        # The next cut: its offset, and the offset below which everything has to be committed first.
        self._next_cut: tuple[int, int] | None = None
        self._on_cut_due = on_cut_due
        # The offset after the last tombstone.
        self._removed_end = -1
        # Topics that may be deleted.
        self._doubtful: deque[bytes] = deque()
        self._not_before_ms = 0.0
        self._is_loaded = False
        self._decisions: dict[type[Request[Any]], Decide] = {
            InitializeRequest: self._initialize,
            ReadRequest: self._read,
            WriteRequest: self._write,
            SummaryRequest: self._summarize,
            ForgetRequest: self._forget,
        }

    # ------------------------------------------------------------------------- events

    def take(self, request: StateRequest, waiter: Waiter, now: Now) -> Step:
        try:
            self._check(request)
            return self._decisions[type(request)](request, waiter, now)
        except ApiError as error:
            entry = self._entries.get(request.key)
            answer = StateAnswer(error.code, error.message)
            return told(waiter, answer, self._removed_end if entry is None else entry.end)

    def note(self, news: TopicIdsDeleted, now: Now) -> None:
        """Have the states of deleted topics removed, some at a time, by ``tick``."""
        self._doubtful.extend(each for each in news.topic_ids if each in self._of_topic)

    def _check(self, request: StateRequest) -> None:
        key = request.key
        if not key.group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        if is_too_long(key.group_id, most=STRING_BYTES_MAX):
            why = f"the group id is longer than {STRING_BYTES_MAX} bytes"
            raise ApiError(ErrorCode.INVALID_GROUP_ID, why)
        if isinstance(request, ForgetRequest):
            return
        if not self._has_partition(key.topic_id, key.partition):
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"no topic has the id and the partition of {key.coordinator_key}",
            )

    def _initialize(self, request: InitializeRequest, waiter: Waiter, now: Now) -> Step:
        key, entry = request.key, self._entries.get(request.key)
        done = StateAnswer(ErrorCode.NONE)
        snapshot_epoch, leader_epoch = 0, NO_EPOCH
        if entry is not None:
            before = entry.state
            if request.start_offset == NO_START or request.state_epoch == before.state_epoch:
                return told(waiter, done, entry.end)
            if request.state_epoch < before.state_epoch:
                raise ApiError(
                    ErrorCode.FENCED_STATE_EPOCH,
                    f"{key.coordinator_key} has the state epoch {before.state_epoch}, and "
                    f"{request.state_epoch} is older",
                )
            snapshot_epoch, leader_epoch = before.snapshot_epoch + 1, before.leader_epoch
        state = ShareState(
            snapshot_epoch,
            request.state_epoch,
            leader_epoch,
            request.start_offset,
            NO_COUNT if request.start_offset == NO_START else 0,
            now.time_ms,
            now.time_ms,
        )
        return Step([snapshot_record(key, state)], [Reply(waiter, done)])

    def _read(self, request: ReadRequest, waiter: Waiter, now: Now) -> Step:
        entry = self._known(request.key)
        _check_leader(request.key, entry.state, request.leader_epoch)
        if request.leader_epoch == entry.state.leader_epoch:
            return told(waiter, StateAnswer(ErrorCode.NONE, None, entry.state), entry.end)
        update = StateUpdate(entry.state.snapshot_epoch, request.leader_epoch)
        state = changed(entry.state, update)
        records = [self._record(request.key, entry, update, now)]
        return Step(records, [Reply(waiter, StateAnswer(ErrorCode.NONE, None, state))])

    def _write(self, request: WriteRequest, waiter: Waiter, now: Now) -> Step:
        entry = self._known(request.key)
        state = entry.state
        _check_leader(request.key, state, request.leader_epoch)
        if request.state_epoch != state.state_epoch:
            raise ApiError(
                ErrorCode.FENCED_STATE_EPOCH,
                f"{request.key.coordinator_key} has the state epoch {state.state_epoch}, not "
                f"{request.state_epoch}: the leader has to load the state again",
            )
        for why in map(_mistake, request.batches):
            if why is not None:
                raise ApiError(ErrorCode.INVALID_REQUEST, why)
        update = StateUpdate(
            state.snapshot_epoch,
            request.leader_epoch,
            request.start_offset,
            request.complete_count,
            request.batches,
            request.letters,
        )
        records = [self._record(request.key, entry, update, now)]
        return Step(records, [Reply(waiter, StateAnswer(ErrorCode.NONE))])

    def _record(self, key: StateKey, entry: _Entry, update: StateUpdate, now: Now) -> KeyValue:
        """An update, or the snapshot that it leads to if there were many updates."""
        if entry.updates < self._updates_per_snapshot:
            return update_record(key, update)
        return _next_snapshot(key, changed(entry.state, update), now)

    def _summarize(self, request: SummaryRequest, waiter: Waiter, now: Now) -> Step:
        entry = self._known(request.key)
        summary = entry.state._replace(batches=(), letters=None)
        return told(waiter, StateAnswer(ErrorCode.NONE, None, summary), entry.end)

    def _forget(self, request: ForgetRequest, waiter: Waiter, now: Now) -> Step:
        done = StateAnswer(ErrorCode.NONE)
        if request.key not in self._entries:
            return told(waiter, done, self._removed_end)
        return Step([state_tombstone(request.key)], [Reply(waiter, done)])

    def _known(self, key: StateKey) -> _Entry:
        """Raises ApiError INVALID_REQUEST: there is no state."""
        entry = self._entries.get(key)
        if entry is None:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"{key.coordinator_key} is not initialized: a member of the share group has to "
                "subscribe to the topic first",
            )
        return entry

    # ------------------------------------------------------------------------- records

    def replay(self, offset: int, record: KeyValue, now: Now) -> None:
        if not self._end_offset:
            self.cut_offset = offset  # the log begins here
        kind, key = decode_state_key(record.key)
        if record.value is None:
            if kind is StateKind.SNAPSHOT:
                self._remove(key, offset)
        elif kind is StateKind.SNAPSHOT:
            self._set(key, decode_snapshot(record.value), offset)
        else:
            self._update(key, decode_update(record.value), offset)
        self._end_offset = offset + 1

    def _set(self, key: StateKey, state: ShareState, offset: int) -> None:
        self._entries[key] = _Entry(state, offset + 1)
        self._of_topic.setdefault(key.topic_id, {})[key] = None
        self._snapshots[key] = offset
        self._snapshots.move_to_end(key)

    def _update(self, key: StateKey, update: StateUpdate, offset: int) -> None:
        entry = self._entries.get(key)
        if entry is None:
            return  # the log was cut behind its snapshot, and a later record has the state
        if entry.state.snapshot_epoch != update.snapshot_epoch:
            raise ValueError(f"an update of another snapshot of {key.coordinator_key}")
        entry.state = changed(entry.state, update)
        entry.end = offset + 1
        entry.updates += 1

    def _remove(self, key: StateKey, offset: int) -> None:
        self._removed_end = offset + 1
        if self._entries.pop(key, None) is None:
            return
        del self._snapshots[key]
        of_topic = self._of_topic[key.topic_id]
        del of_topic[key]
        if not of_topic:
            del self._of_topic[key.topic_id]

    def replay_pending(self, offset: int, record: KeyValue, producer_id: int, now: Now) -> None:
        raise ValueError("a transaction that changes the state of a share partition")

    def end_transaction(self, offset: int, producer_id: int, *, commits: bool, now: Now) -> None:
        """No transaction has records here."""

    # ------------------------------------------------------------------------- life

    def loaded(self, now: Now) -> Step:
        """Topics may have been deleted while nobody coordinated their share partitions."""
        self._is_loaded = True
        self._doubtful = deque(self._of_topic)
        return Step()

    def committed(self, high_watermark: int) -> None:
        """A part of the log may be cut that is large enough to be worth it."""
        if not self._is_loaded:
            return
        if self._next_cut is None and self.needed_from - self.cut_offset >= self._log_records_min:
            self._next_cut = self.needed_from, self._end_offset
        if self._next_cut is not None and self._next_cut[1] <= high_watermark:
            self.cut_offset, _ = self._next_cut
            self._next_cut = None
            self._on_cut_due()

    def unloaded(self) -> list[Waiter]:
        return []  # every request is answered by its step

    @property
    def count(self) -> int:
        """How many share partitions have a state here."""
        return len(self._entries)

    def states(self) -> Iterator[tuple[StateKey, ShareState]]:
        """All share partitions and their states, to be looked at. Records that are not committed
        yet count."""
        for key, entry in self._entries.items():
            yield key, entry.state

    @property
    def needed_from(self) -> int:
        """The log may be cut below this offset: no share partition has its snapshot there."""
        return next(iter(self._snapshots.values()), self._end_offset)

    # ------------------------------------------------------------------------- time

    @property
    def _is_too_long(self) -> bool:
        """Whether one share partition that is rarely written holds back a large part of the log.

        The log is cut at the oldest snapshot. It may have twice as many records as there are share
        partitions, so each write pays for one new snapshot at most.
        """
        length = self._end_offset - self.needed_from
        return length > 2 * len(self._entries) + self._log_records_min

    @property
    def deadline_ms(self) -> float | None:
        has_work = self._is_loaded and (self._doubtful or self._is_too_long)
        return self._not_before_ms if has_work else None

    def tick(self, now: Now) -> Step:
        """Remove the states of a deleted topic, or let the log be cut."""
        for look in range(_LOOKS_A_STEP):
            if not self._doubtful:
                break
            gone = self._gone(self._doubtful[0])
            if gone:
                # After another topic the step has changed something, and must not have records.
                return Step(gone if look == 0 else [])
            self._doubtful.popleft()
            if not self._doubtful:
                return Step()
        if self._doubtful or not self._is_too_long:
            return Step()
        key = next(iter(self._snapshots))
        return Step([_next_snapshot(key, self._entries[key].state, now)])

    def _gone(self, topic_id: bytes) -> list[KeyValue]:
        """The tombstones for partitions that a topic does not have any more, as many as one step
        has."""
        records = []
        size = 0
        for key in self._of_topic.get(topic_id, ()):
            if size >= STEP_BYTES:
                break
            if not self._has_partition(topic_id, key.partition):
                records.append(state_tombstone(key))
                size += len(records[-1].key)
        return records

    def put_off(self, until_ms: float, now: Now) -> str:
        self._not_before_ms = until_ms
        return "the removal of old states of share partitions"


def changed(state: ShareState, update: StateUpdate) -> ShareState:
    """The state after an update."""
    start_offset = max(state.start_offset, update.start_offset)
    count = state.complete_count if update.complete_count == NO_COUNT else update.complete_count
    return state._replace(
        leader_epoch=max(state.leader_epoch, update.leader_epoch),
        start_offset=start_offset,
        complete_count=count,
        batches=merged(state.batches, update.batches, start_offset),
        letters=newest_letters(state.letters, update.letters),
    )


def _next_snapshot(key: StateKey, state: ShareState, now: Now) -> KeyValue:
    epoch = state.snapshot_epoch + 1
    return snapshot_record(key, state._replace(snapshot_epoch=epoch, write_ms=now.time_ms))


def _check_leader(key: StateKey, state: ShareState, leader_epoch: int) -> None:
    if leader_epoch < state.leader_epoch:
        raise ApiError(
            ErrorCode.FENCED_LEADER_EPOCH,
            f"a leader in epoch {state.leader_epoch} has loaded the state of "
            f"{key.coordinator_key}, and {leader_epoch} is older",
        )


def _mistake(batch: StateBatch) -> str | None:
    """Why a batch means nothing; None: it is well formed."""
    where = f"the batch from {batch.first} to {batch.last}"
    if not 0 <= batch.first <= batch.last:
        return f"{where} has no offsets"
    if batch.state not in _PERSISTED:
        return f"{where} has the state {int(batch.state)}, which is never persisted"
    if not 0 <= batch.delivery_count <= _DELIVERIES_MAX:
        return f"{where} has the delivery count {batch.delivery_count}"
    return None
