"""The machine of transactions as time goes by: time-outs, expiry, telling and damage."""

from __future__ import annotations

from typing import Any

import pytest

from broker.coordinator.step import KeyValue, Now
from broker.coordinator.transaction.records import (
    transaction_tombstone,
)
from broker.coordinator.transaction.types import (
    DescribedTransaction,
    ForgetRequest,
    InitRequest,
    TransactionRef,
    TransactionState,
)
from stele.errors import ErrorCode
from tests.support.transaction_machine import NONE, after
from tests.support.transactions import (
    FIRST_PRODUCER_ID,
    START_MS,
    TIMEOUT_MS,
    TransactionBench,
    partitions,
)

# ------------------------------------------------------------------------------- time


def test_nothing_is_due_without_transactions() -> None:
    bench = TransactionBench()
    assert bench.machine.deadline_ms == 3_600_000
    ref = bench.producer()
    assert bench.machine.deadline_ms == 3_600_000
    bench.add(ref, "a0")
    assert bench.machine.deadline_ms == TIMEOUT_MS
    bench.writes_markers = False
    bench.end(ref)
    assert bench.machine.deadline_ms == 3_600_000


def test_a_fresh_machine_waits_for_nothing_until_it_is_loaded() -> None:
    bench = TransactionBench()
    bench.add(bench.producer(), "a0")
    machine = bench.fresh()
    for offset, record in enumerate(bench.log):
        machine.replay(offset, record, bench.now)
    machine.committed(len(bench.log))
    assert machine.deadline_ms is None
    assert machine.tick(bench.now).records == []
    machine.loaded(bench.now)
    assert machine.deadline_ms == TIMEOUT_MS


@pytest.mark.parametrize(("ahead_ms", "left_ms"), [(0, 5_000), (-9_999, 5_000), (2_000, 3_000)])
def test_a_transaction_gets_no_more_than_its_time(ahead_ms: int, left_ms: int) -> None:
    """The clock of the next coordinator may be behind, or ahead."""
    bench = TransactionBench()
    bench.add(bench.producer(transaction_timeout_ms=5_000), "a0")
    bench.now = bench.now._replace(time_ms=bench.now.time_ms + ahead_ms)
    bench.reload()
    bench.pass_time(left_ms - 1)
    assert bench.state() == "Ongoing 0:0 a0"
    bench.pass_time(1)
    assert bench.state() == "CompleteAbort 0:1"


def test_a_clock_that_is_far_ahead_aborts_at_once() -> None:
    bench = TransactionBench()
    bench.add(bench.producer(transaction_timeout_ms=5_000), "a0")
    bench.now = bench.now._replace(time_ms=bench.now.time_ms + 60_000)
    bench.reload()
    assert bench.state() == "CompleteAbort 0:1"


@pytest.mark.parametrize(("most_ms", "passed_ms"), [(8_000, 8_000), (0, 0)])
def test_a_bound_aborts_transactions_of_two_phase_commits(most_ms: int, passed_ms: int) -> None:
    bench = TransactionBench(
        transaction_two_phase_commit_enable=True, transaction_two_phase_commit_max_ms=most_ms
    )
    ref = bench.producer(enable_two_phase_commit=True)
    bench.add(ref, "a0")
    if passed_ms:
        bench.pass_time(passed_ms - 1)
        assert bench.state() == "Ongoing 0:0 a0"
        assert bench.init(keep_prepared=True).error is NONE
        bench.pass_time(1)
    else:
        bench.pass_time(0)
    assert bench.state().startswith("CompleteAbort")


# ------------------------------------------------------------------------------- expiry


