"""``stele transaction``: what is asked of the cluster, and what people and programs are shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from types import TracebackType

import pytest

from cli import main, transactions
from stele.admin.descriptions import PartitionDescription, TopicDescription
from stele.admin.transactions import (
    HangingTransaction,
    ProducerDescription,
    TransactionDescription,
    TransactionListing,
)
from stele.ids import TopicPartition

PARTITION = TopicPartition("orders", 0)
OPEN = ProducerDescription(7, 3, 12, 1_000_000, 4, 42)
IDLE = ProducerDescription(8, 0, -1, 1_000_000, -1, None)


class _Admin:
    """A cluster with one transactional id, and a hanging transaction in one partition."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.hanging = [HangingTransaction(PARTITION, OPEN)]

    def __enter__(self) -> _Admin:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Sequence[int] = (),
        min_duration_ms: int = 0,
    ) -> list[TransactionListing]:
        self.asked.append((list(states), list(producer_ids), min_duration_ms))
        return [TransactionListing("payments", 9, "Ongoing")]

    def describe_transactions(self, names: Iterable[str]) -> list[TransactionDescription]:
        assert list(names) == ["payments"]
        partitions = (PARTITION, TopicPartition("orders", 1))
        return [
            TransactionDescription("payments", 2, "Ongoing", 9, 5, 60_000, 1_000, partitions),
            TransactionDescription("payments", 2, "Empty", 9, 5, 60_000, None, ()),
        ]

    def describe_producers(
        self, partitions: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        return {TopicPartition(*each): [IDLE, OPEN] for each in partitions}

    def list_topics(self) -> list[TopicDescription]:
        parts = [PartitionDescription(n, 1 + n, 0, 0, (1,), (1,), (), 0) for n in range(2)]
        return [TopicDescription("orders", bytes(16), tuple(parts), {})]

    def describe_topics(self, names: Sequence[str]) -> list[TopicDescription]:
        assert list(names) == ["orders"]
        return self.list_topics()

    def find_hanging_transactions(
        self, partitions: Iterable[tuple[str, int]], *, longest_transaction_ms: int
    ) -> list[HangingTransaction]:
        self.asked.append((list(partitions), longest_transaction_ms))
        return self.hanging

    def abort_hanging_transaction(
        self,
        partition: tuple[str, int],
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
    ) -> None:
        self.asked.append(("abort", partition, producer_id, producer_epoch, coordinator_epoch))

    def fence_producer(self, transactional_id: str) -> None:
        self.asked.append(("fence", transactional_id))


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> _Admin:
    made = _Admin()
    monkeypatch.setattr(transactions, "connect", lambda bootstrap, timeout: made)
    return made


def run(*arguments: str) -> int:
    return main.run(["transaction", *arguments])


def test_transactions_are_listed(admin: _Admin, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--state", "ongoing,Empty", "--producer-id", "9", "--duration-filter", "500")
    assert run("list", *options) == 0
    assert admin.asked == [(["Ongoing", "Empty"], [9], 500)]
    head, line = capsys.readouterr().out.splitlines()
    assert head.split() == ["TRANSACTIONAL-ID", "PRODUCER-ID", "STATE"]
    assert line.split() == ["payments", "9", "Ongoing"]
    assert run("list", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [
        {"transactional_id": "payments", "producer_id": 9, "state": "Ongoing"}
    ]
    assert run("list", "--state", "ongong") == 1
    assert "Did you mean 'Ongoing'?" in capsys.readouterr().err


def test_a_transaction_is_described(admin: _Admin, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("describe", "payments") == 0
    _, ongoing, empty = capsys.readouterr().out.splitlines()
    assert ongoing.split()[:6] == ["payments", "2", "9", "5", "Ongoing", "60000"]
    assert ongoing.endswith("orders-0, orders-1")
    assert empty.split()[6:] == ["-", "-"]
    assert run("describe", "payment") == 1
    error = capsys.readouterr().err
    assert "there is no transactional id 'payment'. Did you mean 'payments'?" in error


def test_producers_of_a_partition(admin: _Admin, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("describe-producers", "--topic", "orders", "--partition", "0") == 0
    _, idle, opened = capsys.readouterr().out.splitlines()
    assert idle.split() == ["8", "0", "-1", "-1", "1000000", "-"]
    assert opened.split() == ["7", "3", "4", "12", "1000000", "42"]


@pytest.mark.parametrize(
    ("options", "partitions"),
    [
        ((), [0, 1]),
        (("--topic", "orders"), [0, 1]),
        (("--topic", "orders", "--partition", "1"), [1]),
        (("--broker-id", "1"), [0]),
    ],
)
def test_hanging_transactions_are_found(
    admin: _Admin,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    partitions: list[int],
) -> None:
    assert run("find-hanging", *options, "--max-transaction-timeout", "2") == 0
    assert admin.asked == [([("orders", each) for each in partitions], 120_000)]
    _, line = capsys.readouterr().out.splitlines()
    assert line.split()[:6] == ["orders", "0", "7", "3", "4", "42"]


def test_a_partition_without_its_topic(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("find-hanging", "--partition", "1") == main.EXIT_USAGE
    assert "--partition needs --topic" in capsys.readouterr().err


@pytest.mark.parametrize("which", [("--start-offset", "42"), ("--producer-id", "7")])
def test_a_hanging_transaction_is_aborted(
    admin: _Admin, capsys: pytest.CaptureFixture[str], which: tuple[str, str]
) -> None:
    where = ("--topic", "orders", "--partition", "0")
    assert run("abort", *where, *which) == 0
    assert admin.asked[-1] == ("abort", PARTITION, 7, 3, 4)
    assert capsys.readouterr().out == "aborted the transaction of producer 7 in orders-0\n"
    admin.hanging = []
    admin.asked.clear()
    assert run("abort", *where, *which) == 1
    assert "does not hang: a coordinator knows it" in capsys.readouterr().err
    assert [each for each in admin.asked if each[0] == "abort"] == []  # type: ignore[index]


def test_an_abort_that_names_no_transaction(
    admin: _Admin, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--topic", "orders", "--partition", "0")
    assert run("abort", *where) == main.EXIT_USAGE
    assert "Give --start-offset or --producer-id" in capsys.readouterr().err
    assert run("abort", *where, "--producer-id", "8") == 1
    assert "orders-0 has no open transaction of producer 8" in capsys.readouterr().err
    assert run("abort", *where, "--start-offset", "1") == 1
    assert "orders-0 has no open transaction at offset 1" in capsys.readouterr().err


def test_a_producer_is_fenced(admin: _Admin, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("force-terminate", "payments") == 0
    assert admin.asked[-1] == ("fence", "payments")
    assert capsys.readouterr().out == "terminated payments: its producer is fenced\n"
    assert run("force-terminate", "payment") == 1
    assert admin.asked[-1] != ("fence", "payment")
