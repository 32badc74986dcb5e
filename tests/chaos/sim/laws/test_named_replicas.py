"""The law of the replicas to which leaders send consumers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from broker.partition.effects import BrokerStatus
from broker.partition.followers import Followers
from chaos.sim.laws.named_replicas import NamedReplicasAreTheBest
from metadata.partitions import PartitionState
from tests.support.batches import make_batch
from tests.support.law_bench import LawBench

STATE = PartitionState((1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=5, partition_epoch=10)


@pytest.fixture
def bench() -> LawBench:
    """Broker 1 leads two records; 2 has both on disk, 3 has one."""
    bench = LawBench()
    leading = bench.replica(1, make_batch(2), state=STATE)
    for broker_id, offset in ((2, 2), (3, 1)):
        leading.machine.fetched(broker_id, offset, BrokerStatus(100 + broker_id, True), 0.0)
    bench.scene.leading = [(bench.sim_node(1), leading)]
    for broker, rack in ((1, "a"), (2, "b"), (3, "b")):
        bench.brokers[broker].config = SimpleNamespace(rack=rack)
    return bench


def broken(bench: LawBench) -> list[str]:
    law = NamedReplicasAreTheBest(bench.scene)
    found = bench.broken(law)
    assert law.looked == 2
    return found


def test_a_follower_without_the_records_below_the_offset_may_not_be_named(
    bench: LawBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader has a third record, which no follower has. So a consumer behind it must stay."""
    ((_, leading),) = bench.scene.leading
    end = leading.machine.log._replace(end_offset=3, durable_offset=3)
    leading.machine.appended(end, 1.0)
    assert not broken(bench)
    monkeypatch.setattr(Followers, "preferred", lambda _, offset, *__: 2)
    (report,) = broken(bench)
    assert "a consumer at 3" in report


def test_the_replica_with_most_records_is_named(bench: LawBench) -> None:
    assert not broken(bench)


@pytest.mark.parametrize("named", [-1, 1, 3])
def test_no_other_may_be_named(
    bench: LawBench, named: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Followers, "preferred", lambda *_: named)
    assert any(f"is sent to broker {named}" in text for text in broken(bench))
