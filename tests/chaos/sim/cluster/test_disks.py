"""Whole clusters with bad disks: broken, full, or silently wrong."""

import asyncio

import pytest

from chaos.sim.cluster.view import online
from chaos.sim.laws.committed_records import CommittedRecordsStay
from chaos.sim.laws.holders import SomeoneHasEverything
from chaos.sim.laws.judged import JudgedCluster
from chaos.sim.world.simulation import SimulationFailedError
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from tests.support.sim_cluster import TOPIC, a_topic, judged, log_bytes, write


@pytest.mark.parametrize("of_leader", [True, False])
@pytest.mark.parametrize("seed", range(3))
@judged
async def test_a_disk_that_fails_its_sync_takes_its_replica_out(
    cluster: JudgedCluster, seed: int, of_leader: bool
) -> None:
    await a_topic(cluster)
    await write(cluster, 5)
    leader = cluster.leader(TOPIC)
    others = [node for node in cluster.brokers.values() if node is not leader]
    broken = leader if of_leader else others[0]
    disk = cluster.simulation.machine(broken.host).disk
    disk.faults.failing_sync = True
    await write(cluster, 10, "w")
    await cluster.until(
        lambda: broken.id not in cluster.partition(TOPIC).isr, "the broken one is out"
    )
    assert cluster.leader(TOPIC) is not broken
    disk.faults.failing_sync = False  # the disk is replaced, the node started anew
    if broken.alive:
        broken.kill()
    broken.start()
    await cluster.until_isr(TOPIC, 3)
    await cluster.client.check_promises(TOPIC)
    assert len({log_bytes(cluster, node) for node in cluster.brokers.values()}) == 1


@pytest.mark.parametrize("seed", range(3))
@judged
async def test_a_full_disk_of_the_leader_is_an_error_and_loses_nothing(
    cluster: JudgedCluster, seed: int
) -> None:
    await a_topic(cluster)
    await write(cluster, 5)
    leader = cluster.leader(TOPIC)
    disk = cluster.simulation.machine(leader.host).disk
    disk.faults.quota_bytes = disk.used_bytes() + 100
    codes = []
    for _ in range(3):
        try:
            await cluster.client.produce(TOPIC, bytes(2000), broker=leader.id, timeout_s=3)
        except ApiError as error:
            codes.append(error.code)
    assert codes, "it found room for everything"
    assert set(codes) <= {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER}
    disk.faults.quota_bytes = None
    if leader.process is not None and not leader.alive:
        leader.start()
    await write(cluster, 5, "w")
    await cluster.until(lambda: len(cluster.partition(TOPIC).isr) >= 2, "at least two are in sync")
    await cluster.client.check_promises(TOPIC)


@pytest.mark.parametrize("seed", range(2))
@judged
async def test_a_follower_with_room_for_some_batches_takes_them_back(
    cluster: JudgedCluster, seed: int
) -> None:
    """It has others' committed batches in its file for a moment, and not in its log."""

    await a_topic(cluster)
    await write(cluster, 5)
    leader = cluster.leader(TOPIC)
    full = next(node for node in cluster.brokers.values() if node is not leader)
    await cluster.until(lambda: log_bytes(cluster, full) == log_bytes(cluster, leader), "even")
    full.pause()
    await write(cluster, 10, "w")
    disk = cluster.simulation.machine(full.host).disk
    behind = len(log_bytes(cluster, leader)) - len(log_bytes(cluster, full))
    disk.faults.quota_bytes = disk.used_bytes() + behind - 10
    taken_back: list[int] = []
    check = disk.on_cut
    assert check is not None

    def cut(path: str, size: int) -> None:
        if path.endswith(".log") and TOPIC in path:
            taken_back.append(len(log_bytes(cluster, full)) - size)
        check(path, size)

    disk.on_cut = cut
    full.resume()
    await cluster.until(lambda: bool(taken_back), "it ran out of room")
    assert taken_back[0] > behind // 2, "not a whole batch"
    disk.faults.quota_bytes = None
    await cluster.until_isr(TOPIC, 3)
    await cluster.client.check_promises(TOPIC)


