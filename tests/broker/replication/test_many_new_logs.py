"""More new partitions than a broker makes logs for in one turn of the event loop."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from broker.replication import metadata
from broker.replication.types import ProduceResult
from stele.errors import ErrorCode
from stele.ids import PartitionId
from tests.support.replica_cluster import P0, TOPIC_ID, ReplicaCluster
from tests.support.replication import with_brokers
from tests.support.timing import until

COUNT = 7
LAST = PartitionId(TOPIC_ID, COUNT - 1)


@pytest.fixture(autouse=True)
def two_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "LOGS_AT_ONCE", 2)


def held(cluster: ReplicaCluster, broker_id: int = 1) -> list[int]:
    return [
        number for number in range(COUNT) if cluster[broker_id].holds(PartitionId(TOPIC_ID, number))
    ]


async def first_logs(cluster: ReplicaCluster) -> None:
    """Wait for no longer than until the first ones are made."""
    while not cluster[1].holds(P0):  # noqa: ASYNC110 - no later than that
        await asyncio.sleep(0)
    assert not cluster[1].holds(LAST)


@with_brokers
async def test_logs_are_made_over_several_turns_and_all_in_the_end(cluster: ReplicaCluster) -> None:
    cluster.create_topic(*([(1, 2, 3)] * COUNT))
    seen = [held(cluster)]
    while len(seen[-1]) < COUNT:
        await asyncio.sleep(0)
        if (now := held(cluster)) != seen[-1]:
            seen.append(now)
    counts = [len(each) for each in seen if each]
    assert all(after - before <= 2 for before, after in itertools.pairwise(counts))
    assert seen[-1] == list(range(COUNT))
    await until(lambda: all(held(cluster, each) == seen[-1] for each in (2, 3)))
    result: ProduceResult = await cluster[1].produce(partition=LAST)
    assert result.error is ErrorCode.NONE


@with_brokers
async def test_waiting_replicas_refuse_requests_and_count_as_offline(
    cluster: ReplicaCluster,
) -> None:
    cluster.create_topic(*([(1, 2, 3)] * COUNT))
    await first_logs(cluster)
    manager = cluster[1].manager
    assert manager.measures.counters().offline_replicas == COUNT - 2
    result = await cluster[1].produce(partition=LAST, acks=1)
    assert result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await until(lambda: cluster[1].holds(LAST))
    assert manager.measures.counters().offline_replicas == 0


@with_brokers
async def test_the_newest_state_of_a_waiting_replica_counts(
    cluster: ReplicaCluster,
) -> None:
    cluster.create_topic(*([(1, 2, 3)] * COUNT))
    cluster.change(LAST, leader=2)
    await until(lambda: all(cluster[each].holds(LAST) for each in (1, 2, 3)))
    assert not cluster[1].replica(LAST).machine.is_leader
    assert cluster[2].replica(LAST).machine.is_leader
    assert held(cluster) == list(range(COUNT))


@with_brokers
async def test_waiting_replicas_of_a_deleted_topic_are_not_made(cluster: ReplicaCluster) -> None:
    cluster.create_topic(*([(1, 2, 3)] * COUNT))
    await first_logs(cluster)
    cluster.delete_topic()
    await asyncio.sleep(1)
    assert held(cluster) == []
    assert cluster[1].manager.measures.counters().offline_replicas == 0


@with_brokers
async def test_a_broker_that_stops_makes_no_more_logs(cluster: ReplicaCluster) -> None:
    cluster.create_topic(*([(1, 2, 3)] * COUNT))
    await first_logs(cluster)
    await cluster[1].stop()
    disk = cluster[1].disk
    made = [number for number in range(COUNT) if disk.find(f"/data/orders-{number}")]
    assert 0 < len(made) < COUNT


@with_brokers
async def test_a_log_that_cannot_be_made_in_its_turn_is_made_later(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    applier = metadata.MetadataApplier
    create = applier._create  # noqa: SLF001 - what fails is of no part of its own

    def broken(self: metadata.MetadataApplier, partition: PartitionId, topic: str) -> object:
        if partition == LAST and self._replicas.broker_id == 1:
            raise ZeroDivisionError
        return create(self, partition, topic)

    monkeypatch.setattr(applier, "_create", broken)
    cluster.create_topic(*([(1, 2, 3)] * COUNT))
    await until(lambda: len(held(cluster)) == COUNT - 1)
    await until(lambda: "ZeroDivisionError" in caplog.text)
    assert cluster[1].manager.measures.counters().offline_replicas == 1
    monkeypatch.setattr(applier, "_create", create)
    await until(lambda: cluster[1].holds(LAST), within_s=120)
