"""What other brokers and other logs know of transactions."""

from __future__ import annotations

import pytest

from broker.replication.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    OffsetQuery,
)
from stele.errors import ErrorCode
from tests.support.replica_cluster import P0, Node, ReplicaCluster
from tests.support.replicated_transactions import (
    NEW,
    Coordinator,
    batch,
    marker,
    spans,
    transactional,
)
from tests.support.timing import until


async def _begin(cluster: ReplicaCluster) -> None:
    """A committed, an aborted and two open transactions, at offsets 0 to 6."""
    leader = cluster[1]
    for producer_id, commit in ((7, True), (8, False)):
        await leader.produce(batch(0, producer_id=producer_id), transaction=NEW)
        await leader.mark(marker(producer_id=producer_id, commit=commit))
    for producer_id in (9, 10):
        await leader.produce(batch(0, producer_id=producer_id), transaction=NEW)
    await leader.produce()


async def _knows(cluster: ReplicaCluster, node: Node) -> None:
    """What ``_begin`` has written, on a leader; then end the rest."""
    machine = node.replica().machine
    await until(lambda: machine.high_watermark >= 7)
    assert machine.last_stable_offset == 4
    fetched = await node.fetch(0, read_committed=True)
    assert spans(fetched) == [0, 1, 2, 3]
    assert [(each.producer_id, each.first_offset) for each in fetched.aborted] == [(8, 2)]
    assert await node.mark(marker(producer_id=9, commit=False)) == [ErrorCode.NONE]
    assert machine.last_stable_offset == 5
    assert await node.mark(marker(producer_id=10)) == [ErrorCode.NONE]
    fetched = await node.fetch(4, read_committed=True)
    assert [each.producer_id for each in fetched.aborted] == [9]
    assert fetched.last_stable_offset == fetched.high_watermark


@transactional
async def test_another_leader_goes_on_with_the_transactions(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    await _begin(cluster)
    cluster.change(leader=2)
    await until(lambda: cluster[2].replica().machine.is_leader)
    await _knows(cluster, cluster[2])


@pytest.mark.parametrize("ending", ["stop", "kill", "power"])
@transactional
async def test_transactions_outlive_all_brokers(
    cluster: ReplicaCluster, coordinator: Coordinator, ending: str
) -> None:
    await _begin(cluster)
    for node in cluster.nodes.values():
        if ending == "stop":
            await node.stop()
        elif ending == "kill":
            node.kill()
        else:
            cluster.simulation.power_off(node.name)
            cluster.simulation.power_on(node.name)
    for node in cluster.nodes.values():
        await node.start()
        cluster.register(node)
    await until(lambda: cluster.state().isr == (1, 2, 3))
    await _knows(cluster, cluster[cluster.state().leader])


@transactional
async def test_a_replica_that_is_copied_anew_knows_the_transactions(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    await _begin(cluster)
    cluster.change(replicas=(1, 2), isr=(1, 2))
    await until(lambda: not cluster[3].holds())
    cluster.change(replicas=(1, 2, 3), isr=(1, 2))
    await until(lambda: cluster.state().isr == (1, 2, 3))
    cluster.change(leader=3)
    await until(lambda: cluster[3].replica().machine.is_leader)
    await _knows(cluster, cluster[3])


@transactional
async def test_a_topic_that_is_made_anew_has_no_transactions(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    await _begin(cluster)
    cluster.delete_topic()
    await until(lambda: not any(node.holds() for node in cluster.nodes.values()))
    cluster.create_topic((1, 2, 3))
    await until(lambda: all(node.holds() for node in cluster.nodes.values()))
    leader = cluster[1]
    await leader.produce()
    fetched = await leader.fetch(0, read_committed=True)
    assert (fetched.last_stable_offset, fetched.aborted) == (1, ())
    assert len(leader.replica().log.producers) == 0


@transactional
async def test_records_of_an_open_transaction_are_deleted(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    await _begin(cluster)
    leader = cluster[1]
    assert (await leader.delete(6)).error is ErrorCode.NONE
    machine = leader.replica().machine
    assert (machine.start_offset, machine.last_stable_offset) == (6, 6)
    assert spans(await leader.fetch(6, read_committed=True)) == []
    for producer_id in (9, 10):
        assert await leader.mark(marker(producer_id=producer_id)) == [ErrorCode.NONE]
    assert spans(await leader.fetch(6, read_committed=True)) == [6, 7, 8]


@pytest.mark.parametrize("read_committed", [True, False])
@transactional
async def test_offsets_are_answered_up_to_the_last_stable_one(
    cluster: ReplicaCluster, coordinator: Coordinator, read_committed: bool
) -> None:
    await _begin(cluster)
    leader = cluster[1]
    queries = [OffsetQuery(P0, each) for each in (LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, 0)]
    asked = leader.manager.offsets.list_offsets(queries, read_committed=read_committed)
    results = await leader.process.run(asked)
    assert [each.offset for each in results] == [4 if read_committed else 7, 0, 0]
    assert (await leader.delete(4)).error is ErrorCode.NONE
    asked = leader.manager.offsets.list_offsets([OffsetQuery(P0, 0)], read_committed=read_committed)
    (found,) = await leader.process.run(asked)
    assert (found.error, found.offset) == (ErrorCode.NONE, -1 if read_committed else 4)


@transactional
async def test_an_index_in_cold_storage_is_warmed_first(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    await _begin(cluster)
    leader = cluster[1]
    await leader.stop()
    await leader.start()
    cluster.register(leader)
    await until(lambda: cluster.state().isr == (1, 2, 3))
    cluster.change(leader=1)
    await until(lambda: leader.replica().machine.is_leader)
    index = leader.replica().log.segments.active.txn_index
    assert index.is_present
    fetched = await leader.fetch(0, read_committed=True, max_wait_ms=1000)
    assert [each.producer_id for each in fetched.aborted] == [8]


@transactional
async def test_a_leader_whose_transaction_index_is_damaged_gives_the_replica_up(
    cluster: ReplicaCluster, coordinator: Coordinator
) -> None:
    """Otherwise no transaction could be aborted there any more, and the coordinator would ask for
    ever."""
    leader = cluster[1]
    await _begin(cluster)
    index = leader.replica().log.segments.active.txn_index
    index.unload()
    leader.process.world.disk.replace_file_now(index.path, b"?")
    aborted = marker(producer_id=9, commit=False)
    assert await leader.mark(aborted) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert leader.corrupt == [P0]
    cluster.change(leader=2, isr=(2, 3))
    await until(lambda: cluster[2].replica().machine.is_leader)
    assert await cluster[2].mark(aborted) == [ErrorCode.NONE]
