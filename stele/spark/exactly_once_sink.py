"""Writes exactly once: each task prepares a transaction, and one record decides about all of them.

The way of a batch:

1. A task claims the write for its run, reads the ledger, and writes nothing if the batch is decided
   already. Otherwise it writes its rows in a transaction of its own and prepares that (KIP-939).
   From then on only the driver, or whoever comes after it, ends the transaction.
2. The driver appends one record to the ledger: the batch is committed, with these transactions. If
   this record stands (``decisions`` says when), the batch is written, whatever dies from now on.
3. Each transaction is committed. It does no harm to do this twice, or in another process.

If a driver dies before 2, a later run claims the write, so that the decision can no longer be made,
and aborts what is open. If it dies after 2, Spark runs the batch again: its tasks find the decision
and write nothing, and the driver does step 3.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from stele.spark.decisions import Entry, Prepared, to_abort
from stele.spark.ledger import Ledger, admin_of
from stele.spark.options import SinkOptions
from stele.spark.rows import RowShape
from stele.spark.writing import write

if TYPE_CHECKING:
    from stele import Admin, Producer

log = logging.getLogger(__name__)

_QUERY, _BATCH, _RUN = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
_OPEN, _ABORTED = "Ongoing", ("PrepareAbort", "CompleteAbort")
_PREFIX = "spark/"
_SLOTS = 256
"""Attempts of one partition whose numbers differ by this share a transactional id. The ids are
bounded in number, and no two attempts that Spark runs at the same time have the same one."""


class WriteError(Exception):
    """A batch was not written. Nothing of it is visible to readers of committed records."""


class LostTransactionError(Exception):
    """A transaction that the ledger has committed was aborted by somebody else. Rows are
    missing."""


class Target(NamedTuple):
    """What is written: a batch of a run of a write."""

    write: str
    run: str
    batch: int


class Attempt(NamedTuple):
    """Which task runs, by Spark's numbers."""

    partition: int
    number: int

    @classmethod
    def current(cls) -> Attempt:
        context = TaskContext.get()
        return cls(0, 0) if context is None else cls(context.partitionId(), context.taskAttemptId())


@dataclass(frozen=True, slots=True)
class TaskResult(WriterCommitMessage):
    """What the driver hears of a task."""

    target: Target
    rows: int
    prepared: Prepared | None
    """None: the task had no rows, or found the batch decided."""
    is_decided: bool


