"""Transactions of the producer against a fake cluster on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from stele.aio import Producer
from stele.error_meanings import explain
from stele.errors import (
    ApiError,
    ConfigError,
    ErrorCode,
    ProducerFencedError,
    SteleError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionFatalError,
    TransactionOutcomeUnknownError,
    TransactionStateError,
    UnreachableError,
)
from stele.producer.sender import GAPS_FROM_DEPOSED
from stele.wire.kafka.messages import init_producer_id
from tests.support.stele import Fault, Stage, on_stage
from tests.support.stele_transactions import (
    FakeTransactions,
    TransactionFault,
    transactional,
    with_transactions,
)
from tests.support.timing import until

LOST = TransactionFault(is_lost=True)
LOST_BUT_DONE = TransactionFault(applied=True, is_lost=True)


async def send_in_transaction(producer: Producer, *values: bytes) -> None:
    """Each to a partition of its own."""
    async with producer.transaction():
        for number, value in enumerate(values):
            await producer.send("t", value, partition=number)


@with_transactions
async def test_a_transaction_is_committed_at_its_end(
    stage: Stage, transactions: FakeTransactions
) -> None:
    async with transactional(stage) as producer:
        for number in range(3):
            async with producer.transaction():
                await producer.send("t", b"a%d" % number, partition=0)
                await producer.send("t", b"b%d" % number, partition=1)
        assert transactions.values() == [b"a0", b"a1", b"a2"]
        assert transactions.values(partition=1) == [b"b0", b"b1", b"b2"]
        assert transactions.ids["tx"].producer_epoch == 3, "it rises with every transaction"
    ends = [each for each in transactions.asked if each == "EndTxn"]
    assert len(ends) == 3


@with_transactions
async def test_an_exception_aborts_it(stage: Stage, transactions: FakeTransactions) -> None:
    async with transactional(stage) as producer:
        late: list[Awaitable[Any]] = []

        async def work() -> None:
            async with producer.transaction():
                await (await producer.send("t", b"one", partition=0))
                late.append(await producer.send("t", b"two", partition=0))
                raise KeyError("an application's problem")

        with pytest.raises(KeyError):
            await work()
        with pytest.raises(TransactionAbortedError):
            await late[0]
        async with producer.transaction():
            await producer.send("t", b"three", partition=0)
        await producer.flush()  # knows of no failure
        assert transactions.values() == [b"three"]


@with_transactions
async def test_records_of_an_aborted_transaction_fail_no_later_flush(
    stage: Stage, transactions: FakeTransactions
) -> None:
    async with transactional(stage, linger_ms=1000) as producer:
        await producer.begin_transaction()
        delivery = await producer.send("t", b"v", partition=0)
        await producer.abort_transaction()
        with pytest.raises(TransactionAbortedError):
            await delivery
        await producer.flush()


@with_transactions
async def test_a_transaction_without_records_asks_nobody(
    stage: Stage, transactions: FakeTransactions
) -> None:
    async with transactional(stage) as producer:
        async with producer.transaction():
            pass
        await producer.begin_transaction()
        await producer.abort_transaction()
    assert "EndTxn" not in transactions.asked


@pytest.mark.parametrize(
    ("method", "faults"),
    [
        ("InitProducerId", [LOST]),
        ("InitProducerId", [LOST_BUT_DONE]),
        ("InitProducerId", [TransactionFault(ErrorCode.CONCURRENT_TRANSACTIONS)] * 3),
        ("InitProducerId", [TransactionFault(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)]),
        ("FindTransaction", [TransactionFault(ErrorCode.COORDINATOR_NOT_AVAILABLE)]),
        ("EndTxn", [LOST]),
        ("EndTxn", [LOST_BUT_DONE]),
        ("EndTxn", [LOST_BUT_DONE, LOST, LOST_BUT_DONE]),
        ("EndTxn", [TransactionFault(ErrorCode.CONCURRENT_TRANSACTIONS, applied=True)]),
        ("EndTxn", [TransactionFault(ErrorCode.NOT_COORDINATOR)]),
    ],
)
@with_transactions
async def test_questions_are_asked_until_they_are_answered(
    stage: Stage, transactions: FakeTransactions, method: str, faults: list[TransactionFault]
) -> None:
    transactions.fail(method, *faults)
    async with transactional(stage) as producer:
        async with producer.transaction():
            await producer.send("t", b"one", partition=0)
        async with producer.transaction():
            await producer.send("t", b"two", partition=0)
    assert transactions.values() == [b"one", b"two"]


@with_transactions
async def test_a_coordinator_that_moved_is_found_again(
    stage: Stage, transactions: FakeTransactions
) -> None:
    async with transactional(stage) as producer:
        async with producer.transaction():
            await producer.send("t", b"one", partition=0)
            await producer.flush()
            transactions.coordinator = 3
        assert transactions.values() == [b"one"]


@with_transactions
async def test_a_commit_without_an_answer_has_an_unknown_outcome_and_can_be_asked_again(
    stage: Stage, transactions: FakeTransactions
) -> None:
    transactions.fail("EndTxn", LOST_BUT_DONE, *[LOST] * 100)
    async with transactional(stage, max_block_ms=500) as producer:
        with pytest.raises(TransactionOutcomeUnknownError, match="asks again") as unknown:
            await send_in_transaction(producer, b"one")
        assert unknown.value.transactional_id == "tx"
        assert unknown.value.producer_epoch == 0
        for wrong in (producer.begin_transaction, producer.abort_transaction):
            with pytest.raises(TransactionStateError, match="committing"):
                await wrong()
        with pytest.raises(TransactionStateError, match="committing"):
            await producer.send("t", b"two")
        transactions.faults.clear()
        await producer.commit_transaction()
        async with producer.transaction():
            await producer.send("t", b"two", partition=0)
    assert transactions.values() == [b"one", b"two"]


@with_transactions
async def test_a_producer_that_was_fenced_after_a_lost_answer_does_not_know_the_outcome(
    stage: Stage, transactions: FakeTransactions
) -> None:
    producer = transactional(stage)
    await producer.begin_transaction()
    await producer.send("t", b"one", partition=0)
    await producer.flush()
    transactions.fail("EndTxn", LOST_BUT_DONE)

    async def take_over() -> None:
        await until(lambda: "EndTxn" in transactions.asked)
        async with transactional(stage) as other:
            await other.init_transactions()

    other = asyncio.ensure_future(take_over())
    with pytest.raises(TransactionOutcomeUnknownError, match="may have taken effect"):
        await producer.commit_transaction()
    await other
    assert transactions.values() == [b"one"], "in this case it did"
    await producer.abort()


@with_transactions
async def test_a_second_producer_fences_the_first_and_aborts_its_transaction(
    stage: Stage, transactions: FakeTransactions
) -> None:
    first, second = transactional(stage), transactional(stage)
    await first.begin_transaction()
    await (await first.send("t", b"lost", partition=0))
    async with second.transaction():
        await second.send("t", b"kept", partition=0)
    with pytest.raises(ProducerFencedError, match="aborted"):
        await first.commit_transaction()
    for call in (first.begin_transaction, first.abort_transaction, first.commit_transaction):
        with pytest.raises(ProducerFencedError):
            await call()
    with pytest.raises(ProducerFencedError):
        await first.send("t", b"more")
    await first.close()
    await second.close()
    assert transactions.values() == [b"kept"]


@with_transactions
async def test_a_fenced_producer_that_sends_learns_it_by_recovering(
    stage: Stage, transactions: FakeTransactions
) -> None:
    first, second = transactional(stage), transactional(stage)
    await first.begin_transaction()
    await second.init_transactions()
    await first.send("t", b"lost", partition=0)
    with pytest.raises(TransactionAbortableError, match="INVALID_PRODUCER_EPOCH"):
        await first.commit_transaction()
    with pytest.raises(ProducerFencedError):
        await first.abort_transaction()
    await first.close()
    await second.close()
    assert transactions.values() == []


@pytest.mark.parametrize(
    "fault",
    [
        Fault(ErrorCode.INVALID_RECORD),
        Fault(ErrorCode.TRANSACTION_ABORTABLE),
        Fault(ErrorCode.INVALID_TXN_STATE),
        Fault(ErrorCode.UNKNOWN_PRODUCER_ID, applied=True),
        Fault(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        Fault(ErrorCode.INVALID_PRODUCER_EPOCH, applied=True),
        Fault(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
    ids=lambda fault: fault.error.name,
)
@pytest.mark.parametrize("is_kafkas", [False, True])
@with_transactions
async def test_a_refused_batch_makes_the_transaction_abortable(
    stage: Stage, transactions: FakeTransactions, fault: Fault, is_kafkas: bool
) -> None:
    stage.cluster.is_kafkas = is_kafkas
    async with transactional(stage) as producer:
        async with producer.transaction():
            await producer.send("t", b"before", partition=0)
        # A broker that misses batches is taken for one that was deposed at first, where
        # acknowledgements do not name the leader.
        is_gap = fault.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        count = GAPS_FROM_DEPOSED if is_gap and is_kafkas else 1
        stage.cluster.partition().faults.extend([fault] * count)
        with pytest.raises(TransactionAbortableError, match=fault.error.name):
            await send_in_transaction(producer, b"refused", b"with it")
        async with producer.transaction():
            await producer.send("t", b"again", partition=0)
            await producer.send("t", b"beside", partition=1)
    assert transactions.values() == [b"before", b"again"]
    assert transactions.values(partition=1) == [b"beside"]


@with_transactions
async def test_after_a_failure_nothing_more_is_taken(
    stage: Stage, transactions: FakeTransactions
) -> None:
    async with transactional(stage, linger_ms=0) as producer:
        await producer.begin_transaction()
        stage.cluster.partition().faults.append(Fault(ErrorCode.INVALID_RECORD))
        with pytest.raises(ApiError, match="INVALID_RECORD"):
            await (await producer.send("t", b"refused", partition=0))
        with pytest.raises(TransactionAbortableError):
            await producer.send("t", b"more", partition=1)
        with pytest.raises(TransactionAbortableError):
            await producer.commit_transaction()
        await producer.abort_transaction()
    assert transactions.values(partition=1) == []


@with_transactions
async def test_a_refused_abort_goes_on_at_once_with_a_higher_epoch(
    stage: Stage, transactions: FakeTransactions
) -> None:
    """It is another question, not the one that was refused."""
    transactions.fail("EndTxn", TransactionFault(ErrorCode.INVALID_TXN_STATE))
    loop = asyncio.get_running_loop()
    async with transactional(stage, retry_backoff_ms=1_000) as producer:
        await producer.begin_transaction()
        await producer.send("t", b"one", partition=0)
        await producer.flush()
        began = loop.time()
        await producer.abort_transaction()
        assert loop.time() - began < 0.5
    assert [each for each in transactions.asked if each != "FindTransaction"] == [
        "InitProducerId", "EndTxn", "InitProducerId",
    ]  # fmt: skip
    assert transactions.values() == []


@with_transactions
async def test_a_flush_leaves_the_error_of_a_transaction_to_its_calls(
    stage: Stage, transactions: FakeTransactions
) -> None:
    """The commit raises it. Raised twice, it would be taken for another failure."""
    async with transactional(stage, linger_ms=1_000) as producer:
        await producer.begin_transaction()
        delivery = await producer.send("t", b"v", partition=0)
        producer.fail_transaction(SteleError("a record is missing"))
        await producer.flush()
        with pytest.raises(TransactionAbortableError):
            await delivery
        with pytest.raises(TransactionAbortableError, match="a record is missing"):
            await producer.commit_transaction()
        await producer.abort_transaction()
    assert transactions.values() == []


@with_transactions
async def test_a_batch_without_an_answer_is_fenced_by_the_abort(
    stage: Stage, transactions: FakeTransactions
) -> None:
    partition = stage.cluster.partition()
    async with transactional(stage, delivery_timeout_ms=300, linger_ms=0) as producer:
        partition.faults.append(Fault(silent=True, error=ErrorCode.NONE))
        with pytest.raises(TransactionAbortableError, match="was not acknowledged"):
            await send_in_transaction(producer, b"maybe")
        async with producer.transaction():
            await producer.send("t", b"again", partition=0)
    assert transactions.values() == [b"again"]
    assert transactions.asked.count("InitProducerId") == 2, "it recovers by its own id"


@with_transactions
async def test_a_topic_that_is_made_anew_aborts_the_transaction(
    stage: Stage, transactions: FakeTransactions
) -> None:
    async with transactional(stage, linger_ms=0) as producer:

        async def work() -> None:
            async with producer.transaction():
                await (await producer.send("t", b"gone", partition=0))
                stage.cluster.topics["old"] = stage.cluster.topics.pop("t")
                stage.cluster.create("t", 2)
                for each in stage.cluster.topics["old"].partitions.values():
                    each.faults.append(Fault(ErrorCode.UNKNOWN_TOPIC_ID))
                await producer.send("t", b"new", partition=0)

        with pytest.raises(TransactionAbortableError, match="made anew"):
            await work()
        async with producer.transaction():
            await producer.send("t", b"again", partition=0)
    assert transactions.values() == [b"again"]


# ---------------------------------------------------------------------------- wrong calls


@with_transactions
async def test_calls_that_do_not_fit(stage: Stage, transactions: FakeTransactions) -> None:
    async with transactional(stage) as producer:
        with pytest.raises(TransactionStateError, match="within a transaction"):
            await producer.send("t", b"outside")
        with pytest.raises(TransactionStateError, match="nothing to commit"):
            await producer.commit_transaction()
        with pytest.raises(TransactionStateError, match="nothing to abort"):
            await producer.abort_transaction()
        await producer.begin_transaction()
        with pytest.raises(TransactionStateError, match="commit_transaction"):
            await producer.begin_transaction()
        with pytest.raises(TransactionStateError, match="two_phase_commit_enable"):
            await producer.prepare_transaction()
    async with stage.producer() as producer:
        with pytest.raises(ConfigError, match="transactional_id"):
            await producer.begin_transaction()


@pytest.mark.parametrize(
    "options",
    [
        {"transactional_id": ""},
        {"acks": 1},
        {"enable_idempotence": False},
        {"transaction_timeout_ms": 0},
        {"transactional_id": None, "transaction_two_phase_commit_enable": True},
    ],
    ids=str,
)
@on_stage
async def test_options_that_do_not_fit(stage: Stage, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        transactional(stage, **options)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TransactionFatalError),
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, TransactionFatalError),
        (ErrorCode.UNSUPPORTED_VERSION, TransactionFatalError),
        (ErrorCode.PRODUCER_FENCED, ProducerFencedError),
    ],
)
@pytest.mark.parametrize("method", ["InitProducerId", "FindTransaction"])
@with_transactions
async def test_a_refusal_at_the_beginning_is_final(
    stage: Stage,
    transactions: FakeTransactions,
    method: str,
    error: ErrorCode,
    kind: type[SteleError],
) -> None:
    transactions.fail(method, TransactionFault(error))
    producer = transactional(stage)
    for _ in range(2):
        with pytest.raises(kind, match=error.name):
            await producer.begin_transaction()
    await producer.close()


@pytest.mark.parametrize("method", ["InitProducerId", "EndTxn"])
@with_transactions
async def test_a_refusal_without_a_message_is_explained(
    stage: Stage, transactions: FakeTransactions, method: str
) -> None:
    """Kafka's answers of transactions have no text."""
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    transactions.fail(method, TransactionFault(code))
    async with transactional(stage) as producer:
        with pytest.raises(TransactionFatalError, match=explain(code)):
            await send_in_transaction(producer, b"v")


