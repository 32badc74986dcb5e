"""A follower's fetch costs by what has changed, and a tick by what is not settled. The tests count
looks at partitions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.partition.machine import PartitionMachine
from stele.ids import PartitionId
from storage.log import PartitionLog
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, TOPIC_ID, ReplicaCluster
from tests.support.replication import settled, with_brokers
from tests.support.timing import until


class Looks:
    """Counts the looks at partitions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries = self.ticks = 0
        check, ticked = PartitionMachine.check_follower, PartitionMachine.ticked

        def count_entry(machine: PartitionMachine, *args: Any) -> Any:
            self.entries += 1
            return check(machine, *args)

        def count_tick(machine: PartitionMachine, now_ms: float) -> Any:
            self.ticks += 1
            return ticked(machine, now_ms)

        monkeypatch.setattr(PartitionMachine, "check_follower", count_entry)
        monkeypatch.setattr(PartitionMachine, "ticked", count_tick)

    def taken(self) -> tuple[int, int]:
        counted = self.entries, self.ticks
        self.entries = self.ticks = 0
        return counted


def looks(monkeypatch: pytest.MonkeyPatch, partitions: int) -> tuple[int, int]:
    """The looks of 20 produce requests to one of so many partitions, and of 20 idle seconds after
    them."""
    counted: list[int] = []

    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.create_topic(*([(1, 2, 3)] * partitions))
        first, last = PartitionId(TOPIC_ID, 0), PartitionId(TOPIC_ID, partitions - 1)
        await until(lambda: all(node.holds(last) for node in cluster.nodes.values()))
        await cluster[1].produce(make_batch())
        await asyncio.sleep(2)
        counter = Looks(monkeypatch)
        for _ in range(20):
            await cluster[1].produce(make_batch(), partition=first)
        await asyncio.sleep(1)
        counted.append(counter.taken()[0])
        await asyncio.sleep(20)
        counted.extend(counter.taken())

    with_brokers.run(scenario)
    monkeypatch.undo()
    busy, idle, ticks = counted
    assert busy > 20
    return busy, idle + ticks


def test_idle_partitions_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = looks(monkeypatch, 2), looks(monkeypatch, 150)
    assert few[1] == many[1] == 0
    assert many[0] <= few[0] + 5


@with_brokers
async def test_a_fetch_that_waits_for_bytes_reads_them_once(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if it is woken often. Otherwise 1 MiB in pieces of 2 kB would be read 250 times."""
    read_bytes: list[int] = []
    read = PartitionLog.read

    def count(log: PartitionLog, *args: Any, **options: Any) -> Any:
        found = read(log, *args, **options)
        read_bytes.append(len(found.data))
        return found

    cluster.create_topic((1,), min_insync=1)
    await settled(cluster)
    batch = make_batch(size=2000)
    wanted = 100 * len(batch)
    waiting = asyncio.ensure_future(cluster[1].fetch(0, max_wait_ms=600_000, min_bytes=wanted))
    monkeypatch.setattr(PartitionLog, "read", count)
    for _ in range(100):
        assert not waiting.done()
        await cluster[1].produce(make_batch(size=2000), partition=P0)
        await asyncio.sleep(0.01)
    assert sum(map(len, (await waiting).records)) == wanted == sum(read_bytes)
    assert len(read_bytes) == 1
    monkeypatch.undo()


@with_brokers
async def test_more_than_an_answer_may_hold_is_not_waited_for(cluster: ReplicaCluster) -> None:
    cluster.create_topic((1,), min_insync=1)
    await settled(cluster)
    for _ in range(3):
        await cluster[1].produce(make_batch(size=500_000))
    began = cluster.simulation.now
    found = await cluster[1].fetch(0, max_wait_ms=60_000, min_bytes=1 << 30)
    assert found.records
    assert cluster.simulation.now - began < 1


@with_brokers
async def test_two_followers_that_wait_for_one_append_share_a_read(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[int] = []
    read = PartitionLog.read

    def count(log: PartitionLog, *args: Any, **options: Any) -> Any:
        result = read(log, *args, **options)
        found.append(len(result.data))
        return result

    cluster.create_topic((1, 2, 3))
    await settled(cluster)
    batches = [make_batch(size=100 * number) for number in range(1, 11)]
    await cluster[1].produce(make_batch())
    monkeypatch.setattr(PartitionLog, "read", count)
    for batch in batches:
        await cluster[1].produce(batch)
    monkeypatch.undo()
    assert found == [len(batch) for batch in batches]
    contents = [
        [(header.base_offset, bytes(data)) for header, data in node.replica().log.batches_now(0)]
        for node in cluster.nodes.values()
    ]
    assert contents[0] == contents[1] == contents[2]
    assert len(contents[0]) == len(batches) + 1
