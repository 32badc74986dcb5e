"""A follower's fetch costs what changed, and a tick what is not settled: counted, not timed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from broker.partition import PartitionMachine
from broker.replicas_fetch import FetchRequests
from broker.types import PartitionId
from tests.support.broker import make_batch
from tests.support.replica_cluster import TOPIC_ID, ReplicaCluster, until
from tests.support.replication import run


class Looks:
    """How often partitions are looked at."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.entries = self.ticks = 0
        read_entry, ticked = FetchRequests._read_entry, PartitionMachine.ticked

        def count_entry(self_: FetchRequests, *args: Any) -> Any:
            self.entries += 1
            return read_entry(self_, *args)

        def count_tick(machine: PartitionMachine, now_ms: float) -> Any:
            self.ticks += 1
            return ticked(machine, now_ms)

        monkeypatch.setattr(FetchRequests, "_read_entry", count_entry)
        monkeypatch.setattr(PartitionMachine, "ticked", count_tick)

    def taken(self) -> tuple[int, int]:
        counted = self.entries, self.ticks
        self.entries = self.ticks = 0
        return counted


def looks(monkeypatch: pytest.MonkeyPatch, partitions: int) -> tuple[int, int]:
    """Of 20 produce requests to one of so many partitions, and of 20 idle seconds after them."""
    counted: list[int] = []

    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.create_topic(*([(1, 2, 3)] * partitions))
        first, last = PartitionId(TOPIC_ID, 0), PartitionId(TOPIC_ID, partitions - 1)
        await until(lambda: all(last in n.manager._replicas.by_id for n in cluster.nodes.values()))
        await cluster[1].produce(make_batch())
        await asyncio.sleep(2)
        counter = Looks(monkeypatch)
        for _ in range(20):
            await cluster[1].produce(make_batch(), partition=first)
        await asyncio.sleep(1)
        counted.append(counter.taken()[0])
        await asyncio.sleep(20)
        counted.extend(counter.taken())

    run(scenario)
    monkeypatch.undo()
    busy, idle, ticks = counted
    assert busy > 20
    return busy, idle + ticks


def test_idle_partitions_cost_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = looks(monkeypatch, 2), looks(monkeypatch, 150)
    assert few[1] == many[1] == 0
    assert many[0] <= few[0] + 5
