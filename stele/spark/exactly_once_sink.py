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

A write is named after its query or ``txnAppId`` and after the topic, with the topic's id. So two
outputs of one ``foreachBatch`` are two writes, and so are the topics of before and after a
deletion. If rows name their topics, the decision lists the topics instead, and a batch that is
found decided may have rows for no other one.
"""

from __future__ import annotations

import logging
import time
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

from stele.errors import ApiError, ErrorCode, SteleError
from stele.spark.cluster import described
from stele.spark.decisions import SEPARATOR, Decisions, Entry, Prepared, to_abort
from stele.spark.doors import Door, doors
from stele.spark.ledger import Ledger
from stele.spark.options import SinkOptions
from stele.spark.plain_sink import plain_producer
from stele.spark.prepared import (
    LostTransactionError,
    WriteError,
    abort_all,
    check_prepared,
    finish,
    finish_of_others,
    forget,
    open_transactions,
    producer_of,
)
from stele.spark.rows import RowShape
from stele.spark.throttles import say_of_tasks
from stele.spark.worker_garbage import loaded_modules
from stele.spark.writing import write

if TYPE_CHECKING:
    from stele import Admin, Producer
    from stele.admin.descriptions import TopicDescription

__all__ = [
    "Attempt", "ExactlyOnce", "ExactlyOnceStreamWriter", "ExactlyOnceWriter",
    "LostTransactionError", "Target", "TaskResult", "WriteError", "sweep",
]  # fmt: skip

log = logging.getLogger(__name__)

_QUERY, _BATCH, _RUN = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
_DAY_MS = 86_400_000
"""No task is alive for so long after its run has ended."""
_TIDIED_AT_ONCE = 10


class Target(NamedTuple):
    """The target of a write: a batch of a run of a query or job."""

    write: str
    run: str
    batch: int


class Attempt(NamedTuple):
    """Which task runs, by Spark's numbers. ``number`` differs in all attempts of an application:
    copies of a task, speculative ones and those of a repeated stage, may run at the same time."""

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
    output: str = ""
    """The topic of all rows, with its id. Empty: rows name their topics."""
    topics: frozenset[str] = frozenset()
    """The topics of the rows, with their ids, if rows name them."""
    throttled_s: float = 0.0
    """How long brokers let the task's producer wait, because it was above a quota."""