class ExactlyOnce:
    """Both sides of a write: the task's and the driver's. Its writers give Spark's arguments."""

    def __init__(self, options: SinkOptions, shape: RowShape) -> None:
        self._options = options
        self._shape = shape

    # -------------------------------------------------------------------------- tasks

    def run_task(
        self, target: Target, attempt: Attempt, batches: Iterator[pa.RecordBatch]
    ) -> TaskResult:
        """Write the rows of a task and prepare them. Raises WriteError, RowError, SteleError, and
        then nothing of them stays."""
        with admin_of(self._options) as admin, Ledger(self._options, admin) as ledger:
            if _is_decided(ledger, target):
                return TaskResult(target, 0, None, is_decided=True)
        first = next((batch for batch in batches if batch.num_rows), None)
        if first is None:
            return TaskResult(target, 0, None, is_decided=False)
        name = f"{_prefix(target.write)}{target.run}/{attempt.partition}/{attempt.number % _SLOTS}"
        return self._write(target, name, first, batches)

    def _write(
        self, target: Target, name: str, first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]
    ) -> TaskResult:
        rows = 0
        with _producer(self._options, name) as producer:
            _begin(producer)
            try:
                batch: pa.RecordBatch | None = first
                while batch is not None:
                    write(producer, self._shape, batch)
                    rows += batch.num_rows
                    batch = next(rest, None)
                state = producer.prepare_transaction()
            except BaseException as error:
                _abort(producer, error)
                raise
        return TaskResult(target, rows, Prepared(name, str(state)), is_decided=False)

    # ------------------------------------------------------------------------- driver

    def commit(self, messages: Sequence[WriterCommitMessage | None], target: Target) -> None:
        """Raises WriteError, LostTransactionError."""
        results = [each for each in messages if isinstance(each, TaskResult)]
        prepared = tuple(each.prepared for each in results if each.prepared is not None)
        with admin_of(self._options) as admin, Ledger(self._options, admin) as ledger:
            ledger.refresh()
            if ledger.decisions.standing(target.write, target.batch) is None:
                ledger.write(Entry("commit", *target, prepared))
            standing = ledger.decisions.standing(target.write, target.batch)
            if standing is None:
                raise WriteError(
                    f"batch {target.batch} is not committed: another run of this query, "
                    f"{ledger.decisions.latest_run(target.write)}, has begun since"
                )
            finish(self._options, admin, standing)
            self._sweep(admin, ledger, target)
            ledger.remove(ledger.decisions.old_keys(target.write, target.batch))

    def abort(self, target: Target) -> None:
        """Spark calls this also when ``commit`` has failed, perhaps after its decision."""
        with admin_of(self._options) as admin, Ledger(self._options, admin) as ledger:
            ledger.refresh()
            if ledger.decisions.standing(target.write, target.batch) is None:
                ledger.write(Entry("abort", *target))
            standing = ledger.decisions.standing(target.write, target.batch)
            if standing is not None:
                finish(self._options, admin, standing)
            self._sweep(admin, ledger, target)

    def _sweep(self, admin: Admin, ledger: Ledger, target: Target) -> None:
        """Abort what attempts that do not count have left open."""
        prefix = _prefix(target.write)
        there = {name: True for name in _open_transactions(admin) if name.startswith(prefix)}
        for name in to_abort(ledger.decisions, target.write, there, target.run):
            log.warning("transaction %s is aborted: no decision lists it", name)
            admin.fence_producer(name)


def finish(options: SinkOptions, admin: Admin, standing: Entry) -> None:
    """Commit what stands, as far as nobody has done it before. Raises LostTransactionError."""
    from stele.producer.transactions import PreparedTransaction

    states = _states(admin, standing.transactions)
    for each in standing.transactions:
        state = states.get(each.transactional_id, "")
        if state in _ABORTED:
            raise LostTransactionError(
                f"transaction {each.transactional_id} was aborted after the decision to commit it: "
                f"rows of batch {standing.batch} are missing"
            )
        if state == _OPEN:
            with _producer(options, each.transactional_id) as producer:
                producer.complete_transaction(PreparedTransaction.parse(each.state))


def sweep(options: SinkOptions, older_than_ms: int) -> list[str]:
    """End the open transactions of writes of this ledger whose drivers are gone: those that are
    open for longer than this. Returns the names of those that were aborted.

    It claims each write. So a driver that is only slow can no longer decide, and its write fails;
    what was decided before is committed. Raises LostTransactionError.
    """
    aborted: list[str] = []
    with admin_of(options) as admin, Ledger(options, admin) as ledger:
        by_write: dict[str, list[str]] = {}
        for name in _open_transactions(admin, older_than_ms):
            if name.startswith(_PREFIX):
                by_write.setdefault(name.split("/")[1], []).append(name)
        for write, names in sorted(by_write.items()):
            ledger.refresh()
            run = uuid.uuid4().hex
            decisions = ledger.write(Entry("claim", write, run))
            for standing in decisions.all_standing(write):
                finish(options, admin, standing)
            for name in to_abort(decisions, write, dict.fromkeys(names, True), run):
                admin.fence_producer(name)
                aborted.append(name)
    return aborted


def _producer(options: SinkOptions, name: str) -> Producer:
    from stele import Producer  # loads grpc, which must not be loaded before Spark forks

    return Producer(
        options.bootstrap_servers,
        **options.client,
        transactional_id=name,
        transaction_two_phase_commit_enable=True,
    )


