"""The law of replicas in log directories that are offline."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from broker.replication.replica import ReplicaState
from chaos.sim.laws import lost_directories
from chaos.sim.laws.lost_directories import OfflineReplicasLeadNothing
from metadata.brokers import Brokers
from metadata.feature_levels import FeatureLevels
from metadata.image import MetadataImage
from metadata.partitions import NO_LEADER, PartitionState
from tests.support.law_bench import LawBench, image

A, B = b"a" * 16, b"b" * 16
LED = PartitionState((1, 2, 3), isr=(1, 2), leader=1, directories=(A, B, B))


@pytest.fixture
def bench() -> LawBench:
    return LawBench()


def with_directories(state: PartitionState, *offline: bytes) -> MetadataImage:
    """Each broker has two directories. On broker 1 these are offline."""
    made = image(10, state, features=FeatureLevels({"metadata.version": 5}))
    brokers = {
        each.broker_id: replace(
            each,
            log_directories=(A, B),
            offline_directories=offline if each.broker_id == 1 else (),
        )
        for each in made.sorted_brokers()
    }
    return replace(made, brokers=Brokers(brokers))


def look(bench: LawBench, law: OfflineReplicasLeadNothing, committed: MetadataImage) -> list[str]:
    bench.commit(committed)
    return bench.broken(law)


def test_what_the_metadata_call_offline_leads_nothing(bench: LawBench) -> None:
    law = OfflineReplicasLeadNothing()
    assert look(bench, law, with_directories(LED, B)) == []
    assert law.looked == 0, "none of its members is in the directory"
    (report,) = look(bench, law, with_directories(LED, A))
    assert "broker 1 leads, and its log directory is offline" in report
    follows = replace(LED, leader=2)
    (report,) = look(bench, law, with_directories(follows, A))
    assert "broker 1 is in sync, and its log directory is offline" in report
    alone = replace(LED, isr=(1,), leader=NO_LEADER)
    assert look(bench, law, with_directories(alone, A)) == [], "nobody else has everything"
    assert law.looked == 3


def failed_replica(bench: LawBench, *, lease: bool = True) -> None:
    replica = bench.replica(1)
    unusable: Any = SimpleNamespace(offline=OSError("the device is gone"))
    replica.directory = unusable
    replica.take_down(ReplicaState.OFFLINE)
    bench.brokers[1].broker.lease_valid = lease


@pytest.mark.parametrize(
    ("within_s", "lease", "leader", "broken"),
    [
        (-1.0, True, 1, True),
        (-1.0, True, 2, False),
        (-1.0, False, 1, False),  # nobody can hear of it
        (20.0, True, 1, False),  # the controller may hear of it soon
    ],
)
def test_a_failed_directory_leads_nothing_some_time_later(
    bench: LawBench,
    monkeypatch: pytest.MonkeyPatch,
    within_s: float,
    lease: bool,
    leader: int,
    broken: bool,
) -> None:
    monkeypatch.setattr(lost_directories, "WITHIN_S", within_s)
    failed_replica(bench, lease=lease)
    state = replace(LED, leader=leader, isr=(1, 2) if leader == 1 else (2, 3))
    reports = look(bench, OfflineReplicasLeadNothing(), with_directories(state))
    assert bool(reports) is broken


def test_nobody_is_judged_by_a_controller_that_may_be_deposed(bench: LawBench) -> None:
    bench.commit(with_directories(LED, A))
    bench.established_controller = None
    assert bench.broken(OfflineReplicasLeadNothing()) == []