class ExactlyOnce:
    """Both sides of a write: the task's and the driver's. Its writers give Spark's arguments."""

    def __init__(
        self, options: SinkOptions, shape: RowShape, *, has_one_batch: bool = False
    ) -> None:
        """``has_one_batch``: each run has only one batch."""
        self._options = options
        self._shape = shape
        self._has_one_batch = has_one_batch

    # -------------------------------------------------------------------------- tasks

    def run_task(
        self, target: Target, attempt: Attempt, batches: Iterator[pa.RecordBatch]
    ) -> TaskResult:
        """Write the rows of a task and prepare them. Raises WriteError, RowError, SteleError, and
        then nothing of them stays."""
        rows = _Rows(self._shape, batches)
        with doors.opened(self._options) as door:
            output = self._output(door)
            if self._claim(door.ledger, _of(target, output)):
                if not self._shape.default_topic:
                    rows.pass_over()
                topics = _with_ids(door.admin, rows.topics)
                return TaskResult(target, 0, None, True, output, topics)
            first = next(rows, None)
            if first is None:
                return TaskResult(target, 0, None, False, output)
            written = self._write(door.admin, _of(target, output), attempt, first, rows)
            prepared, topics, throttled_s = written
            return TaskResult(target, rows.count, prepared, False, output, topics, throttled_s)

    def _output(self, door: Door) -> str:
        """What the option ``topic`` names. Reads the ledger, too. Raises SteleError if the topic is
        not there and brokers do not create it."""
        topic = self._shape.default_topic
        if not topic:
            door.ledger.refresh()
            return ""
        door.ledger.refresh(topic)
        found = door.ledger.topics.get(topic)
        if found is None:
            with plain_producer(self._options) as producer:
                producer.partitions_for(topic)
            (found,) = door.admin.describe_topics([topic])
        return _named(found)

    def _write(
        self, admin: Admin, target: Target, attempt: Attempt, first: pa.RecordBatch, rest: _Rows
    ) -> tuple[Prepared, frozenset[str], float]:
        name = f"{_prefix(self._options, target.write)}{target.run}/{'/'.join(map(str, attempt))}"
        with producer_of(self._options, name) as producer:
            _begin(producer, _prefix_of_all(self._options))
            try:
                batch: pa.RecordBatch | None = first
                while batch is not None:
                    write(producer, self._shape, batch)
                    batch = next(rest, None)
                topics = _with_ids(admin, rest.topics)
                state = producer.prepare_transaction()
            except BaseException as error:
                _abort(producer, error)
                raise
            throttled_s = producer.throttled_s
        return Prepared(name, str(state)), topics, throttled_s

    def _claim(self, ledger: Ledger, target: Target) -> bool:
        """Whether a commit of the batch stands, by the ledger as it was read last. Afterwards no
        earlier run can decide it any more.

        Raises WriteError if a later run has begun, or the batch was aborted by this one: nobody
        would end what a late attempt prepares.
        """
        decisions = ledger.decisions
        if _is_known(decisions, target):
            return True
        if not decisions.has_claimed(target.write, target.run):
            batch = target.batch if self._has_one_batch else -1
            decisions = ledger.write(Entry("claim", target.write, target.run, batch))
        if decisions.latest_run(target.write) != target.run:
            raise WriteError(
                f"another run of this query, {decisions.latest_run(target.write)}, has begun since"
            )
        if decisions.is_aborted(*target):
            raise WriteError(f"batch {target.batch} was aborted by its driver")
        return _is_known(decisions, target)

    # ------------------------------------------------------------------------- driver

    def commit(self, messages: Sequence[WriterCommitMessage | None], target: Target) -> None:
        """Raises WriteError, LostTransactionError."""
        results = [each for each in messages if isinstance(each, TaskResult)]
        say_of_tasks(f"batch {target.batch} of {target.write}", results)
        with doors.opened(self._options) as door:
            admin, ledger = door.admin, door.ledger
            target = _of(target, self._one_output(door, results))
            still_open = self._still_open(admin, target)
            if not _is_known(ledger.refresh(), target):
                self._decide(admin, ledger, target, results)
            decisions = ledger.decisions
            if not decisions.is_decided(target.write, target.batch):
                raise WriteError(
                    f"batch {target.batch} is not committed: another run of this query, "
                    f"{decisions.latest_run(target.write)}, has begun since"
                )
            _check_topics(decisions, target, results)
            if any(each.is_decided for each in results):
                log.warning(
                    "batch %d of %s was committed before: nothing is written again",
                    target.batch,
                    target.write,
                )
            ended = self._end_all(door, target, still_open)
            ledger.remove(decisions.needless(target.write, _now_ms() - _DAY_MS))
            _tidy(door)
            forget(admin, ended)

    def abort(self, target: Target, messages: Sequence[WriterCommitMessage | None] = ()) -> None:
        """Spark calls this also when ``commit`` has failed, perhaps after its decision."""
        results = [each for each in messages if isinstance(each, TaskResult)]
        outputs = {each.output for each in results}
        with doors.opened(self._options) as door:
            topic = self._shape.default_topic
            if not outputs:  # without the topic no task has come far enough to write
                outputs = set(map(_named, described(door.admin, [topic]))) if topic else {""}
            for output in outputs:
                self._abort(door, _of(target, output))

    def _abort(self, door: Door, target: Target) -> None:
        still_open = self._still_open(door.admin, target)
        if not door.ledger.refresh().is_decided(target.write, target.batch):
            door.ledger.write(Entry("abort", *target))
        forget(door.admin, self._end_all(door, target, still_open))

    def _decide(
        self, admin: Admin, ledger: Ledger, target: Target, results: Sequence[TaskResult]
    ) -> None:
        if ledger.decisions.latest_run(target.write) not in (None, target.run):
            return
        prepared = tuple(each.prepared for each in results if each.prepared is not None)
        check_prepared(admin, prepared)
        topics = frozenset[str]().union(*(each.topics for each in results))
        done = ledger.decisions.done(target.write)
        ledger.write(Entry("commit", *target, prepared, done, tuple(sorted(topics))))

    def _end_all(self, door: Door, target: Target, still_open: Sequence[str]) -> list[str]:
        """Commit what stands, and abort the rest. Returns the ids of all. Raises
        LostTransactionError."""
        decisions = door.ledger.decisions
        ended: list[str] = []
        for standing in decisions.all_standing(target.write):
            if standing.batch != target.batch:
                ended += finish_of_others(door, standing)
        own = decisions.standing(target.write, target.batch)
        if own is not None:
            ended += finish(door, own)
        left = to_abort(decisions, target.write, still_open, target.run)
        abort_all(door.admin, left)
        return ended + left

    def _still_open(self, admin: Admin, target: Target) -> list[str]:
        return open_transactions(admin, _prefix(self._options, target.write))

    def _one_output(self, door: Door, results: Sequence[TaskResult]) -> str:
        outputs = {each.output for each in results} or {self._output(door)}
        if len(outputs) > 1:
            raise WriteError(
                f"topic {self._shape.default_topic!r} was deleted and created again while the "
                "batch "
                "was written"
            )
        return outputs.pop()