@with_transactions
async def test_a_refusal_says_what_the_coordinator_says(
    stage: Stage, transactions: FakeTransactions
) -> None:
    def refuse(broker: int, request: init_producer_id.InitProducerIdRequest) -> Any:
        return init_producer_id.InitProducerIdResponse(
            error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, error_message="ask Eve"
        )

    stage.cluster.answer(init_producer_id.API, refuse)
    async with transactional(stage) as producer:
        with pytest.raises(TransactionFatalError, match="ask Eve"):
            await producer.begin_transaction()


@with_transactions
async def test_a_topic_made_anew_between_two_transactions_fails_neither(
    stage: Stage, transactions: FakeTransactions
) -> None:
    cluster = stage.cluster
    async with transactional(stage, metadata_max_age_ms=1000) as producer:
        await send_in_transaction(producer, b"old")
        del cluster.topics["t"]
        cluster.create("other")
        cluster.create("t", 2)
        await asyncio.sleep(3)  # the metadata have come
        await send_in_transaction(producer, b"new")
    assert transactions.values() == [b"new"]


@with_transactions
async def test_a_coordinator_that_cannot_be_reached_is_reported_in_time(
    stage: Stage, transactions: FakeTransactions
) -> None:
    transactions.fail("InitProducerId", *[LOST] * 1000)
    producer = transactional(stage, max_block_ms=700)
    began_s = stage.cluster.clock.monotonic()
    with pytest.raises(UnreachableError, match="coordinator of 'tx', broker 1"):
        await producer.begin_transaction()
    assert stage.cluster.clock.monotonic() - began_s <= 0.7
    transactions.faults.clear()
    async with producer.transaction():
        await producer.send("t", b"one", partition=0)
    await producer.close()
    assert transactions.values() == [b"one"]


