"""Sizes and rates of ``stele topic describe``: what is not known is left out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Self

import pytest

from cli import main, topic_measures, topics, watch
from cli.topic_measures import Growth
from stele.admin.descriptions import PartitionDescription, TopicDescription
from stele.errors import UnreachableError
from stele.ids import TopicPartition

ORDERS = [TopicPartition("orders", number) for number in range(3)]


def partition(number: int, leader: int | None) -> PartitionDescription:
    return PartitionDescription(number, leader, 0, 0, (101, 102), (101, 102), (), 0)


class FakeAdmin:
    """Broker 101 leads partition 0, broker 102 partition 1, and partition 2 has no leader."""

    silent: tuple[int, ...] = ()
    ends = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def list_topics(self, linearizable: bool = True) -> list[TopicDescription]:
        partitions = (partition(0, 101), partition(1, 102), partition(2, None))
        return [TopicDescription("orders", bytes(16), partitions, {})]

    def describe_log_dirs(
        self, broker_ids: Sequence[int], names: Sequence[TopicPartition]
    ) -> list[SimpleNamespace]:
        (broker_id,) = broker_ids
        if broker_id in self.silent:
            raise UnreachableError(f"broker {broker_id} is silent")
        replicas = [
            SimpleNamespace(partition=name, size_bytes=size, is_future=is_future)
            for name in names
            for size, is_future in ((broker_id * 10, False), (7, True))
        ]
        return [SimpleNamespace(broker_id=broker_id, replicas=replicas)]

    def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Any]:
        assert set(wanted) == set(ORDERS[:2]), "only partitions with a leader have offsets"
        self.ends += 100
        return {name: SimpleNamespace(offset=self.ends) for name in wanted}


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> FakeAdmin:
    fake = FakeAdmin()
    for module in (topics, topic_measures):
        monkeypatch.setattr(module, "connect", lambda bootstrap, timeout: fake)
    monkeypatch.setattr(topic_measures, "_growth", Growth())
    return fake


@pytest.fixture
def described(
    admin: FakeAdmin, capsys: pytest.CaptureFixture[str]
) -> Callable[[], list[dict[str, Any]]]:
    def describe() -> list[dict[str, Any]]:
        assert main.run(["topic", "describe", "orders", "--json"]) == 0
        (topic,) = json.loads(capsys.readouterr().out)
        partitions: list[dict[str, Any]] = topic["partitions"]
        return partitions

    return describe


Described = Callable[[], list[dict[str, Any]]]


def test_the_size_is_that_of_the_leaders_replica(described: Described) -> None:
    assert [each["size_bytes"] for each in described()] == [1010, 1020, None]


def test_a_silent_broker_hides_only_its_own_sizes(
    admin: FakeAdmin, described: Described, capsys: pytest.CaptureFixture[str]
) -> None:
    admin.silent = (101,)
    assert main.run(["topic", "describe", "orders"]) == 0
    output = capsys.readouterr()
    assert "sizes at broker 101 are not known: broker 101 is silent" in output.err
    assert "1020" in output.out
    assert "bytes" not in output.out, "the sum is not known"
    assert [each["size_bytes"] for each in described()] == [None, 1020, None]


def test_rates_are_known_from_the_second_look_on(
    described: Described, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "records_per_s" not in described()[0]
    monkeypatch.setattr(watch, "_watching", ["stele topic describe"])
    now_s = iter((10.0, 14.0))
    monkeypatch.setattr("cli.topic_measures.time.monotonic", lambda: next(now_s))
    assert [each["records_per_s"] for each in described()] == [None, None, None]
    assert [each["records_per_s"] for each in described()] == [25.0, 25.0, None]


def test_a_log_that_became_shorter_has_no_rate() -> None:
    growth = Growth()
    growth.rates(0.0, dict(zip(ORDERS, (10, 10, 10), strict=True)))
    assert growth.rates(2.0, dict(zip(ORDERS, (20, 5, 10), strict=True))) == {
        ORDERS[0]: 5.0,
        ORDERS[2]: 0.0,
    }