def _tidy(door: Door) -> None:
    """Remove some of the batch jobs without names that ended long ago."""
    decisions = door.ledger.decisions
    for name in decisions.over(_now_ms() - _DAY_MS)[:_TIDIED_AT_ONCE]:
        for standing in decisions.all_standing(name):
            forget(door.admin, finish_of_others(door, standing))
        door.ledger.remove(decisions.keys(name))


class _Rows(Iterator[pa.RecordBatch]):
    """The batches of a task that have rows. Notes how many rows there are, and for which topics if
    rows name them."""

    def __init__(self, shape: RowShape, batches: Iterator[pa.RecordBatch]) -> None:
        self._shape = shape
        self._batches = batches
        self.count = 0
        self.topics: set[str] = set()

    def __next__(self) -> pa.RecordBatch:
        batch = next(each for each in self._batches if each.num_rows)
        self.count += batch.num_rows
        if not self._shape.default_topic:
            self.topics.update(self._shape.topics(batch))
        return batch

    def pass_over(self) -> None:
        for _ in self:
            pass


def sweep(options: SinkOptions, older_than_ms: int) -> list[str]:
    """End the open transactions of writes of this ledger whose drivers are gone: those that have
    been open for longer than this. Returns the names of the aborted ones.

    It claims each write. So a driver that is only slow can no longer decide, and its write fails. A
    batch that was decided before is committed. Raises LostTransactionError.
    """
    aborted: list[str] = []
    with doors.opened(options) as door:
        admin, ledger = door.admin, door.ledger
        prefix = _prefix_of_all(options)
        by_write: dict[str, list[str]] = {}
        for name in open_transactions(admin, prefix, older_than_ms):
            by_write.setdefault(name.removeprefix(prefix).split("/")[0], []).append(name)
        for write, names in sorted(by_write.items()):
            ledger.refresh()
            run = uuid.uuid4().hex
            decisions = ledger.write(Entry("claim", write, run))
            finished: list[str] = []
            for standing in decisions.all_standing(write):
                finished += finish(door, standing)
            left = to_abort(decisions, write, names, run)
            abort_all(admin, left)
            forget(admin, finished + left)
            aborted += left
    return aborted