def test_ids_that_nobody_uses_are_forgotten() -> None:
    bench = TransactionBench(
        transactional_id_expiration_ms=10_000,
        transaction_remove_expired_transaction_cleanup_interval_ms=1_000,
    )
    committing, aborting, open_one = (bench.producer(name) for name in "cao")
    bench.producer("e")
    for ref in (committing, aborting, open_one):
        bench.add(ref, "a0")
    bench.pass_time(1_000)
    bench.end(committing)
    bench.end(aborting, commit=False)
    for _ in range(8):
        bench.pass_time(1_000)
    bench.pass_time(999)
    assert len(bench.list().transactions) == 4
    bench.pass_time(1)
    assert [each[0] for each in bench.list().transactions] == ["c", "a", "o"]
    assert bench.counters.expirations == 1
    assert bench.log[-1] == transaction_tombstone("e")
    assert bench.state("e") == "TRANSACTIONAL_ID_NOT_FOUND"
    bench.pass_time(999)
    assert len(bench.list().transactions) == 3
    bench.pass_time(1)
    assert [each[0] for each in bench.list().transactions] == ["o"]
    bench.reload()
    assert [each[0] for each in bench.list().transactions] == ["o"]
    assert bench.counters.expirations == 3  # a load counts nothing
    assert bench.init("e").producer_epoch == 0


def test_an_id_is_forgotten_at_once_if_it_is_in_no_transaction() -> None:
    bench = TransactionBench()
    bench.writes_markers = False

    def forget() -> ErrorCode:
        answer = bench.told(ForgetRequest("t"))
        assert isinstance(answer, ErrorCode)
        return answer

    ref = bench.producer()
    bench.add(ref, "a0")
    assert forget() is ErrorCode.INVALID_TXN_STATE
    bench.end(ref)
    assert forget() is ErrorCode.CONCURRENT_TRANSACTIONS
    bench.write_markers()
    assert bench.state().startswith("CompleteCommit")
    assert [forget(), forget()] == [ErrorCode.NONE, ErrorCode.NONE]
    assert bench.log[-1] == transaction_tombstone("t")
    assert bench.state() == "TRANSACTIONAL_ID_NOT_FOUND"
    assert bench.add(ref, "a0").error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert bench.init().producer_id != ref.producer_id


def test_nothing_is_forgotten_between_two_checks() -> None:
    bench = TransactionBench(transactional_id_expiration_ms=10)
    bench.producer()
    bench.pass_time(3_599_999)
    assert bench.machine.tick(bench.now).records == []


def test_a_decided_transaction_is_not_forgotten() -> None:
    bench = TransactionBench(transactional_id_expiration_ms=10)
    bench.writes_markers = False
    ref = bench.producer()
    bench.add(ref, "a0")
    bench.end(ref)
    bench.pass_time(3_600_000)
    assert bench.state().startswith("PrepareCommit")


def test_many_ids_are_forgotten_in_steps() -> None:
    bench = TransactionBench(transactional_id_expiration_ms=10)
    for number in range(1_200):
        bench.producer(f"t{number}")
    bench.writes_markers = False
    bench.pass_time(3_599_999)
    bench.now = bench.now._replace(monotonic_ms=bench.now.monotonic_ms + 1)
    sizes = []
    while (deadline_ms := bench.machine.deadline_ms) is not None:
        if deadline_ms > bench.now.monotonic_ms:
            break
        step = bench.machine.tick(bench.now)
        sizes.append(len(step.records))
        bench.take(step)
    assert sizes == [500, 0, 500, 0, 200, 0]
    assert bench.list().transactions == ()


def test_long_ids_are_forgotten_in_small_batches() -> None:
    bench = TransactionBench(transactional_id_expiration_ms=10)
    for number in range(9):
        bench.producer(f"{number}" * 8_188)  # a key of 8 KiB
    bench.pass_time(3_599_999)
    bench.now = bench.now._replace(monotonic_ms=bench.now.monotonic_ms + 1)
    assert len(bench.machine.tick(bench.now).records) == 2
    bench.pass_time(0)
    assert bench.list().transactions == ()


def test_tombstones_that_are_refused_are_written_later() -> None:
    bench = TransactionBench(transactional_id_expiration_ms=10)
    bench.producer()
    bench.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    bench.pass_time(3_600_000)
    bench.take(bench.machine.tick(bench.now))
    assert bench.state() == "Empty 0:0"
    bench.refusal = NONE
    bench.pass_time(0)
    assert bench.state() == "TRANSACTIONAL_ID_NOT_FOUND"
    assert bench.machine.deadline_ms == 2 * 3_600_000


def test_an_id_that_is_used_again_is_not_forgotten() -> None:
    bench = TransactionBench(transactional_id_expiration_ms=3_600_000)
    bench.producer("t")
    bench.producer("u")
    bench.pass_time(1)
    bench.producer("t")
    bench.pass_time(3_599_999)
    assert [each[0] for each in bench.list().transactions] == ["t"]


