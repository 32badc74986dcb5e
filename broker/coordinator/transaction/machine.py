"""The transaction coordinator of one partition of ``__transaction_state``."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, Final

from broker.coordinator.deadlines import Deadline, DeadlineHeap
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
from broker.coordinator.transaction.adding import add
from broker.coordinator.transaction.config import TransactionConfig
from broker.coordinator.transaction.counters import TransactionCounters
from broker.coordinator.transaction.decision import Decision, abort, complete
from broker.coordinator.transaction.ending import end
from broker.coordinator.transaction.initializing import check, initialize
from broker.coordinator.transaction.records import (
    END_BYTES_MAX,
    RecordedTransaction,
    decode_key,
    transaction_record,
    transaction_tombstone,
    value_of,
)
from broker.coordinator.transaction.types import (
    NEEDS_PRODUCER_ID,
    NO_TIMEOUT_MS,
    STATES_BY_LABEL,
    AddPartitionsRequest,
    CompletionRequest,
    DescribedTransaction,
    DescribeRequest,
    EndRequest,
    ForgetRequest,
    InitAnswer,
    InitRequest,
    ListAnswer,
    ListedTransaction,
    ListRequest,
    MarkersDue,
    MarkersWritten,
    TransactionRef,
    TransactionState,
)
from stele.errors import ErrorCode
from stele.ids import TopicPartition

logger = logging.getLogger(__name__)

MAX_PATIENT: Final = 8
"""The most requests that wait for the markers of one transaction."""

_SLICE: Final = 500
"""Transactional ids that a step looks at when it searches for expired ones."""


class _Entry(Deadline):
    """A transactional id. As a deadline: when its open transaction has to be aborted, or when its
    markers are all written."""

    __slots__ = ("end", "transactional_id", "unmarked", "value")

    def __init__(self, deadlines: DeadlineHeap[_Entry], transactional_id: str) -> None:
        super().__init__(deadlines)
        self.transactional_id = transactional_id
        self.value: RecordedTransaction
        # The offset after the last record. An answer that rests on the value waits until this
        # record is committed.
        self.end = -1
        # The partitions whose markers are not known to be written. None: the markers are not asked
        # for yet, because the decision is not committed.
        self.unmarked: set[TopicPartition] | None = None


class TransactionMachine:
    """All transactional ids of the partition; a ``broker.coordinator.step.Machine``.

    The value of a transactional id is that of its last record, and changes only by ``replay``.
    """

    def __init__(
        self,
        config: TransactionConfig,
        transaction_version: Callable[[], int],
        on_markers_due: Callable[[], None] = lambda: None,
        counters: TransactionCounters | None = None,
    ) -> None:
        """``transaction_version`` is the level of the cluster now. ``on_markers_due`` is called
        when ``due_markers`` has something; it may not call back. ``counters`` are added to."""
        self._config = config
        self._transaction_version = transaction_version
        self._on_markers_due = on_markers_due
        self._counters = counters or TransactionCounters()
        self._is_loaded = False
        self._entries: dict[str, _Entry] = {}
        self._deadlines: DeadlineHeap[_Entry] = DeadlineHeap()
        # The offset after the last tombstone. When it is committed, clients may learn that a
        # transactional id is not known.
        self._removed_end = -1
        self._high_watermark = -1
        # The ends of PREPARE_* records, in order. The markers of a transaction are written when
        # its record is committed, because a marker cannot be taken back.
        self._uncommitted: deque[tuple[int, _Entry]] = deque()
        self._due: dict[str, _Entry] = {}
        # By transactional id the requests that wait until the markers of a transaction are written,
        # and the requests that wait no more and are answered by the next tick.
        self._patient: dict[str, list[Waiter]] = {}
        self._ready: list[Waiter] = []
        # Those that the sweep for expired ones has still to look at, in steps, and when it begins.
        self._sweep: list[str] = []
        self._sweep_ms: float | None = None
        self._decisions: dict[type[Request[Any]], Decide] = {
            InitRequest: self._init_producer_id,
            AddPartitionsRequest: self._add_partitions,
            CompletionRequest: self._when_complete,
            EndRequest: self._end_transaction,
            DescribeRequest: self._describe,
            ForgetRequest: self._forget,
            ListRequest: self._list,
        }

    def take(self, request: Request[Any], waiter: Waiter, now: Now) -> Step:
        return self._decisions[type(request)](request, waiter, now)

    def note(self, news: MarkersWritten, now: Now) -> None:
        """With its last marker a transaction is complete, which the next ``tick`` records."""
        (transactional_id, *producer), partitions = news
        entry = self._entries.get(transactional_id)
        if entry is None or not entry.unmarked:
            return
        if [entry.value.producer_id, entry.value.producer_epoch] != producer:
            return
        entry.unmarked.difference_update(partitions)
        if not entry.unmarked:
            entry.set(now.monotonic_ms)

    # ------------------------------------------------------------------------- life

    def replay(self, offset: int, record: KeyValue, now: Now) -> None:
        transactional_id = decode_key(record.key)
        former = self._entries.get(transactional_id)
        value = value_of(record)
        if value is None:
            if former is not None:
                former.cancel()
                del self._entries[transactional_id]
                self._counters.expirations += self._is_loaded
            self._removed_end = offset + 1
            return
        entry = former or _Entry(self._deadlines, transactional_id)
        self._entries[transactional_id] = entry
        entry.value, entry.end, entry.unmarked = value, offset + 1, None
        if not value.state.is_prepared:
            self._ready += self._patient.pop(transactional_id, ())
        if self._is_loaded:
            if value.state is TransactionState.PREPARE_ABORT and _has_passed(entry, now):
                self._counters.timeouts += 1
            self._attend(entry, now)
            self._counters.commits += value.state is TransactionState.COMPLETE_COMMIT
            self._counters.aborts += value.state is TransactionState.COMPLETE_ABORT

    def replay_pending(self, offset: int, record: KeyValue, producer_id: int, now: Now) -> None:
        raise ValueError("a record of a transaction, which a transaction coordinator never writes")

    def end_transaction(self, offset: int, producer_id: int, *, commits: bool, now: Now) -> None:
        """Nothing here is part of a transaction."""

    def _attend(self, entry: _Entry, now: Now) -> None:
        """See to it that what the coordinator does by itself is done in time."""
        entry.cancel()
        value = entry.value
        if value.state is TransactionState.ONGOING:
            timeout_ms = self._timeout_ms(value)
            if timeout_ms is not None:
                left_ms = value.start_time_ms + timeout_ms - now.time_ms
                # The clock of a former coordinator may have been another one.
                entry.set(now.monotonic_ms + min(max(0, left_ms), timeout_ms))
        elif value.state.is_prepared:
            self._uncommitted.append((entry.end, entry))

    def _timeout_ms(self, value: RecordedTransaction) -> int | None:
        if value.timeout_ms != NO_TIMEOUT_MS:
            return value.timeout_ms
        most_ms = self._config.transaction_two_phase_commit_max_ms
        return most_ms if most_ms >= 0 else None

    def loaded(self, now: Now) -> Step:
        self._is_loaded = True
        for entry in sorted(self._entries.values(), key=lambda each: each.end):
            self._attend(entry, now)
        self._await_sweep(now)
        self.committed(self._high_watermark)
        return Step()

    def committed(self, high_watermark: int) -> None:
        self._high_watermark = high_watermark
        had_due = bool(self._due)
        while self._uncommitted and self._uncommitted[0][0] <= high_watermark:
            record_end, entry = self._uncommitted.popleft()
            if entry.end == record_end:
                self._ask_markers(entry)
        if self._due and not had_due:
            self._on_markers_due()

    def _ask_markers(self, entry: _Entry) -> None:
        entry.unmarked = set(entry.value.partitions)
        if entry.unmarked:
            self._due[entry.transactional_id] = entry
        else:
            entry.set(_AT_ONCE)  # another server has written its record

    def unloaded(self) -> list[Waiter]:
        patient, self._patient = self._patient, {}
        return self._ready + [waiter for each in patient.values() for waiter in each]

    # ------------------------------------------------------------------------- time

    @property
    def deadline_ms(self) -> float | None:
        if self._ready:
            return _AT_ONCE
        times_ms = (self._deadlines.first_ms, self._sweep_ms)
        return min((each for each in times_ms if each is not None), default=None)

    def tick(self, now: Now) -> Step:
        if self._ready:
            ready, self._ready = self._ready, []
            return Step(replies=[Reply(waiter, None) for waiter in ready])
        entry = self._deadlines.due(now.monotonic_ms)
        if entry is not None:
            return self._pass(entry, now)
        if self._sweep_ms is not None and self._sweep_ms <= now.monotonic_ms:
            return self._expire(now)
        return Step()

    def put_off(self, until_ms: float, now: Now) -> str:
        entry = self._deadlines.due(now.monotonic_ms)
        if entry is not None:
            entry.set(until_ms)
            what = "completion" if entry.value.state.is_prepared else "abort, in time,"
            return f"the {what} of the transaction of {entry.transactional_id!r}"
        self._sweep, self._sweep_ms = [], until_ms
        return "the removal of expired transactional ids"

    def _pass(self, entry: _Entry, now: Now) -> Step:
        """A transaction is complete, or its time is over."""
        value, version = entry.value, self._transaction_version()
        if value.state.is_prepared:
            changed = complete(value, now.time_ms)
        else:
            logger.info(
                "transaction of %s, producer %d of epoch %d: it is aborted after %d ms",
                entry.transactional_id, value.producer_id, value.producer_epoch,
                now.time_ms - value.start_time_ms,
            )  # fmt: skip
            changed = abort(value, version, now.time_ms)
        return Step([transaction_record(entry.transactional_id, changed, version)])

    def _await_sweep(self, now: Now) -> None:
        interval_ms = self._config.transaction_remove_expired_transaction_cleanup_interval_ms
        self._sweep_ms = now.monotonic_ms + interval_ms

    def _expire(self, now: Now) -> Step:
        """Forget unused transactional ids, some at a time. The deadline stays until all ids have
        been looked at."""
        if not self._sweep:
            self._sweep = list(self._entries)
        looked_at = self._sweep[-_SLICE:]
        records, size = [], 0
        for transactional_id in looked_at:
            entry = self._entries.get(transactional_id)
            if entry is not None and self._is_expired(entry.value, now):
                record = transaction_tombstone(transactional_id)
                records.append(record)
                size += len(record.key)
                if size >= STEP_BYTES:
                    break
        if records:
            return Step(records)  # it changes nothing else, so the same ids are looked at again
        del self._sweep[-_SLICE:]
        if not self._sweep:
            self._await_sweep(now)
        return Step()

    def _is_expired(self, value: RecordedTransaction, now: Now) -> bool:
        return (
            value.state in _UNUSED
            and value.update_time_ms <= now.time_ms - self._config.transactional_id_expiration_ms
        )

    # ------------------------------------------------------------------------- producers

    def value_of(self, transactional_id: str) -> RecordedTransaction | None:
        """The value of its last record, committed or not."""
        entry = self._entries.get(transactional_id)
        return None if entry is None else entry.value

    def _init_producer_id(self, request: InitRequest, waiter: Waiter, now: Now) -> Step:
        error = check(request, self._config)
        if error is not ErrorCode.NONE:
            return told(waiter, InitAnswer(error))
        transactional_id = request.transactional_id
        value, version = self.value_of(transactional_id), self._transaction_version()
        decision = initialize(value, request, version, now.time_ms)
        return self._decided(transactional_id, decision, waiter, now)

    def _add_partitions(self, request: AddPartitionsRequest, waiter: Waiter, now: Now) -> Step:
        transactional_id = request.ref.transactional_id
        decision = add(self.value_of(transactional_id), request, now.time_ms)
        return self._decided(transactional_id, decision, waiter, now)

    def _when_complete(self, request: CompletionRequest, waiter: Waiter, now: Now) -> Step:
        """Requests that have given up waiting stay until then: markers for a partition without a
        leader may take hours, and a client asks again and again."""
        transactional_id = request.transactional_id
        value = self.value_of(transactional_id)
        if value is None or not value.state.is_prepared:
            return told(waiter, None)
        patient = self._patient.setdefault(transactional_id, [])
        if len(patient) == MAX_PATIENT:
            return told(waiter, None)
        patient.append(waiter)
        return Step()

    def _end_transaction(self, request: EndRequest, waiter: Waiter, now: Now) -> Step:
        transactional_id = request.ref.transactional_id
        decision = end(self.value_of(transactional_id), request, now.time_ms)
        return self._decided(transactional_id, decision, waiter, now)

    def _decided(self, transactional_id: str, decision: Decision, waiter: Waiter, now: Now) -> Step:
        value, version = decision.value, self._transaction_version()
        if value is None:
            says_nothing = decision.answer is NEEDS_PRODUCER_ID
            after = -1 if says_nothing else self._end(transactional_id)
            return told(waiter, decision.answer, after)
        records = [transaction_record(transactional_id, value, version)]
        if value.state.is_prepared and not value.partitions:
            # No marker has to be written, so the transaction is complete.
            completed = complete(value, now.time_ms)
            records.append(transaction_record(transactional_id, completed, version))
        step = Step(records, [Reply(waiter, decision.answer)])
        if value.state is TransactionState.ONGOING:
            # The record of the end names all partitions again. It has to fit into a batch, too.
            step.headroom, step.too_large = END_BYTES_MAX, ErrorCode.INVALID_REQUEST
        return step

    def _end(self, transactional_id: str) -> int:
        """The offset after the records that an answer about the transactional id rests on."""
        entry = self._entries.get(transactional_id)
        return self._removed_end if entry is None else entry.end

    # ------------------------------------------------------------------------- markers

    def due_markers(self) -> list[MarkersDue]:
        """The markers to be written, those of each transaction once."""
        due, self._due = self._due, {}
        return [_markers(entry) for entry in due.values()]

    # ------------------------------------------------------------------------- administration

    def _describe(self, request: DescribeRequest, waiter: Waiter, now: Now) -> Step:
        transactional_id = request.transactional_id
        if not transactional_id:
            return told(waiter, DescribedTransaction(ErrorCode.INVALID_REQUEST, transactional_id))
        entry = self._entries.get(transactional_id)
        if entry is None:
            error = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            return told(waiter, DescribedTransaction(error, transactional_id), self._removed_end)
        value = entry.value
        answer = DescribedTransaction(
            ErrorCode.NONE,
            transactional_id,
            value.state,
            value.timeout_ms,
            value.start_time_ms,
            value.producer_id,
            value.producer_epoch,
            tuple(value.partitions),
        )
        return told(waiter, answer, entry.end)

    def _forget(self, request: ForgetRequest, waiter: Waiter, now: Now) -> Step:
        transactional_id = request.transactional_id
        entry = self._entries.get(transactional_id)
        if entry is None:
            return told(waiter, ErrorCode.NONE, self._removed_end)
        if entry.value.state in _UNUSED:
            tombstone = transaction_tombstone(transactional_id)
            return Step([tombstone], [Reply(waiter, ErrorCode.NONE)])
        is_ending = entry.value.state.is_prepared
        error = ErrorCode.CONCURRENT_TRANSACTIONS if is_ending else ErrorCode.INVALID_TXN_STATE
        return told(waiter, error, entry.end)

    def _list(self, request: ListRequest, waiter: Waiter, now: Now) -> Step:
        states = {STATES_BY_LABEL[name] for name in request.states if name in STATES_BY_LABEL}
        unknown = tuple(name for name in request.states if name not in STATES_BY_LABEL)

        def passes(entry: _Entry) -> bool:
            value = entry.value
            return (
                (not request.states or value.state in states)
                and (not request.producer_ids or value.producer_id in request.producer_ids)
                and (request.duration_ms < 0 or _open_ms(value, now) > request.duration_ms)
                and (request.matches is None or request.matches(entry.transactional_id))
            )

        listed = tuple(
            ListedTransaction(each.transactional_id, each.value.producer_id, each.value.state)
            for each in self._entries.values()
            if passes(each)
        )
        return told(waiter, ListAnswer(listed, unknown))

    def transactions_by_state(self) -> Counter[TransactionState]:
        return Counter(each.value.state for each in self._entries.values())


_AT_ONCE: Final = float("-inf")

_UNUSED: Final = (
    TransactionState.EMPTY,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)


def _has_passed(entry: _Entry, now: Now) -> bool:
    """Whether the transaction has been open for its whole time."""
    return entry.at_ms is not None and entry.at_ms <= now.monotonic_ms


def _markers(entry: _Entry) -> MarkersDue:
    value = entry.value
    return MarkersDue(
        TransactionRef(entry.transactional_id, value.producer_id, value.producer_epoch),
        value.state is TransactionState.PREPARE_COMMIT,
        tuple(value.partitions),
        value.client_version,
    )


def _open_ms(value: RecordedTransaction, now: Now) -> int:
    """How long a transaction is open; -1: none is."""
    if value.state in _UNUSED:
        return -1
    return now.time_ms - value.start_time_ms
