"""Whole clusters with some full disks: brokers with room go on."""

from __future__ import annotations

import asyncio
import random

import pytest

from broker.membership.room import Room, Rooms
from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.judged import JudgedCluster
from chaos.sim.world.simulation import SimulationFailedError
from tests.support.sim_cluster import TOPIC, a_topic, judged, write

WITHIN_S = 5.0  # less than the time of any follower's lag: nobody waits for a full follower


def fill(cluster: SimCluster, node: SimNode) -> None:
    disk = node.machine.disk
    disk.faults.quota_bytes = disk.used_bytes() + 100


def empty(cluster: SimCluster, node: SimNode) -> None:
    node.machine.disk.faults.quota_bytes = None


def complaints(node: SimNode) -> list[str]:
    """The reasons why a node is not ready."""
    assert node.node is not None
    return [check.reason for check in node.node.readiness() if not check.ok]


async def write_large(cluster: SimCluster, count: int, within_s: float = WITHIN_S) -> None:
    for _ in range(count):
        number = b"%d" % cluster.client.sent  # no two are the same
        await cluster.client.produce_until_acknowledged(
            TOPIC, number + b"." * 2000, give_up_s=within_s
        )


@pytest.mark.parametrize("seed", range(3))
@judged
async def test_a_leader_without_room_leaves_its_partitions_to_others(
    cluster: SimCluster, seed: int
) -> None:
    await a_topic(cluster)
    await write(cluster, 5)
    full = cluster.leader(TOPIC)
    fill(cluster, full)
    await write_large(cluster, 5)
    assert cluster.leader(TOPIC) is not full
    assert complaints(full) == ["full: /data"]
    await cluster.until(lambda: full.id not in cluster.partition(TOPIC).isr, "it is out")
    empty(cluster, full)
    await cluster.until_isr(TOPIC, 3)
    assert complaints(full) == []
    await write_large(cluster, 5)
    await cluster.client.check_promises(TOPIC)


@pytest.mark.parametrize("seed", range(4))
@judged(combined=True)
async def test_an_active_controller_without_room_leaves_that_to_others(
    cluster: SimCluster, seed: int
) -> None:
    """On a combined node. The partitions that it leads can move only when the decision can be
    written."""

    await a_topic(cluster)
    await write(cluster, 5)
    full = cluster.active_controller
    assert full is not None
    fill(cluster, full)
    # Its session ends first, because it cannot write that another controller leads.
    await write_large(cluster, 5, 30.0)
    assert cluster.active_controller is not full
    assert cluster.leader(TOPIC) is not full
    empty(cluster, full)
    await cluster.until_isr(TOPIC, 3)
    await cluster.client.check_promises(TOPIC)


@pytest.mark.parametrize("seed", range(3))
@judged(combined=True)
async def test_when_all_nodes_are_full_the_quorum_keeps_its_leader(
    cluster: SimCluster, seed: int
) -> None:
    await a_topic(cluster)
    await write(cluster, 5)
    active = cluster.active_controller
    for node in cluster.nodes.values():
        fill(cluster, node)
    with pytest.raises(AssertionError):
        await write_large(cluster, 1, 20.0)
    assert cluster.active_controller is active
    leader = cluster.leader(TOPIC)
    assert len(await cluster.client.fetch_all(TOPIC, broker=leader.id)) == 5
    for node in cluster.nodes.values():
        empty(cluster, node)
    await write_large(cluster, 5, 30.0)
    await cluster.until_isr(TOPIC, 3)
    await cluster.client.check_promises(TOPIC)


@pytest.mark.parametrize("seed", range(3))
@judged
async def test_a_follower_without_room_is_not_waited_for(cluster: SimCluster, seed: int) -> None:
    await a_topic(cluster)
    await write(cluster, 5)
    leader = cluster.leader(TOPIC)
    full = next(node for node in cluster.brokers.values() if node is not leader)
    fill(cluster, full)
    await write_large(cluster, 5)
    assert cluster.leader(TOPIC) is leader
    assert full.id not in cluster.partition(TOPIC).isr
    empty(cluster, full)
    await cluster.until_isr(TOPIC, 3)
    await cluster.client.check_promises(TOPIC)


@pytest.mark.parametrize("seed", range(3))
@judged
async def test_when_all_are_full_nothing_goes_back_and_forth(
    cluster: SimCluster, seed: int
) -> None:
    await a_topic(cluster)
    await write(cluster, 5)
    for node in cluster.brokers.values():
        fill(cluster, node)
    for _ in range(3):
        with pytest.raises(AssertionError):
            await write_large(cluster, 1, 1.0)
    before = cluster.partition(TOPIC)
    for _ in range(5):
        with pytest.raises(AssertionError):
            await write_large(cluster, 1, 5.0)
    assert cluster.partition(TOPIC).leader_epoch == before.leader_epoch
    leader = cluster.leader(TOPIC)
    assert len(await cluster.client.fetch_all(TOPIC, broker=leader.id)) == 5
    # Two with room are enough for min.insync.replicas, whoever leads.
    for node in [each for each in cluster.brokers.values() if each is not leader]:
        empty(cluster, node)
    await write_large(cluster, 5, 15.0)
    assert cluster.leader(TOPIC) is not leader
    empty(cluster, leader)
    await cluster.until_isr(TOPIC, 3)
    await cluster.client.check_promises(TOPIC)


@pytest.mark.parametrize("seed", range(6))
@judged
async def test_whoever_is_full_writes_go_on_while_enough_have_room(
    cluster: SimCluster, seed: int
) -> None:
    """Disks of brokers fill up and are emptied in any order, one replica's of three at a time."""
    rng = random.Random(seed)

    await a_topic(cluster)
    for _ in range(6):
        full = rng.choice(list(cluster.brokers.values()))
        fill(cluster, full)
        await write_large(cluster, rng.randint(1, 4))
        await asyncio.sleep(rng.uniform(0.0, 8.0))
        await write_large(cluster, rng.randint(1, 4))
        empty(cluster, full)
        # It has what the others wrote before the next one is full: two of three have room.
        await cluster.until_isr(TOPIC, 3)
    await cluster.client.check_promises(TOPIC)


def test_a_leader_that_keeps_its_lack_of_room_to_itself_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Rooms, "room", Room.ENOUGH)  # that is what heartbeats tell

    judged = JudgedCluster(1)

    async def scenario(cluster: SimCluster) -> None:
        await a_topic(cluster)
        full = cluster.leader(TOPIC)
        fill(cluster, full)
        for _ in range(6):  # an idle cluster is looked at less often than the law waits for
            await asyncio.sleep(5.0)
            judged.invariants.check_everything()

    with pytest.raises(SimulationFailedError, match="by a broker without room"):
        judged.run(scenario)