# ------------------------------------------------------------------------------- telling


def test_describing() -> None:
    bench = TransactionBench()
    bench.producer()
    assert bench.describe().start_time_ms == -1
    bench.pass_time(5)
    ref = TransactionRef("t", FIRST_PRODUCER_ID, 0)
    bench.add(ref, "b1", "a0")
    bench.pass_time(5)
    bench.add(ref, "a2")
    assert bench.describe() == DescribedTransaction(
        NONE,
        "t",
        TransactionState.ONGOING,
        TIMEOUT_MS,
        START_MS + 5,
        FIRST_PRODUCER_ID,
        0,
        partitions("a0", "a2", "b1"),
    )
    assert bench.describe("u").error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_listing() -> None:
    bench = TransactionBench()
    bench.writes_markers = False
    names = "abcd"
    refs = [bench.producer(name) for name in names]
    for ref in refs[1:]:
        bench.add(ref, "a0")
    bench.pass_time(100)
    bench.end(refs[2])
    bench.end(refs[3], commit=False)
    bench.write_markers()
    bench.add(refs[3]._replace(producer_epoch=1), "a0")
    bench.end(refs[3]._replace(producer_epoch=1))

    def listed(**fields: Any) -> str:
        return "".join(each.transactional_id for each in bench.list(**fields).transactions)

    assert listed() == "abcd"
    assert bench.list().transactions[1] == ("b", FIRST_PRODUCER_ID + 1, TransactionState.ONGOING)
    assert listed(states=("Ongoing",)) == "b"
    assert listed(states=("Ongoing", "CompleteCommit")) == "bc"
    assert listed(states=("ongoing",)) == ""
    assert bench.list(states=("ongoing", "Empty")).unknown_states == ("ongoing",)
    assert listed(states=("ongoing", "Empty")) == "a"
    assert listed(producer_ids=(FIRST_PRODUCER_ID, FIRST_PRODUCER_ID + 3, 7)) == "ad"
    assert listed(duration_ms=0) == "b"
    bench.pass_time(1)
    assert listed(duration_ms=0) == "bd"
    assert listed(duration_ms=100) == "b"
    assert listed(duration_ms=101) == ""
    assert listed(matches="bd".__contains__) == "bd"
    assert listed(matches="bd".__contains__, states=("Ongoing",)) == "b"
    assert bench.machine.transactions_by_state() == {
        TransactionState.EMPTY: 1,
        TransactionState.ONGOING: 1,
        TransactionState.COMPLETE_COMMIT: 1,
        TransactionState.PREPARE_COMMIT: 1,
    }


def test_listing_does_not_wait_for_commits() -> None:
    bench = TransactionBench()
    bench.commits_at_once = False
    request = InitRequest("t", TIMEOUT_MS, fresh_producer_id=5)
    bench.ask(request)
    assert len(bench.list().transactions) == 1


def test_counting() -> None:
    bench = TransactionBench()
    ref = bench.producer()
    for commit in (True, False, True):
        bench.add(ref, "a0")
        bench.end(ref, commit=commit)
        ref = after(ref, epochs=1)
    bench.add(ref, "a0")
    bench.pass_time(TIMEOUT_MS)
    bench.reload()
    counters = bench.counters
    assert (counters.commits, counters.aborts, counters.expirations) == (2, 2, 0)
    assert counters.timeouts == 1


# ------------------------------------------------------------------------------- damage


def test_records_of_others_are_reported() -> None:
    machine = TransactionBench().machine
    now = Now(0.0, 0)
    with pytest.raises(ValueError, match="version 1"):
        machine.replay(0, KeyValue(b"\0\1\0\1t", None), now)
    with pytest.raises(ValueError, match="ends early"):
        machine.replay(0, KeyValue(b"\0\0\0\1t", b"\0\0"), now)
    with pytest.raises(ValueError, match="never writes"):
        machine.replay_pending(0, KeyValue(b"\0\0\0\1t", None), 5, now)
    machine.end_transaction(0, 5, commits=True, now=now)
    assert machine.unloaded() == []
    assert machine.value_of("t") is None
