"""Reassignments in whole clusters, under load and while machines fail.

Every acknowledged record is still there, no broker keeps the log of a partition that it does not
have, and the cluster's laws hold at every moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.moves import Moves
from chaos.sim.faults.storm import Storm
from chaos.sim.laws.committed_records import CommittedRecordsStay
from chaos.sim.laws.judged import JudgedCluster
from stele.aio import Admin
from stele.config import ClientWorld
from stele.errors import ApiError, BulkError, ErrorCode
from stele.ids import TopicPartition
from tests.support.sim_cluster import TOPIC, a_topic, judged, write

SETTINGS = {"replica.lag.time.max.ms": "2000"}


async def load(cluster: JudgedCluster, done: asyncio.Event) -> None:
    """Write with acks=all, one record after the other, until ``done``."""
    number = 0
    while not done.is_set():
        number += 1
        await cluster.client.produce_until_acknowledged(TOPIC, b"load-%d" % number)
        await asyncio.sleep(0.005)


async def a_loaded_topic(cluster: JudgedCluster) -> tuple[asyncio.Event, asyncio.Task[None]]:
    await a_topic(cluster)
    done = asyncio.Event()
    loading = asyncio.create_task(load(cluster, done))
    await until_acknowledged(cluster, 20)
    return done, loading


async def until_acknowledged(cluster: JudgedCluster, more: int) -> None:
    wanted = len(cluster.client.acknowledged) + more
    await cluster.until(
        lambda: len(cluster.client.acknowledged) >= wanted, f"{more} more records are acknowledged"
    )


async def until_moved(cluster: JudgedCluster, target: tuple[int, ...]) -> None:
    def moved() -> bool:
        if cluster.active_controller is None:
            return False  # the others may not know the newest
        state = cluster.partition(TOPIC)
        return state.replicas == target and not state.is_reassigning

    await cluster.until(moved, f"the partition is on {target}")


async def reassign(cluster: JudgedCluster, target: Iterable[int] | None) -> None:
    """Reassign, and repeat it while the outcome is unknown: the same target again changes
    nothing."""
    wanted = None if target is None else tuple(target)
    while True:
        try:
            await cluster.client.reassign(TOPIC, 0, wanted)
        except ApiError as error:
            if error.code is not ErrorCode.REQUEST_TIMED_OUT:
                raise
        else:
            return


async def until_logs(cluster: JudgedCluster, owners: Iterable[int]) -> None:
    """Wait until exactly these brokers have a log of it, and the others have no files of it."""
    wanted = set(owners)

    def settled() -> bool:
        return {node.id for node in cluster.brokers.values() if has_log(cluster, node)} == wanted

    await cluster.until(settled, f"only {sorted(wanted)} have a log")


def has_log(cluster: JudgedCluster, node: SimNode) -> bool:
    disk = node.machine.disk
    return disk.find(f"/data/{TOPIC}-0") is not None


def others(cluster: JudgedCluster) -> tuple[int, ...]:
    """The brokers without a replica, and one with a replica."""
    replicas = cluster.partition(TOPIC).replicas
    return (*(each for each in cluster.brokers if each not in replicas), replicas[-1])


async def finish(
    cluster: JudgedCluster,
    done: asyncio.Event,
    loading: asyncio.Task[None],
    target: tuple[int, ...],
) -> None:
    await until_moved(cluster, target)
    await cluster.until_isr(TOPIC, len(target))
    await until_acknowledged(cluster, 20)
    done.set()
    await loading
    await until_logs(cluster, target)
    await cluster.client.check_promises(TOPIC)
    assert cluster.invariants.law(CommittedRecordsStay).looked > len(cluster.client.acknowledged)


@pytest.mark.parametrize("seed", range(3))
@judged(brokers=5, settings=SETTINGS)
async def test_a_move_under_load(cluster: JudgedCluster, seed: int) -> None:
    done, loading = await a_loaded_topic(cluster)
    leader, epoch = cluster.leader(TOPIC).id, cluster.partition(TOPIC).leader_epoch
    target = others(cluster)
    assert leader not in target
    await reassign(cluster, target)
    await finish(cluster, done, loading, target)
    assert cluster.partition(TOPIC).leader_epoch == epoch + 1, "one election, at the end"


@pytest.mark.parametrize("seed", range(4))
@judged(brokers=5, settings=SETTINGS)
async def test_the_leader_dies_meanwhile(cluster: JudgedCluster, seed: int) -> None:
    done, loading = await a_loaded_topic(cluster)
    target = others(cluster)
    leader = cluster.leader(TOPIC)
    await reassign(cluster, target)
    await asyncio.sleep(cluster.simulation.rngs.of("test").uniform(0, 0.05))
    leader.kill()
    await until_acknowledged(cluster, 20)
    if seed % 2:
        leader.start()
    await until_moved(cluster, target)
    if not seed % 2:
        leader.start()
    await finish(cluster, done, loading, target)


@pytest.mark.parametrize("seed", range(2))
@judged(brokers=5, settings=SETTINGS)
async def test_a_log_that_was_moved_away_while_its_broker_was_down(
    cluster: JudgedCluster, seed: int
) -> None:
    """The log is deleted when the broker comes back."""

    done, loading = await a_loaded_topic(cluster)
    target = others(cluster)
    away = cluster.leader(TOPIC)
    away.kill()
    await reassign(cluster, target)
    await until_moved(cluster, target)
    assert has_log(cluster, away)
    away.start()
    await finish(cluster, done, loading, target)


@pytest.mark.parametrize("seed", range(4))
@judged(brokers=5, settings=SETTINGS)
async def test_a_target_loses_power_meanwhile(cluster: JudgedCluster, seed: int) -> None:
    done, loading = await a_loaded_topic(cluster)
    target = others(cluster)
    victim = cluster.brokers[target[seed % len(target)]]
    await reassign(cluster, target)
    await asyncio.sleep(cluster.simulation.rngs.of("test").uniform(0, 0.05))
    cluster.simulation.power_off(victim.host)
    await until_acknowledged(cluster, 20)
    cluster.simulation.power_on(victim.host)
    victim.start()
    await finish(cluster, done, loading, target)


@pytest.mark.parametrize("seed", range(4))
@judged(brokers=5, settings=SETTINGS)
async def test_it_is_cancelled_half_way(cluster: JudgedCluster, seed: int) -> None:
    """One replica of the target is down, so the move cannot complete. The added replicas are
    removed again."""

    done, loading = await a_loaded_topic(cluster)
    before = cluster.partition(TOPIC).replicas
    target = others(cluster)
    cluster.brokers[target[0]].kill()
    await reassign(cluster, target)
    await cluster.until(
        lambda: target[1] in cluster.partition(TOPIC).isr, "one of the target is in sync"
    )
    if seed % 2:
        cluster.leader(TOPIC).kill()
        await until_acknowledged(cluster, 5)
    await reassign(cluster, None)
    state = cluster.partition(TOPIC)
    assert (state.replicas, state.is_reassigning) == (before, False)
    for node in cluster.brokers.values():
        if not node.alive:
            node.start()
    await finish(cluster, done, loading, before)


@pytest.mark.parametrize("seed", range(2))
@judged(brokers=5, settings=SETTINGS)
async def test_there_and_back_again(cluster: JudgedCluster, seed: int) -> None:
    """Replicas that are removed and added again begin with an empty log."""

    done, loading = await a_loaded_topic(cluster)
    home = cluster.partition(TOPIC).replicas
    for target in (others(cluster), home, others(cluster), (*home, *others(cluster)[:1])):
        await reassign(cluster, target)
        await until_moved(cluster, target)
    await finish(cluster, done, loading, (*home, *others_of(cluster, home)))


def others_of(cluster: JudgedCluster, home: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(each for each in cluster.partition(TOPIC).replicas if each not in home)


@pytest.mark.parametrize("seed", range(2))
@judged(brokers=5, settings=SETTINGS)
async def test_the_active_controller_dies_meanwhile(cluster: JudgedCluster, seed: int) -> None:
    done, loading = await a_loaded_topic(cluster)
    target = others(cluster)
    active = cluster.active_controller
    assert active is not None
    asking = asyncio.create_task(reassign(cluster, target))
    await asyncio.sleep(cluster.simulation.rngs.of("test").uniform(0, 0.02))
    active.kill()
    await asking
    active.start()
    await finish(cluster, done, loading, target)


@judged(0, settings=SETTINGS)
async def test_one_replica_moves_though_two_must_be_in_sync_where_there_are_two(
    cluster: JudgedCluster,
) -> None:
    """During the move the partition needs no more in-sync replicas than before."""

    await cluster.client.create_topic(
        TOPIC, replication_factor=1, configs={"min.insync.replicas": "2"}
    )
    await write(cluster, 10)
    (home,) = cluster.partition(TOPIC).replicas
    target = (1 + home % 3,)
    cluster.brokers[target[0]].kill()
    await reassign(cluster, target)
    await write(cluster, 10, "meanwhile")
    cluster.brokers[target[0]].start()
    await until_moved(cluster, target)
    await write(cluster, 10, "after")
    await until_logs(cluster, target)
    await cluster.client.check_promises(TOPIC)


@judged(0, brokers=5, settings=SETTINGS)
async def test_the_topic_is_deleted_meanwhile(cluster: JudgedCluster) -> None:
    await a_topic(cluster)
    target = others(cluster)
    cluster.brokers[target[0]].kill()
    await reassign(cluster, target)
    await write(cluster, 5)
    await cluster.client.delete_topic(TOPIC)
    with pytest.raises(ApiError) as refused:
        await reassign(cluster, None)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    cluster.brokers[target[0]].start()
    await until_logs(cluster, ())


@pytest.mark.parametrize("seed", range(6))
def test_moves_drawn_by_lot_among_faults(seed: int) -> None:
    async def scenario(cluster: JudgedCluster) -> None:
        done, loading = await a_loaded_topic(cluster)
        moves = Moves(cluster, [(TOPIC, 0)])
        storm = Storm(cluster, pace_s=1.0, kinds=("kill", "cut_power", "isolate", "pause"))
        raging = asyncio.create_task(storm.rage(20))
        while not raging.done():
            await moves.move()
            await asyncio.sleep(0.3)
        await storm.calm()
        await moves.settle()
        await cluster.until_isr(TOPIC, 3)
        done.set()
        await loading
        await until_logs(cluster, cluster.partition(TOPIC).replicas)
        await cluster.client.check_promises(TOPIC)
        assert moves.counts["start"]
        assert sum(storm.counts.values()) > 3

    JudgedCluster(seed, brokers=4 + seed % 2, settings=SETTINGS).run(scenario)


@judged(0, brokers=5, settings=SETTINGS)
async def test_our_own_client_starts_follows_and_cancels(cluster: JudgedCluster) -> None:
    await a_topic(cluster)
    target, before = others(cluster), cluster.partition(TOPIC).replicas
    world = cluster.client_world
    servers = ",".join(f"{node.host}:9092" for node in cluster.brokers.values())
    cluster.brokers[target[0]].kill()
    async with Admin(servers, world=ClientWorld(world.clock, world.network, world.rng)) as admin:
        assert await admin.list_partition_reassignments() == {}
        await admin.alter_partition_reassignments({(TOPIC, 0): target})
        moves = await admin.list_partition_reassignments([(TOPIC, 0)])
        move = moves[TopicPartition(TOPIC, 0)]
        assert move.target_replicas == target
        assert set(move.adding_replicas) == set(target) - set(before)
        assert set(move.removing_replicas) == set(before) - set(target)
        (topic,) = await admin.describe_topics([TOPIC])
        assert topic.partitions[0].adding_replicas == move.adding_replicas
        assert not topic.partitions[0].is_under_replicated
        with pytest.raises(BulkError) as refused:
            await admin.alter_partition_reassignments(
                {(TOPIC, 0): before[:1], (TOPIC, 9): None},
                allow_replication_factor_change=False,
            )
        codes = [error.code for error in refused.value.failed.values()]
        assert codes == [
            ErrorCode.INVALID_REPLICATION_FACTOR,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        await admin.alter_partition_reassignments({(TOPIC, 0): None})
        assert await admin.list_partition_reassignments() == {}
        assert await admin.list_partition_reassignments([]) == {}
        (topic,) = await admin.describe_topics([TOPIC])
        assert topic.partitions[0].replicas == before
