"""Whatever fails, a transaction counts as a whole or not at all, and its producer does not lie."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from stele.aio import Producer
from stele.errors import (
    ErrorCode,
    SteleError,
    TransactionAbortableError,
    TransactionOutcomeUnknownError,
)
from stele.ids import TopicPartition
from stele.records import GroupMetadata, OffsetAndMetadata
from tests.support.stele import Fault, Stage, on_stage
from tests.support.stele_transactions import FakeTransactions, TransactionFault

GROUP = GroupMetadata("readers", 3, "member", None)
IN = TopicPartition("in", 0)
PARTITIONS = 2


class Outcome(enum.Enum):
    COMMITTED = enum.auto()
    ABORTED = enum.auto()
    UNKNOWN = enum.auto()


class Work(NamedTuple):
    """One transaction of the application."""

    records: Sequence[int]  # the partition of each
    has_offsets: bool
    flushes: bool
    aborts: bool


class Faults(NamedTuple):
    """What goes wrong while a transaction runs."""

    batches: Sequence[Fault]
    offsets: Sequence[TransactionFault]
    ends: Sequence[TransactionFault]
    begins: Sequence[TransactionFault]
    moves: bool  # the coordinator moves


PASSING = (
    ErrorCode.NONE,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
)
PRODUCE = (
    *PASSING,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
)


def _possible(fault: TransactionFault) -> bool:
    """A coordinator that loads has surely not done it."""
    return not (fault.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and fault.applied)


def coordinator_faults(most: int) -> st.SearchStrategy[list[TransactionFault]]:
    fault = st.builds(TransactionFault, st.sampled_from(PASSING), st.booleans(), st.booleans())
    return st.lists(fault.filter(_possible), max_size=most)


BATCH_FAULT = st.builds(
    Fault,
    st.sampled_from(PRODUCE),
    applied=st.booleans(),
    silent=st.booleans(),
    breaks=st.booleans(),
)
WORK = st.builds(
    Work, st.lists(st.integers(0, PARTITIONS - 1), max_size=5), st.booleans(), st.booleans(),
    st.sampled_from([False, False, False, True]),
)  # fmt: skip
FAULTS = st.builds(
    Faults,
    st.lists(BATCH_FAULT, max_size=3),
    coordinator_faults(3),
    coordinator_faults(8),
    coordinator_faults(3),
    st.booleans(),
)


class Application:
    def __init__(self, stage: Stage, transactions: FakeTransactions) -> None:
        self.stage = stage
        self.transactions = transactions
        self.outcomes: list[Outcome] = []
        self.acknowledged: list[set[bytes]] = []

    async def run(self, number: int, work: Work, producer: Producer) -> bool:
        """Whether the producer can go on."""
        deliveries: dict[bytes, Any] = {}
        try:
            async with producer.transaction():
                for place, partition in enumerate(work.records):
                    value = b"%d/%d" % (number, place)
                    deliveries[value] = await producer.send("t", value, partition=partition)
                    if work.flushes:
                        await producer.flush()
                if work.has_offsets:
                    offsets = {IN: OffsetAndMetadata(number + 1)}
                    await producer.send_group_offsets(GROUP, offsets)
                if work.aborts:
                    raise KeyError
        except TransactionOutcomeUnknownError:
            self.outcomes.append(Outcome.UNKNOWN)
            return False
        except TransactionAbortableError:
            self.outcomes.append(Outcome.ABORTED)
            return True
        except (SteleError, KeyError):
            self.outcomes.append(Outcome.ABORTED)
            return False
        self.outcomes.append(Outcome.COMMITTED)
        assert all(each.done() and not each.exception() for each in deliveries.values())
        return True

    def check(self, works: Sequence[Work]) -> None:
        """Compare what readers of committed records see with the answers to the application."""
        seen = [self.transactions.values(partition=each) for each in range(PARTITIONS)]
        last_offset = 0
        for number, (work, outcome) in enumerate(zip(works, self.outcomes, strict=True)):
            own = [
                [value for value in each if value and value.startswith(b"%d/" % number)]
                for each in seen
            ]
            whole = [
                [b"%d/%d" % (number, i) for i, p in enumerate(work.records) if p == partition]
                for partition in range(PARTITIONS)
            ]
            if outcome is Outcome.COMMITTED or (outcome is Outcome.UNKNOWN and any(own)):
                assert own == whole, "all records, once, in order"
            else:
                assert not any(own), "nothing of it"
            if outcome is Outcome.COMMITTED and work.has_offsets:
                last_offset = number + 1
        committed = self.transactions.committed_offsets.get((GROUP.group_id, *IN), 0)
        if Outcome.UNKNOWN not in self.outcomes:
            assert committed == last_offset
        assert committed >= last_offset


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.tuples(WORK, FAULTS), min_size=1, max_size=6),
    st.integers(0, 1000),
)
@on_stage
async def test_transactions_count_as_the_producer_says(
    stage: Stage, script: list[tuple[Work, Faults]], seed: int
) -> None:
    stage.cluster.create("t", PARTITIONS)
    transactions = FakeTransactions(stage.cluster)
    application = Application(stage, transactions)
    producer: Producer | None = None
    for number, (work, faults) in enumerate(script):
        if producer is None:
            producer = stage.producer(
                transactional_id="tx",
                max_block_ms=400,
                delivery_timeout_ms=2_000,
                request_timeout_ms=500,
            )
        for place, fault in enumerate(faults.batches):
            stage.cluster.partition(partition=place % PARTITIONS).faults.append(fault)
        transactions.fail("TxnOffsetCommit", *faults.offsets)
        transactions.fail("EndTxn", *faults.ends)
        transactions.fail("InitProducerId", *faults.begins)
        if faults.moves:
            transactions.coordinator = 1 + transactions.coordinator % 3
        if not await application.run(number, work, producer):
            await producer.abort()
            producer = None
    # Another producer ends what is still open.
    if producer is not None:
        await producer.abort()
    transactions.faults.clear()
    async with stage.producer(transactional_id="tx") as last:
        await last.init_transactions()
    application.check([work for work, _ in script])
