"""What a storm may destroy on nodes that are controller and broker."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from chaos.sim.cluster.cluster import SimCluster
from chaos.sim.cluster.node import SimNode
from chaos.sim.faults.damage import Damage
from stele.ids import TopicPartition
from storage.checkpoints import CORRUPT_FILE, LOG_START_FILE, encode_offsets
from tests.support.sim_cluster import SAFE, TOPIC, a_topic, admin_of, judged, write

APART = {"metadata.log.dir": "/metadata"}


async def a_damage(cluster: SimCluster) -> tuple[Damage, SimNode]:
    """The damage of a cluster with a complete topic, and a voter that does not lead."""
    await a_topic(cluster)
    await write(cluster, 5, "before")
    await cluster.until_isr(TOPIC, 3)
    # The voters' directories must be known: until then a lost disk may vote.
    damage = Damage(cluster, random.Random(1))
    damage.voters_may_be_lost = True
    active = cluster.active_controller
    victim = next(node for node in cluster.controllers.values() if node is not active)
    await cluster.until(lambda: damage.has_voter_to_spare(victim), "its directory is known")
    return damage, victim


async def replace(cluster: SimCluster, node: SimNode) -> None:
    node.start()
    await cluster.until(lambda: node.ready, "it is back")
    await cluster.remove_voter(node.id)
    await cluster.add_voter(node.id)
    await cluster.until_isr(TOPIC, 3)
    await write(cluster, 3, "after")
    await cluster.client.check_promises(TOPIC)


@judged(1, combined=True, settings=APART)
async def test_a_voter_loses_its_metadata_and_keeps_its_replicas(cluster: SimCluster) -> None:
    damage, victim = await a_damage(cluster)
    disk = cluster.simulation.machine(victim.host).disk
    assert damage.lose_voter(victim)
    assert not victim.alive
    assert not disk.names("/metadata")
    assert disk.names(f"/data/{TOPIC}-0")
    assert damage.lost_voters == {victim.id}
    assert not any(damage.may_lose_voter(node) for node in cluster.controllers.values())
    await replace(cluster, victim)


@judged(2, combined=True, settings=APART)
async def test_metadata_on_a_disk_of_its_own_is_damaged_and_replaced(cluster: SimCluster) -> None:
    damage, victim = await a_damage(cluster)
    victim.kill()
    for _ in range(50):
        if damage.lose_file(victim) and damage.metadata:
            break
    assert damage.metadata == damage.lost_voters == {victim.id}
    damage.replace_metadata(victim)
    await replace(cluster, victim)


@judged(3, combined=True)
async def test_a_shared_disk_takes_the_replicas_along(cluster: SimCluster) -> None:
    damage, victim = await a_damage(cluster)
    victim.kill()
    assert damage.wipe(victim)
    assert damage.lost_voters == {victim.id}
    partition = next(iter(damage.hurt))
    assert damage.hurt.get(partition) == victim.id
    await replace(cluster, victim)


@pytest.mark.parametrize("settings", [{}, APART])
@judged(4, combined=True)
async def test_no_voter_is_lost_whose_replicas_are_needed_and_go_with_it(
    cluster: SimCluster, settings: dict[str, str]
) -> None:
    damage, victim = await a_damage(cluster)
    await cluster.client.create_topic("loose", configs={"min.insync.replicas": "1"})
    await cluster.until_isr("loose", 3)
    assert damage.may_lose_voter(victim) == bool(settings)


@judged(7)
async def test_the_starts_of_logs_are_lost_only_where_their_segments_tell_them(
    cluster: SimCluster,
) -> None:
    damage, topic = Damage(cluster, random.Random(1)), "extra-1"
    await cluster.client.create_topic(topic, configs=SAFE)
    await cluster.until_isr(topic, 3)
    for _ in range(5):
        await cluster.client.produce_until_acknowledged(topic, b"x")
    victim = cluster.brokers[1]
    disk = cluster.simulation.machine(victim.host).disk
    async with admin_of(cluster) as admin:
        await admin.delete_records({(topic, 0): 3})
    await asyncio.sleep(6.0)  # by then there are the other checkpoints, too
    victim.kill()

    def lose_all() -> set[str]:
        for _ in range(50):
            damage.lose_checkpoint(victim)
        return {name for name in disk.names("/data") if name.endswith("-offset-checkpoint")}

    assert lose_all() == {LOG_START_FILE}
    file = disk.file(f"/data/{LOG_START_FILE}")
    file.data[:] = file.durable[:] = encode_offsets({TopicPartition(topic, 0): 0})
    assert lose_all() == set()


class LotsBesideLogs(random.Random):
    """Lets ``Damage.lose_file`` lose a file beside a log each time."""

    def __init__(self) -> None:
        super().__init__(1)
        self._lots = itertools.cycle((0.9, 0.1))

    def random(self) -> float:
        return next(self._lots)

    def getrandbits(self, count: int, /) -> int:  # choices go by this, and not by ``random``
        return super().getrandbits(count)


@judged(5)
async def test_a_topic_id_is_lost_only_where_a_checkpoint_knows_the_log(
    cluster: SimCluster,
) -> None:
    damage = Damage(cluster, LotsBesideLogs())
    await a_topic(cluster)
    await write(cluster, 1, "before")
    await cluster.until_isr(TOPIC, 3)
    victim = cluster.brokers[1]
    disk = cluster.simulation.machine(victim.host).disk
    file = f"/data/{TOPIC}-0/partition.metadata"
    victim.kill()
    while damage.lose_file(victim):
        assert damage.hurt == {}
    assert disk.find(file) is not None  # and nothing else that may be lost
    victim.start()
    await cluster.until_isr(TOPIC, 3)
    await asyncio.sleep(6.0)  # now a checkpoint knows
    victim.kill()
    while not damage.hurt:
        assert damage.lose_file(victim)
    assert disk.find(file) is None
    assert damage.counts["topic ids of logs lost"] == 1
    assert list(damage.hurt.values()) == [victim.id]
    victim.start()
    await cluster.until(lambda: disk.find(file) is not None, "the replica is begun anew")
    await cluster.until_isr(TOPIC, 3)
    await cluster.client.check_promises(TOPIC)


@judged(6)
async def test_a_leader_that_was_deposed_knows_nothing_of_the_voters(cluster: SimCluster) -> None:
    damage, _ = await a_damage(cluster)
    zombie = cluster.active_controller
    assert zombie is not None
    zombie.pause()
    await cluster.until(lambda: cluster.active_controller is not zombie, "another one leads")
    following = cluster.active_controller
    assert following is not None
    await cluster.until(lambda: following.ready, "it has taken over")
    third = next(node for node in cluster.controllers.values() if node not in (zombie, following))
    assert damage.has_voter_to_spare(third)
    following.kill()
    assert cluster.active_controller is zombie
    assert cluster.established_controller is None
    assert not damage.has_voter_to_spare(third)


@judged(7)
async def test_no_replica_is_spoiled_while_the_other_one_is_on_a_disk_that_fails_reads(
    cluster: SimCluster,
) -> None:
    await a_topic(cluster)
    await write(cluster, 5, "before")
    await cluster.until_isr(TOPIC, 3)
    damage = Damage(cluster, random.Random(1))
    first, second, third = cluster.brokers.values()
    third.kill()
    await cluster.until_isr(TOPIC, 2)
    assert damage.fail_reads(first)
    partition = next(iter(damage.hurt))
    assert damage.hurt.get(partition) == first.id
    assert not damage.spoil_sector(second)
    assert not damage.fail_reads(second)
    assert not damage.fail_reads(third)
    # A partition that was created on the failing disk later does not count as hurt.
    damage.hurt.clear()
    assert not damage.spoil_sector(second)
    cluster.simulation.machine(first.host).disk.faults.failing_read = False
    assert damage.spoil_sector(second)


@judged(8)
async def test_a_replica_that_its_broker_gave_up_is_not_counted_on(cluster: SimCluster) -> None:
    await a_topic(cluster)
    await write(cluster, 5, "before")
    await cluster.until_isr(TOPIC, 3)
    damage = Damage(cluster, random.Random(1))
    first, second, third = cluster.brokers.values()
    third.kill()
    await cluster.until_isr(TOPIC, 2)
    faults = cluster.simulation.machine(first.host).disk.faults
    broker = first.node.broker if first.node is not None else None
    assert broker is not None
    (replica,) = broker.replicas
    faults.failing_read = True
    # It is given up as for a change that was cut short, and noted as for a bad sector.
    note = f"{replica.log.directory}/{CORRUPT_FILE}"
    assert replica.directory.on_log_failed is not None
    replica.directory.on_log_failed(replica.log, OSError("a test"))
    assert first.process is not None
    first.process.world.disk.replace_file_now(note, b"")
    faults.failing_read = False
    assert not damage.spoil_sector(second)  # at once, before any controller has heard of it
    first.kill()
    assert not damage.spoil_sector(second)


@judged(9)
async def test_a_disk_fails_reads_only_where_nothing_is_hurt_elsewhere(cluster: SimCluster) -> None:
    await a_topic(cluster)
    await write(cluster, 5, "before")
    await cluster.until_isr(TOPIC, 3)
    damage = Damage(cluster, random.Random(1))
    first, second, _ = cluster.brokers.values()
    assert damage.spoil_sector(first)
    assert not damage.fail_reads(second)
    assert damage.fail_reads(first)
    controller = next(iter(cluster.controllers.values()))
    assert damage.fail_reads(controller)  # it has no replicas