def test_a_follower_that_cuts_what_is_committed_is_found() -> None:
    async def scenario(cluster: JudgedCluster) -> None:
        await a_topic(cluster)
        await write(cluster, 5)
        await asyncio.sleep(1.0)
        leader = cluster.leader(TOPIC)
        wrong = next(node for node in cluster.brokers.values() if node is not leader)
        replicas = [replica for node, replica in online(cluster) if node is wrong]
        next(replica for replica in replicas if repr(replica) == f"{TOPIC}-0").log.truncate_to(3)
        await asyncio.sleep(1.0)

    with pytest.raises(SimulationFailedError, match="cuts off offset 3, which is committed"):
        JudgedCluster(1).run(scenario)


@pytest.mark.parametrize("of_leader", [True, False])
@pytest.mark.parametrize("seed", range(3))
@judged
async def test_corruption_is_found_at_recovery_and_made_good_from_the_others(
    cluster: JudgedCluster, seed: int, of_leader: bool
) -> None:
    await a_topic(cluster)
    await write(cluster, 20)
    await asyncio.sleep(0.1)
    leader = cluster.leader(TOPIC)
    others = [node for node in cluster.brokers.values() if node is not leader]
    wrong = leader if of_leader else others[0]
    wrong.kill()
    cluster.simulation.machine(wrong.host).disk.flip_bit(
        f"/data/{TOPIC}-0/00000000000000000000.log", 200
    )
    wrong.start()
    await write(cluster, 5, "w")
    await cluster.until(lambda: wrong.ready, "it is back")
    await cluster.until_isr(TOPIC, 3)
    records = await cluster.client.check_promises(TOPIC)
    assert len(records) == 25
    assert len({log_bytes(cluster, node) for node in cluster.brokers.values()}) == 1


@pytest.mark.parametrize("seed", range(2))
@judged
async def test_corruption_of_every_replica_is_never_served_and_never_dropped(
    cluster: JudgedCluster, seed: int
) -> None:
    await a_topic(cluster)
    await write(cluster, 20)
    for node in cluster.brokers.values():
        node.kill()
    cluster.invariants.law(SomeoneHasEverything).damaged.add(f"{TOPIC}-0")
    for node in cluster.brokers.values():
        node.machine.disk.flip_bit(f"/data/{TOPIC}-0/00000000000000000000.log", 200)
        node.start()
    await cluster.until(
        lambda: all(node.ready for node in cluster.brokers.values()), "they are back"
    )
    await asyncio.sleep(30)
    assert cluster.partition(TOPIC).leader == -1
    assert cluster.partition(TOPIC).unclean_elections == 0
    with pytest.raises(ApiError):
        await cluster.client.find_leader(TOPIC)


def last_committed(cluster: JudgedCluster) -> int:
    """The last offset that the law of committed records has seen."""
    cluster.invariants.check_everything()
    topic = cluster.image.topic(TOPIC)
    assert topic is not None
    last = cluster.invariants.law(CommittedRecordsStay).last_batch(PartitionId(topic.topic_id, 0))
    assert last is not None
    return last[1]


@judged(1)
async def test_after_an_unclean_election_only_what_it_cut_is_forgotten(
    cluster: JudgedCluster,
) -> None:
    configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    await a_topic(cluster, configs)
    await write(cluster, 5)
    await asyncio.sleep(1.0)
    assert last_committed(cluster) == 4
    leader = cluster.leader(TOPIC)
    others = [node for node in cluster.brokers.values() if node is not leader]
    for node in others:
        node.kill()
    await cluster.until_isr(TOPIC, 1)
    await write(cluster, 5, "lost")
    await asyncio.sleep(1.0)
    assert last_committed(cluster) == 9
    leader.kill()
    for node in others:
        node.start()
    await cluster.until(lambda: all(node.ready for node in others), "they are back")
    await cluster.until(
        lambda: cluster.partition(TOPIC).leader in {node.id for node in others}, "one leads"
    )
    await asyncio.sleep(1.0)
    assert last_committed(cluster) == 4
    await write(cluster, 3, "w")
    leader.start()
    await cluster.until_isr(TOPIC, 3)
    await asyncio.sleep(1.0)
    assert last_committed(cluster) == 7
    assert cluster.partition(TOPIC).unclean_elections == 1
