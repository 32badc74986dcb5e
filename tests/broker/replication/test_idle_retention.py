"""Retention of partitions that nobody writes to any more, or whose transactions are not decided."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from broker.replication import housekeeping
from broker.replication.replica import ReplicaState
from broker.replication.types import EARLIEST_TIMESTAMP, OffsetQuery
from stele.errors import ErrorCode
from storage.log_types import LogView
from tests.support.batches import make_batch
from tests.support.replica_cluster import DIRECTORY, OTHER_DIRECTORY, P0, Node, ReplicaCluster
from tests.support.replicated_transactions import NEW, Coordinator, batch, marker, spans
from tests.support.replication import ends, with_topic
from tests.support.timing import until


def leads(node: Node) -> Callable[[], bool]:
    return lambda: node.replica().machine.is_leader


@with_topic(retention_ms="5000")
async def test_the_last_records_of_an_idle_partition_are_deleted_everywhere(
    cluster: ReplicaCluster,
) -> None:
    leader = cluster[1]
    now_ms = leader.process.world.clock.time_ms()
    await leader.produce(make_batch(3, timestamp_ms=now_ms))
    logs = [cluster[number].replica().log for number in cluster.nodes]
    await until(lambda: all(log.segments.bases == [3] for log in logs), within_s=400)
    assert [log.size_bytes for log in logs] == [0] * len(logs)
    query = OffsetQuery(P0, EARLIEST_TIMESTAMP, -1)
    (earliest,) = await leader.process.run(leader.manager.offsets.list_offsets([query]))
    assert earliest.offset == 3
    assert (await leader.produce()).base_offset == 3
    assert ends(cluster, 1) == [4]


@with_topic(retention_ms="5000")
async def test_followers_that_have_everything_keep_it_and_their_producers(
    cluster: ReplicaCluster,
) -> None:
    """The leader has written nothing in its epoch, so retention deletes the last records of the
    epoch that its followers end in."""

    now_ms = cluster[1].process.world.clock.time_ms()
    sent = make_batch(3, timestamp_ms=now_ms, producer=(7, 0, 0))
    assert (await cluster[1].produce(bytearray(sent))).base_offset == 0
    cluster.change(leader=2)
    logs = [cluster[number].replica().log for number in cluster.nodes]
    await until(lambda: all(log.segments.bases == [3] for log in logs), within_s=400)
    await asyncio.sleep(5)
    assert [log.truncation_generation for log in logs] == [0] * len(logs)
    for leader in (cluster[1], cluster[3]):
        cluster.change(leader=leader.broker_id)
        await until(leads(leader))
        again = await leader.produce(bytearray(sent))
        assert (again.error, again.base_offset) == (ErrorCode.NONE, 0)
    assert ends(cluster, 1, 2, 3) == [3, 3, 3]


@pytest.mark.parametrize("commit", [True, False])
@with_topic(retention_ms="5000")
async def test_records_of_an_open_transaction_stay_until_it_is_decided(
    cluster: ReplicaCluster, commit: bool
) -> None:
    # All records are too old when they are written.

    Coordinator(*cluster.nodes.values())
    leader = cluster[1]
    await leader.produce(make_batch(2))
    assert (await leader.produce(batch(0, 2), transaction=NEW)).base_offset == 2
    logs = [cluster[number].replica().log for number in cluster.nodes]
    await asyncio.sleep(700)
    assert [log.start_offset for log in logs] == [0] * len(logs)
    assert await leader.mark(marker(commit=commit)) == [ErrorCode.NONE]
    fetched = await leader.fetch(2, read_committed=True)
    assert spans(fetched) == [2]
    await until(lambda: all(log.segments.bases == [5] for log in logs), within_s=700)


@with_topic((1,), (1,), brokers=1, directories=(DIRECTORY, OTHER_DIRECTORY))
async def test_a_round_looks_at_each_log_once_and_not_at_those_of_a_failed_directory(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = cluster[1]
    looked: list[str] = []

    async def look(log: LogView, high_watermark: int, now_ms: int) -> int:
        looked.append(log.directory)
        return log.start_offset

    monkeypatch.setattr(housekeeping, "retained_from", look)
    replicas = [node.replica(P0._replace(partition=number)) for number in (0, 1)]
    assert {each.directory.path for each in replicas} == {DIRECTORY, OTHER_DIRECTORY}
    logs = sorted(each.log.directory for each in replicas)
    interval_s = cluster.config.log_retention_check_interval_ms / 1000
    await asyncio.sleep(interval_s)
    assert sorted(looked) == logs
    looked.clear()
    node.process.loop.call_soon(node.manager.take_down, replicas[0], ReplicaState.OFFLINE)
    await asyncio.sleep(interval_s)
    assert looked == [replicas[1].log.directory]