def _open_transactions(admin: Admin, older_than_ms: int = 0) -> list[str]:
    found = admin.list_transactions(states=(_OPEN,), min_duration_ms=older_than_ms)
    return [each.transactional_id for each in found]


def _begin(producer: Producer) -> None:
    from stele.errors import ApiError, ErrorCode

    try:
        producer.begin_transaction()
    except ApiError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise
        raise WriteError(
            "the brokers refuse two-phase commits: set transaction.two.phase.commit.enable=true on "
            "them, or the option exactlyOnce=false"
        ) from error


def _abort(producer: Producer, cause: BaseException) -> None:
    from stele.errors import SteleError

    try:
        producer.abort_transaction()
    except SteleError as error:
        cause.add_note(f"the transaction was not aborted: {error}")


def _prefix(write: str) -> str:
    """Before the transactional ids of a write. No other write's ids begin with it."""
    return f"{_PREFIX}{write}/"


def _states(admin: Admin, transactions: Sequence[Prepared]) -> dict[str, str]:
    """The states of the transactions. One that is not there was ended so long ago that its id is
    forgotten."""
    from stele.errors import BulkError, ErrorCode

    names = [each.transactional_id for each in transactions]
    if not names:
        return {}
    try:
        found = admin.describe_transactions(names)
    except BulkError as error:
        for each in error.failed.values():
            if each.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
        left = [name for name in names if name not in error.failed]
        found = admin.describe_transactions(left) if left else []
    return {each.transactional_id: each.state for each in found}


def _is_decided(ledger: Ledger, target: Target) -> bool:
    """Whether a commit of the batch stands. Afterwards no earlier run can decide it any more.

    Raises WriteError if a later run has begun, or the batch was aborted by this one: nobody would
    end what a late attempt prepares.
    """
    decisions = ledger.refresh()
    if not decisions.has_claimed(target.write, target.run):
        decisions = ledger.write(Entry("claim", target.write, target.run))
    if decisions.latest_run(target.write) != target.run:
        raise WriteError(
            f"another run of this query, {decisions.latest_run(target.write)}, has begun since"
        )
    if decisions.is_aborted(*target):
        raise WriteError(f"batch {target.batch} was aborted by its driver")
    return decisions.standing(target.write, target.batch) is not None


class ExactlyOnceWriter(DataSourceArrowWriter):
    """A batch write: all of it or nothing becomes visible.

    With ``txnAppId`` and ``txnVersion`` a write that was done is recognized when it is repeated.
    """

    def __init__(self, options: SinkOptions, shape: RowShape) -> None:
        self._sink = ExactlyOnce(options, shape)
        run = uuid.uuid4().hex
        name = quote(options.app_id, safe="") or run
        self._target = Target(name, run, options.app_version)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        return self._sink.run_task(self._target, Attempt.current(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.commit(messages, self._target)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.abort(self._target)  # also if no task tells of one: an attempt may have died


class ExactlyOnceStreamWriter(DataSourceStreamArrowWriter):
    """The batches of a stream. Its checkpoint tells the query's id, and Spark each batch's
    number."""

    def __init__(self, options: SinkOptions, shape: RowShape) -> None:
        self._sink = ExactlyOnce(options, shape)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        context = TaskContext.get()
        query, run, batch = (
            None if context is None else context.getLocalProperty(name)
            for name in (_QUERY, _RUN, _BATCH)
        )
        if query is None or run is None or batch is None:
            raise WriteError("Spark does not tell which batch this is: use exactlyOnce=false")
        target = Target(query, run, int(batch))
        return self._sink.run_task(target, Attempt.current(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        targets = {each.target for each in messages if isinstance(each, TaskResult)}
        (target,) = targets  # tasks of one batch of one run
        if target.batch != batchId:
            raise WriteError(f"tasks have written batch {target.batch}, not {batchId}")
        self._sink.commit(messages, target)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        results = [each for each in messages if isinstance(each, TaskResult)]
        if results:  # otherwise the next batch, or the next run, sweeps
            self._sink.abort(results[0].target)