@with_transactions
async def test_why_names_the_broker_that_is_awaited(
    stage: Stage, transactions: FakeTransactions
) -> None:
    transactions.fail("EndTxn", *[TransactionFault(ErrorCode.CONCURRENT_TRANSACTIONS)] * 1000)
    producer = transactional(stage)
    await producer.begin_transaction()
    await producer.send("t", b"one", partition=0)
    commit = asyncio.ensure_future(producer.commit_transaction())
    await asyncio.sleep(1)
    (told,) = producer.why().values()
    assert told.startswith("committing: CONCURRENT_TRANSACTIONS")
    assert told.endswith("; the coordinator of 'tx' is broker 1")
    assert any("committing: CONCURRENT_TRANSACTIONS" in each for each in stage.waits)
    transactions.faults.clear()
    await commit
    await producer.close()


@with_transactions
async def test_closing_aborts_an_open_transaction(
    stage: Stage, transactions: FakeTransactions
) -> None:
    async with transactional(stage) as producer:
        await producer.begin_transaction()
        await (await producer.send("t", b"one", partition=0))
    assert transactions.values() == []


@with_transactions
async def test_closing_asks_once_more_for_an_abort_without_an_answer(
    stage: Stage, transactions: FakeTransactions
) -> None:
    """Otherwise the transaction holds readers of committed records back until its time-out."""
    producer = transactional(stage, max_block_ms=500)
    await producer.begin_transaction()
    await (await producer.send("t", b"one", partition=0))
    transactions.fail("EndTxn", *[LOST] * 100)
    with pytest.raises(UnreachableError):
        await producer.abort_transaction()
    transactions.faults.clear()
    asked = len(transactions.asked)
    await producer.close()
    assert "EndTxn" in transactions.asked[asked:]
    assert transactions.values() == []


@pytest.mark.parametrize("is_kafkas", [False, True])
@with_transactions
async def test_brokers_of_kafka_must_give_each_transaction_its_epoch(
    stage: Stage, transactions: FakeTransactions, is_kafkas: bool
) -> None:
    """Stele's take the partitions of batches into a transaction at every level."""
    stage.cluster.is_kafkas, stage.cluster.transaction_version = is_kafkas, 1
    async with transactional(stage) as producer:
        if is_kafkas:
            with pytest.raises(TransactionFatalError, match="version is 1"):
                await producer.begin_transaction()
        else:
            await producer.begin_transaction()
            await producer.abort_transaction()
