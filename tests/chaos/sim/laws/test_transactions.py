"""The laws of transactional producers: all or nothing, and nothing of a replaced producer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos.sim.laws.atomic_transactions import RISKY, Fate, Transaction, TransactionsAreAtomic
from chaos.sim.laws.committed_offsets import OffsetChange
from chaos.sim.laws.fenced_producers import FencedProducersWriteNothing

P, Q = ("t", 0), ("t", 1)


def first(transaction: Transaction) -> bytes:
    """What it has written to P."""
    return next(iter(transaction.written))


def second(transaction: Transaction) -> bytes:
    return list(transaction.written)[1]


def fate_of(transaction: Transaction) -> Fate:
    return transaction.fate


class Bench:
    def __init__(self) -> None:
        self.reported: list[str] = []
        scene = cast(Any, SimpleNamespace(report=self.reported.append))
        self.atomic = TransactionsAreAtomic.of(scene)
        self.fencing = FencedProducersWriteNothing.of(scene)

    def begun(self) -> Transaction:
        """A transaction that has written to two partitions."""
        transaction = self.atomic.begin("teller")
        self.atomic.wrote(transaction, transaction.value("-1"), P, 0)
        self.atomic.wrote(transaction, transaction.value("+1"), Q, 0)
        return transaction

    def see(self, transaction: Transaction, offset: int = 0) -> None:
        self.atomic.seen(P, offset, first(transaction))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_each_transaction_and_value_is_one_of_its_kind(bench: Bench) -> None:
    one, other = bench.begun(), bench.begun()
    assert one.name != other.name
    assert len({*one.written, *other.written, one.value("-1")}) == 5


def test_an_open_transaction_is_not_seen(bench: Bench) -> None:
    bench.see(bench.begun())
    assert len(bench.reported) == 1


def test_a_transaction_may_be_seen_once_somebody_has_asked_for_its_commit(bench: Bench) -> None:
    transaction = bench.begun()
    bench.atomic.end_asked(transaction, commit=False)
    assert fate_of(transaction) is Fate.OPEN
    bench.atomic.end_asked(transaction, commit=True)
    bench.see(transaction)
    assert fate_of(transaction) is Fate.COMMITTED
    bench.atomic.ended(transaction, commit=True)
    assert not bench.reported
    bench.atomic.ended(transaction, commit=False)
    assert len(bench.reported) == 1


def test_an_aborted_transaction_is_never_seen(bench: Bench) -> None:
    transaction = bench.begun()
    bench.atomic.ended(transaction, commit=False)
    bench.see(transaction)
    assert len(bench.reported) == 1


def test_what_a_replaced_process_left_open_is_aborted(bench: Bench) -> None:
    asked, left = bench.begun(), bench.begun()
    bench.atomic.end_asked(asked, commit=True)
    for each in (asked, left):
        bench.atomic.replaced(each)
    assert fate_of(asked) is Fate.ASKED
    assert fate_of(left) is Fate.ABORTED


def test_a_record_is_seen_where_it_was_written_and_nowhere_else(bench: Bench) -> None:
    transaction = bench.begun()
    bench.atomic.ended(transaction, commit=True)
    bench.see(transaction)
    assert not bench.reported
    bench.see(transaction, offset=1)
    assert len(bench.reported) == 1
    bench.atomic.seen(P, 2, b"stranger")
    assert len(bench.reported) == 2


def test_an_unclean_election_may_move_a_record_within_its_partition(bench: Bench) -> None:
    transaction = bench.begun()
    value = transaction.value("+0")
    bench.atomic.wrote(transaction, value, RISKY, 7)
    bench.atomic.ended(transaction, commit=True)
    bench.atomic.seen(RISKY, 6, value)
    assert not bench.reported
    bench.atomic.seen(P, 7, value)
    assert len(bench.reported) == 1


def test_offsets_take_effect_with_their_transaction(bench: Bench) -> None:
    done: list[str] = []
    change = OffsetChange(lambda: done.append("confirmed"), lambda: done.append("refused"))
    for commit in (True, False):
        transaction = bench.begun()
        transaction.changes.append(change)
        bench.atomic.ended(transaction, commit=commit)
        bench.atomic.ended(transaction, commit=commit)
    assert done == ["confirmed", "refused"]


def test_in_the_end_all_of_a_transaction_is_there_or_nothing(bench: Bench) -> None:
    committed, aborted, unknown = bench.begun(), bench.begun(), bench.begun()
    bench.atomic.ended(committed, commit=True)
    bench.atomic.ended(aborted, commit=False)
    bench.atomic.end_asked(unknown, commit=True)
    found = {P: [(0, first(committed))], Q: [(0, second(committed))]}
    assert bench.atomic.judge(found) == 1
    assert not bench.reported
    found = {**found, P: [*found[P], (0, first(unknown))]}
    bench.atomic.judge(found)
    assert "are missing" in bench.reported[-1]
    reports = len(bench.reported)
    bench.atomic.judge({P: [(0, first(committed))] * 2, Q: [(0, second(committed))]})
    assert len(bench.reported) > reports


def test_nothing_is_taken_from_a_process_that_was_replaced(bench: Bench) -> None:
    fencing = bench.fencing
    fencing.began("teller", 1)
    fencing.began("other", 2)
    assert not fencing.is_fenced("teller", 1)
    fencing.accepted("teller", 1, "a batch", was_fenced=False)
    assert fencing.looked == 0
    fencing.began("teller", 2)
    fencing.began("teller", 1)  # the answer to the former process came late
    assert fencing.is_fenced("teller", 1)
    assert not fencing.is_fenced("teller", 2)
    fencing.refused(was_fenced=True)
    assert not bench.reported
    fencing.accepted("teller", 1, "a batch", was_fenced=True)
    assert len(bench.reported) == 1
    assert fencing.looked == 2


def test_partitions_of_a_kept_transaction_do_not_know_of_the_next_process(bench: Bench) -> None:
    fencing = bench.fencing
    fencing.began("teller", 1)
    fencing.began("teller", 2, kept="teller/7")
    assert not fencing.is_fenced("teller", 1, part_of="teller/7")
    assert fencing.is_fenced("teller", 1, part_of="teller/6")
    assert fencing.is_fenced("teller", 1), "the coordinator knows"
    fencing.began("teller", 1, kept="teller/6")  # the answer came late
    assert not fencing.is_fenced("teller", 1, part_of="teller/7")
    fencing.began("teller", 3)  # the transaction has ended
    assert fencing.is_fenced("teller", 1, part_of="teller/7")