def _begin(producer: Producer, prefix: str) -> None:
    try:
        producer.begin_transaction()
    except ApiError as error:
        if error.code is not ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise
        raise WriteError(
            "the brokers refuse two-phase commits: set transaction.two.phase.commit.enable=true on "
            "them, and with access rules allow the user WRITE and TWO_PHASE_COMMIT on "
            f"transactional ids that begin with {prefix!r}; or set the option exactlyOnce=false"
        ) from error


def _abort(producer: Producer, cause: BaseException) -> None:
    try:
        producer.abort_transaction()
    except SteleError as error:
        cause.add_note(f"the transaction was not aborted: {error}")


def _of(target: Target, output: str) -> Target:
    """The target with the name by which the ledger knows the write."""
    return target._replace(write=f"{target.write}{SEPARATOR}{output}")


def _prefix(options: SinkOptions, write: str) -> str:
    """Before the transactional ids of a write. No other write's ids begin with it."""
    return f"{_prefix_of_all(options)}{write}/"


def _prefix_of_all(options: SinkOptions) -> str:
    """Another ledger does not know the decisions of this one."""
    return f"spark/{options.ledger_topic}/"


def _with_ids(admin: Admin, topics: set[str]) -> frozenset[str]:
    """Topics as the ledger names them. Raises SteleError."""
    found = admin.describe_topics(sorted(topics)) if topics else []
    return frozenset(map(_named, found))


def _named(topic: TopicDescription) -> str:
    """A topic that is deleted and created again has another id."""
    return f"{topic.name}:{topic.topic_id.hex()}"


def _is_known(decisions: Decisions, target: Target) -> bool:
    """Whether a commit of the batch stands. Raises WriteError if that cannot be known."""
    done = decisions.done(target.write)
    if target.batch < done.floor:
        raise WriteError(
            f"txnVersion {target.batch} is older than what the ledger remembers of "
            f"{target.write!r}, which begins at {done.floor}: use a new txnAppId"
        )
    return target.batch in done


def _check_topics(decisions: Decisions, target: Target, results: Sequence[TaskResult]) -> None:
    """Raises WriteError if a batch that was found decided has rows for other topics: another output
    has the same name."""
    standing = decisions.standing(target.write, target.batch)
    if standing is None:
        return
    wanted = frozenset[str]().union(*(each.topics for each in results if each.is_decided))
    strange = sorted(wanted - set(standing.topics))
    if strange:
        written, left = (
            ", ".join(each.split(":")[0] for each in some) for some in (standing.topics, strange)
        )
        raise WriteError(
            f"batch {target.batch} of {target.write.partition(SEPARATOR)[0]!r} was written to "
            f"{written or 'no topic'} before, so its rows for {left} are not written: give each "
            "output its own txnAppId, and each query its own checkpointLocation"
        )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class ExactlyOnceWriter(DataSourceArrowWriter):
    """A batch write: all of it or nothing becomes visible.

    With ``txnAppId`` and ``txnVersion`` a write that was done is recognized when it is repeated.
    """

    def __init__(self, options: SinkOptions, shape: RowShape) -> None:
        self._sink = ExactlyOnce(options, shape, has_one_batch=True)
        run = uuid.uuid4().hex
        name = quote(options.app_id, safe="") or run
        self._target = Target(name, run, options.app_version)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        result = self._sink.run_task(self._target, Attempt.current(), iterator)
        loaded_modules.leave_out()
        return result

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._sink.commit(messages, self._target)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        # Also if no task reports a transaction: an attempt may have died.
        self._sink.abort(self._target, messages)


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
        result = self._sink.run_task(target, Attempt.current(), iterator)
        loaded_modules.leave_out()
        return result

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        targets = {each.target for each in messages if isinstance(each, TaskResult)}
        if not targets:
            return  # a frame without partitions
        target = targets.pop()
        if targets or target.batch != batchId:
            raise WriteError(f"the tasks have not written batch {batchId} of one run: {target}")
        self._sink.commit(messages, target)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        results = [each for each in messages if isinstance(each, TaskResult)]
        if results:  # otherwise the next batch, or the next run, sweeps
            self._sink.abort(results[0].target, messages)
