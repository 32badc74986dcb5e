"""Answers after which a follower cuts more logs than in one turn of its event loop."""

from __future__ import annotations

import asyncio

import pytest

from broker.replication import fetcher
from broker.replication.replica import Replica
from stele.errors import ErrorCode
from stele.ids import PartitionId
from storage.producer_handover import HandedProducers
from tests.support.replica_cluster import TOPIC_ID, ReplicaCluster
from tests.support.replication import with_brokers
from tests.support.timing import until

COUNT = 7
AT_ONCE = 2
PARTITIONS = [PartitionId(TOPIC_ID, number) for number in range(COUNT)]


class CutsPerTurn:
    """Counts the logs that begin anew in each turn of the event loop that has any."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counts: list[int] = []
        self.begun = asyncio.Event()
        self._turn_has_any = False
        reset = Replica.reset_to

        def counted(
            replica: Replica, offset: int, producers: HandedProducers | None = None
        ) -> None:
            self._count()
            reset(replica, offset, producers)

        monkeypatch.setattr(fetcher, "CUTS_AT_ONCE", AT_ONCE)
        monkeypatch.setattr(Replica, "reset_to", counted)

    def _count(self) -> None:
        self.begun.set()
        if not self._turn_has_any:
            self._turn_has_any = True
            self.counts.append(0)
            asyncio.get_running_loop().call_soon(self._end_turn)
        self.counts[-1] += 1

    def _end_turn(self) -> None:
        self._turn_has_any = False


async def fall_behind(cluster: ReplicaCluster) -> None:
    """All logs of broker 2, which is down, end below their leader's start."""
    cluster.create_topic(*[(1, 2)] * COUNT, min_insync=1)
    await until(lambda: all(cluster[2].holds(each) for each in PARTITIONS))
    cluster[2].kill()
    cluster.fence(2)
    for each in PARTITIONS:
        await cluster[1].produce(partition=each)
        assert (await cluster[1].delete(1, partition=each)).error is ErrorCode.NONE


async def come_back(cluster: ReplicaCluster) -> None:
    await cluster[2].start()
    cluster.register(cluster[2])


@with_brokers(brokers=2)
async def test_logs_begin_anew_over_several_turns_and_all_in_the_end(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fall_behind(cluster)
    cuts = CutsPerTurn(monkeypatch)
    await come_back(cluster)
    await until(lambda: all(cluster.state(each).isr == (1, 2) for each in PARTITIONS))
    assert cuts.counts == [2, 2, 2, 1], "all of one answer"
    assert {cluster[2].replica(each).log.start_offset for each in PARTITIONS} == {1}
    for each in PARTITIONS:
        assert (await cluster[1].produce(partition=each)).error is ErrorCode.NONE


@with_brokers(brokers=2)
async def test_replicas_that_are_removed_between_two_turns_are_left_alone(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fall_behind(cluster)
    cuts = CutsPerTurn(monkeypatch)
    await come_back(cluster)
    await cuts.begun.wait()
    cluster.delete_topic()
    await until(lambda: not any(cluster[2].holds(each) for each in PARTITIONS))
    assert sum(cuts.counts) < COUNT
    again = b"orders-once-more"
    cluster.create_topic((1, 2), topic_id=again)
    renewed = PartitionId(again, 0)
    await until(lambda: cluster[1].holds(renewed) and cluster[2].holds(renewed))
    assert (await cluster[1].produce(partition=renewed)).error is ErrorCode.NONE
