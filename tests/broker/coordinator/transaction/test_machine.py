"""The life of transactions, step by step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from broker.coordinator.transaction.adding import PARTITION_BYTES_MAX
from broker.coordinator.transaction.machine import MAX_PATIENT
from broker.coordinator.transaction.partitions import NO_PARTITIONS
from broker.coordinator.transaction.records import (
    RecordedTransaction,
    transaction_record,
    transaction_tombstone,
)
from broker.coordinator.transaction.types import (
    NEEDS_PRODUCER_ID,
    NO_TIMEOUT_MS,
    AddPartitionsRequest,
    CompletionRequest,
    DescribeRequest,
    EndRequest,
    InitRequest,
    TransactionRef,
    TransactionState,
)
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from tests.support.coordinators import Heard
from tests.support.transaction_machine import NONE, after
from tests.support.transactions import (
    FIRST_PRODUCER_ID,
    TransactionBench,
    partitions,
)

_COMPLETE = TransactionState.COMPLETE_ABORT


def test_a_client_of_version_2_gets_an_epoch_with_every_transaction() -> None:
    bench = TransactionBench(version=2)
    ref = bench.producer()
    assert bench.state() == "Empty 0:0"
    bench.writes_markers = False
    for commit in (True, False):
        assert bench.add(ref, "a0", "b1").error is NONE
        assert bench.add(ref, "a1").error is NONE
        assert bench.state() == f"Ongoing 0:{ref.producer_epoch} a0 a1 b1"
        answer = bench.end(ref, commit=commit)
        ref = after(ref, epochs=1)
        assert (answer.error, answer.producer_id, answer.producer_epoch) == (NONE, *ref[1:])
        (due,) = bench.due
        assert due == (ref, commit, partitions("a0", "a1", "b1"), 2)
        outcome = "Commit" if commit else "Abort"
        assert bench.state() == f"Prepare{outcome} 0:{ref.producer_epoch} a0 a1 b1"
        bench.write_markers(partitions("a1"))
        assert bench.state().startswith("Prepare")
        bench.write_markers()
        assert bench.state() == f"Complete{outcome} 0:{ref.producer_epoch}"


@pytest.mark.parametrize("version", [0, 1])
def test_an_old_client_keeps_its_epoch(version: int) -> None:
    bench = TransactionBench(version=version)
    ref = bench.producer()
    bench.writes_markers = False
    for commit in (True, False):
        assert bench.add(ref, "a0").error is NONE
        answer = bench.end(ref, commit=commit)
        assert (answer.error, answer.producer_id, answer.producer_epoch) == (NONE, -1, -1)
        (due,) = bench.due
        assert due == (ref, commit, partitions("a0"), 0)
        bench.write_markers()
        assert bench.state() == f"Complete{'Commit' if commit else 'Abort'} 0:0"


def test_every_transactional_id_gets_a_producer_id() -> None:
    bench = TransactionBench()
    assert bench.producer("t").producer_id == FIRST_PRODUCER_ID
    assert bench.producer("u").producer_id == FIRST_PRODUCER_ID + 1
    assert bench.producer("t") == ("t", FIRST_PRODUCER_ID, 1)


@pytest.mark.parametrize("version", [1, 2])
def test_a_transaction_that_lasts_too_long_is_aborted(version: int) -> None:
    bench = TransactionBench(version=version)
    ref = bench.producer(transaction_timeout_ms=5_000)
    bench.add(ref, "a0")
    bench.pass_time(3_000)
    bench.add(ref, "a1")  # it does not get more time
    bench.pass_time(1_999)
    assert bench.state() == "Ongoing 0:0 a0 a1"
    bench.pass_time(1)
    assert bench.state() == "CompleteAbort 0:1"
    assert bench.end(ref).error is (
        ErrorCode.INVALID_TXN_STATE if version == 2 else ErrorCode.PRODUCER_FENCED
    )
    assert bench.add(ref, "a0").error is ErrorCode.PRODUCER_FENCED


# ------------------------------------------------------------------------------- requests


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"name": ""}, ErrorCode.INVALID_REQUEST),
        ({"name": "t" * 32_001}, ErrorCode.INVALID_REQUEST),
        ({"name": "é" * 16_001}, ErrorCode.INVALID_REQUEST),
        ({"name": "t" * 32_000}, NONE),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 1}, NONE),
        ({"transaction_timeout_ms": 7_000}, NONE),
        ({"transaction_timeout_ms": 7_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"expected_producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"expected_producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
        ({"expected_producer_id": 5, "expected_producer_epoch": 0}, NONE),
        ({"keep_prepared": True}, NONE),
        ({"enable_two_phase_commit": True}, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    ],
)
def test_requests_to_begin(fields: dict[str, Any], error: ErrorCode) -> None:
    bench = TransactionBench(transaction_max_timeout_ms=7_000)
    assert bench.init(**({"transaction_timeout_ms": 5_000} | fields)).error is error
    assert bool(bench.log) is (error is NONE)


def test_a_two_phase_commit_has_no_time_out_to_check() -> None:
    bench = TransactionBench(transaction_two_phase_commit_enable=True)
    assert bench.init(enable_two_phase_commit=True, transaction_timeout_ms=-5).error is NONE
    assert bench.describe().timeout_ms == NO_TIMEOUT_MS


def test_a_transactional_id_of_nothing() -> None:
    bench = TransactionBench()
    nobody = TransactionRef("", 0, 0)
    assert bench.add(nobody, "a0").error is ErrorCode.INVALID_REQUEST
    assert bench.end(nobody).error is ErrorCode.INVALID_REQUEST
    assert bench.describe("").error is ErrorCode.INVALID_REQUEST


def test_ids_below_zero_are_nobody() -> None:
    """A producer id of -1 stands for none in records. It must not be taken for a client's."""
    bench = TransactionBench()
    bench.producer()
    nobody = TransactionRef("t", -1, 32_766)
    assert bench.end(nobody, commit=False).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    bench.end(TransactionRef("t", FIRST_PRODUCER_ID, 0), commit=False)
    bench.append(
        transaction_record("t", RecordedTransaction(5, 0, 9, _COMPLETE, NO_PARTITIONS, 0), 2)
    )
    assert bench.end(nobody, commit=False).error is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_a_transaction_of_too_many_partitions() -> None:
    """The record that ends a transaction must fit into a batch. One with a topic of a letter counts
    13 bytes."""
    bench = TransactionBench()
    ref = bench.producer()
    names = [f"a{number}" for number in range(780_000 // 13)]
    assert bench.add(ref, *names).error is NONE
    more = bench.add(ref, "b0")
    assert more.error is ErrorCode.INVALID_REQUEST
    assert more.by_partition == (ErrorCode.INVALID_REQUEST,)
    assert bench.add(ref, names[0]).error is NONE
    assert bench.state().startswith("Ongoing 0:0 a0")


def test_a_later_time_out_is_for_later_transactions() -> None:
    bench = TransactionBench()
    bench.producer(transaction_timeout_ms=5_000)
    ref = bench.producer(transaction_timeout_ms=7_000)
    assert bench.describe().timeout_ms == 7_000
    bench.add(ref, "a0")
    bench.pass_time(5_000)
    assert bench.state() == "Ongoing 0:1 a0"


# ------------------------------------------------------------------------------- answers


def test_an_answer_waits_for_what_it_rests_on() -> None:
    bench = TransactionBench()
    ref = bench.producer()
    bench.commits_at_once = False
    request = AddPartitionsRequest(ref, partitions("a0"), client_version=2)
    added = bench.ask(request)
    again = bench.ask(request)
    asking = replace(request, verify_only=True)
    asked = bench.ask(asking)
    described = bench.ask(DescribeRequest("t"))
    wrong = AddPartitionsRequest(ref._replace(producer_epoch=7), partitions("a0"))
    refused = bench.ask(wrong)
    for heard in (added, again, asked, described, refused):
        assert heard.told == []
    bench.commit()
    for heard in (added, again, asked, described, refused):
        assert len(heard.told) == 1


@pytest.mark.parametrize(("more", "error"), [(0, ErrorCode.NONE), (1, ErrorCode.INVALID_REQUEST)])
def test_a_transaction_has_as_many_partitions_as_a_record_can_hold(
    more: int, error: ErrorCode
) -> None:
    bench = TransactionBench()
    ref = bench.producer()
    topic = "t" * 236  # 248 bytes each
    count = PARTITION_BYTES_MAX // 248
    rest = PARTITION_BYTES_MAX - 248 * count - 12
    added = [TopicPartition(topic, number) for number in range(count)]
    added.append(TopicPartition("t" * (rest + more), 0))
    request = AddPartitionsRequest(ref, tuple(added), client_version=2)
    answer = bench.ask(request).told[0]
    assert answer.error is error


def test_who_waits_for_the_end_of_a_transaction_hears_of_it_with_the_last_marker() -> None:
    bench = TransactionBench()
    ref = bench.producer()

    def ask() -> Heard:
        return bench.ask(CompletionRequest("t"))

    assert ask().told == [None]
    nobody = bench.ask(CompletionRequest("nobody"))
    assert nobody.told == [None]
    bench.add(ref, "a0", "a1")
    assert ask().told == [None], "a transaction that is open may go on"
    bench.writes_markers = False
    bench.end(ref)
    waiting = [ask(), ask()]
    bench.write_markers(partitions("a0"))
    assert [each.told for each in waiting] == [[], []]
    bench.write_markers()
    assert [each.told for each in waiting] == [[None], [None]]
    assert bench.machine.deadline_ms != float("-inf"), "nothing is left to do"


def test_no_more_wait_for_markers_than_a_client_needs() -> None:
    """A partition without a leader takes no markers, and the client asks all the time."""
    bench = TransactionBench()
    ref = bench.producer()
    bench.add(ref, "a0")
    bench.writes_markers = False
    bench.end(ref)
    waiting = [bench.ask(CompletionRequest("t")) for _ in range(MAX_PATIENT + 2)]
    assert [each.told for each in waiting] == [[]] * MAX_PATIENT + [[None]] * 2
    bench.write_markers()
    assert [each.told for each in waiting] == [[None]] * (MAX_PATIENT + 2)


def test_who_waits_for_the_end_is_refused_when_the_coordinator_moves() -> None:
    bench = TransactionBench()
    ref = bench.producer()
    bench.add(ref, "a0")
    bench.writes_markers = False
    bench.end(ref)
    waiting = bench.ask(CompletionRequest("t"))
    bench.reload()
    assert waiting.told == [ErrorCode.NOT_COORDINATOR]
    bench.write_markers()
    assert len(waiting.told) == 1


def test_what_needs_a_producer_id_is_asked_for_at_once() -> None:
    """Nothing rests on it: the request comes again."""
    bench = TransactionBench()
    bench.producer()
    bench.commits_at_once = False
    bench.append(
        transaction_record("t", RecordedTransaction(5, 32_766, 9, _COMPLETE, NO_PARTITIONS, 0), 2)
    )
    request = InitRequest("t", 5_000)
    heard = bench.ask(request)
    assert heard.told == [NEEDS_PRODUCER_ID]


def test_a_removed_id_is_reported_when_the_removal_is_committed() -> None:
    bench = TransactionBench()
    bench.producer()
    bench.commits_at_once = False
    bench.append(transaction_tombstone("t"))
    heard = bench.ask(DescribeRequest("t"))
    assert heard.told == []
    bench.commit()
    assert heard.told[0].error is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


# ------------------------------------------------------------------------------- markers


def test_markers_are_asked_for_once_the_decision_is_committed() -> None:
    bench = TransactionBench()
    bench.writes_markers = False
    refs = [bench.producer(name) for name in "tu"]
    for ref in refs:
        bench.add(ref, "a0")
    bench.commits_at_once = False
    request = EndRequest(refs[0], True, 2)
    bench.ask(request)
    bench.ask(replace(request, ref=refs[1]))
    assert (bench.due, bench.calls) == ([], 0)
    bench.commit(len(bench.log) - 2)
    assert (bench.due, bench.calls) == ([], 0)
    bench.machine.committed(len(bench.log) - 1)
    assert bench.calls == 1
    bench.machine.committed(len(bench.log))
    assert bench.calls == 1  # nobody has taken the first ones yet
    due = bench.machine.due_markers()
    assert [each.ref.transactional_id for each in due] == ["t", "u"]
    assert bench.machine.due_markers() == []


def test_another_coordinator_asks_for_markers_in_the_order_of_decisions() -> None:
    bench = TransactionBench()
    bench.writes_markers = False
    refs = [bench.producer(name) for name in "tuv"]
    for ref in refs:
        bench.add(ref, "a0")
    for ref in reversed(refs):
        bench.end(ref)
    assert [each.ref.transactional_id for each in bench.due] == ["v", "u", "t"]
    calls = bench.calls
    bench.reload()
    assert bench.calls == calls + 1
    assert [each.ref.transactional_id for each in bench.due] == ["v", "u", "t"]


def test_markers_that_nobody_asked_for_mean_nothing() -> None:
    bench = TransactionBench()
    bench.writes_markers = False
    ref = bench.producer()
    bench.add(ref, "a0")
    written = partitions("a0")
    bench.mark(ref, written)  # it is open
    bench.commits_at_once = False
    request = EndRequest(ref, True, 2)
    bench.ask(request)
    decided = after(ref, epochs=1)
    bench.mark(decided, written)  # the decision is not committed
    bench.commits_at_once = True
    bench.commit()
    bench.mark(ref, written)  # another epoch
    bench.mark(TransactionRef("t", 7, decided.producer_epoch), written)
    bench.mark(TransactionRef("u", *decided[1:]), written)
    bench.pass_time(0)
    assert bench.state().startswith("PrepareCommit")
    bench.mark(decided, written)
    bench.pass_time(0)
    assert bench.state() == "CompleteCommit 0:1"
    records = len(bench.log)
    bench.mark(decided, written)
    bench.pass_time(0)
    assert len(bench.log) == records


def test_an_abort_without_partitions_of_another_server_is_completed() -> None:
    """Our own coordinator completes it in the same batch."""
    bench = TransactionBench()
    state = TransactionState.PREPARE_ABORT
    bench.append(
        transaction_record("t", RecordedTransaction(5, 1, 9, state, NO_PARTITIONS, 0, 0), 2)
    )
    bench.reload()
    assert bench.due == []
    assert bench.state().startswith("CompleteAbort")
