"""Whole clusters on virtual time: three controllers, three brokers, the real code, all kinds of
crashes."""

import asyncio
import subprocess
import sys

import pytest

from chaos.sim.cluster.node import SimNode
from chaos.sim.laws.judged import JudgedCluster
from chaos.sim.world.simulation import SimulationFailedError
from stele.errors import ApiError, ErrorCode
from tests.support.sim_cluster import TOPIC, a_topic, judged, log_bytes, write


async def kill_the_leader(cluster: JudgedCluster) -> None:
    await a_topic(cluster)
    await write(cluster, 20)
    leader = cluster.leader(TOPIC)
    epoch = cluster.partition(TOPIC).leader_epoch
    leader.kill()
    killed_at = cluster.simulation.now
    await write(cluster, 1, "first after the kill")
    assert cluster.simulation.now - killed_at < 2.0
    assert cluster.leader(TOPIC) is not leader
    assert cluster.partition(TOPIC).leader_epoch > epoch
    await write(cluster, 20, "w")
    leader.start()
    await cluster.until_isr(TOPIC, 3)
    records = await cluster.client.check_promises(TOPIC)
    assert len(cluster.client.acknowledged) == 41
    assert len(records) >= 41


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_leader_is_replaced_and_nothing_acknowledged_is_lost(seed: int) -> None:
    JudgedCluster(seed).run(kill_the_leader)


@pytest.mark.parametrize("seed", range(3))
@judged(combined=True)
async def test_combined_nodes_survive_the_loss_of_one_that_is_everything(
    cluster: JudgedCluster, seed: int
) -> None:
    await a_topic(cluster)
    await write(cluster, 10)
    active = cluster.active_controller
    assert active is not None
    active.kill()
    await write(cluster, 10, "w")
    active.start()
    await cluster.until_isr(TOPIC, 3)
    for node in cluster.brokers.values():  # a rolling restart, in good order
        await node.stop()
        node.start()
        await cluster.until_isr(TOPIC, 3)
    await write(cluster, 10, "x")
    await cluster.client.check_promises(TOPIC)


@pytest.mark.parametrize("seed", range(5))
@judged
async def test_a_killed_active_controller_is_replaced(cluster: JudgedCluster, seed: int) -> None:
    await a_topic(cluster)
    active = cluster.active_controller
    assert active is not None
    active.kill()
    killed_at = cluster.simulation.now
    await cluster.client.create_topic("second")
    assert cluster.simulation.now - killed_at < 2.0
    await write(cluster, 5)
    leader = cluster.leader(TOPIC)
    leader.kill()
    await write(cluster, 5, "w")
    active.start()
    leader.start()
    await cluster.until_isr(TOPIC, 3)
    await cluster.client.check_promises(TOPIC)


_TRANSCRIPT = """
import sys
sys.path.insert(0, ".")
from chaos.sim.laws.judged import JudgedCluster
from tests.chaos.sim.cluster.test_cluster import kill_the_leader
cluster = JudgedCluster({seed})
cluster.run(kill_the_leader)
print(cluster.simulation.transcript.digest())
"""


def test_the_same_seed_gives_the_same_transcript_in_any_process() -> None:
    def digest(seed: int, hash_seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", _TRANSCRIPT.replace("{seed}", str(seed))],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()

    cluster = JudgedCluster(7)
    cluster.run(kill_the_leader)
    here = cluster.simulation.transcript.digest()
    assert digest(7, "1") == here
    assert digest(7, "2") == here
    assert digest(8, "1") != here


@pytest.mark.parametrize("seed", range(8))
@judged
async def test_power_loss_of_all_nodes_at_once_loses_nothing_acknowledged(
    cluster: JudgedCluster, seed: int
) -> None:
    await a_topic(cluster)
    writers = [asyncio.create_task(write(cluster, 30, f"writer{n} ")) for n in range(5)]
    for _ in range(2):
        await asyncio.sleep(cluster.simulation.rngs.of("scenario").uniform(0.02, 0.1))
        for node in cluster.nodes.values():
            cluster.simulation.power_off(node.host)
        await asyncio.sleep(1)
        for node in cluster.nodes.values():
            cluster.simulation.power_on(node.host)
            node.start()
    await asyncio.gather(*writers)
    await cluster.until_isr(TOPIC, 3)
    await cluster.client.check_promises(TOPIC)
    assert len(cluster.client.acknowledged) == 150
    logs = {log_bytes(cluster, node) for node in cluster.brokers.values()}
    assert len(logs) == 1, "the replicas differ"


@pytest.mark.parametrize("seed", range(5))
@judged
async def test_a_leader_paused_past_its_session_acknowledges_nothing_afterwards(
    cluster: JudgedCluster, seed: int
) -> None:
    await a_topic(cluster)
    await write(cluster, 10)
    zombie = cluster.leader(TOPIC)
    await cluster.client.connection(zombie.id)
    zombie.pause()
    # These requests wait in the socket of the paused process. It reads them first when it wakes.
    late = [
        asyncio.create_task(
            cluster.client.produce(TOPIC, b"late%d" % n, broker=zombie.id, acks=acks, timeout_s=60)
        )
        for n, acks in enumerate((-1, 1, -1, 1))
    ]
    await cluster.until(lambda: cluster.leader(TOPIC) is not zombie, "another one leads")
    await write(cluster, 10, "w")
    zombie.resume()
    outcomes = await asyncio.gather(*late, return_exceptions=True)
    assert all(isinstance(outcome, ApiError) for outcome in outcomes), outcomes
    assert len(cluster.client.acknowledged) == 20
    await cluster.until_isr(TOPIC, 3)
    records = await cluster.client.check_promises(TOPIC)
    assert not any(value.startswith(b"late") for _, value in records)


@pytest.mark.parametrize("seed", range(5))
@judged
async def test_too_few_replicas_refuse_and_recover(cluster: JudgedCluster, seed: int) -> None:
    await a_topic(cluster)
    await write(cluster, 5)
    leader = cluster.leader(TOPIC)
    followers = [node for node in cluster.brokers.values() if node is not leader]
    for follower in followers:
        follower.kill()
    await cluster.until_isr(TOPIC, 1)

    async def code() -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            await cluster.client.produce(TOPIC, b"refused", broker=leader.id, timeout_s=3)
        return caught.value.code

    for _ in range(100):  # until the leader has heard of it
        if await code() is ErrorCode.NOT_ENOUGH_REPLICAS:
            break
    assert await code() is ErrorCode.NOT_ENOUGH_REPLICAS
    end = len(await cluster.client.fetch_all(TOPIC))
    followers[0].start()
    await cluster.until_isr(TOPIC, 2)
    await write(cluster, 5, "w")
    followers[1].start()
    await cluster.until_isr(TOPIC, 3)
    assert end == 5
    await cluster.client.check_promises(TOPIC)


async def lose_the_last_leader(cluster: JudgedCluster) -> tuple[SimNode, SimNode]:
    """Leave one replica behind, then stop the others. Returns (who lagged, who led last)."""
    first = cluster.leader(TOPIC)
    behind, ahead = (node for node in cluster.brokers.values() if node is not first)
    behind.kill()
    await cluster.until(
        lambda: behind.id not in cluster.partition(TOPIC).isr, "it has left the ISR"
    )
    await write(cluster, 5, "unknown to who was away ")
    ahead.kill()
    await cluster.until_isr(TOPIC, 1)
    first.kill()
    await cluster.until(lambda: cluster.partition(TOPIC).leader == -1, "nobody leads")
    behind.start()
    await cluster.until(lambda: behind.ready, "it is back")
    return behind, first


@pytest.mark.parametrize("seed", range(5))
@judged
async def test_without_unclean_election_the_partition_waits_and_loses_nothing(
    cluster: JudgedCluster, seed: int
) -> None:
    await a_topic(cluster, {"min.insync.replicas": "1"})
    await write(cluster, 5)
    behind, last = await lose_the_last_leader(cluster)
    await asyncio.sleep(30)
    assert cluster.partition(TOPIC).leader == -1
    with pytest.raises(ApiError) as caught:
        await cluster.client.produce(TOPIC, b"refused", broker=behind.id)
    assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    last.start()
    await write(cluster, 1, "served again")
    await cluster.client.check_promises(TOPIC)
    assert cluster.partition(TOPIC).unclean_elections == 0


@pytest.mark.parametrize("seed", range(5))
@judged
async def test_with_unclean_election_the_partition_serves_and_the_loss_is_recorded(
    cluster: JudgedCluster, seed: int
) -> None:
    await a_topic(cluster, {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"})
    await write(cluster, 5)
    behind, _ = await lose_the_last_leader(cluster)
    await cluster.until(lambda: cluster.leader(TOPIC) is behind, "the one behind leads")
    assert cluster.partition(TOPIC).unclean_elections == 1
    await write(cluster, 5, "served by ")
    for node in cluster.brokers.values():
        if not node.alive:
            node.start()
    await cluster.until_isr(TOPIC, 3)
    values = [value for _, value in await cluster.client.read_back(TOPIC)]
    assert len(values) == 10
    assert not any(value.startswith(b"unknown") for value in values)
    logs = {log_bytes(cluster, node) for node in cluster.brokers.values()}
    assert len(logs) == 1, "the replicas differ"


@pytest.mark.parametrize("seed", range(5))
@judged
async def test_a_replica_that_was_away_truncates_its_diverging_tail(
    cluster: JudgedCluster, seed: int
) -> None:
    await a_topic(cluster)
    await write(cluster, 5)
    old = cluster.leader(TOPIC)
    others = [node.host for node in cluster.nodes.values() if node is not old]
    cluster.simulation.fabric.isolate(old.host, others)
    for n in range(5):  # the client still reaches it: these stay on it alone
        await cluster.client.produce(TOPIC, b"only here %d" % n, broker=old.id, acks=1)
    diverged = log_bytes(cluster, old)
    await cluster.until(lambda: cluster.leader(TOPIC) is not old, "another one leads")
    new = cluster.leader(TOPIC)
    for n in range(3):
        await cluster.client.produce(TOPIC, b"w%d" % n, broker=new.id)
    cluster.simulation.fabric.heal()
    await cluster.until_isr(TOPIC, 3)
    records = await cluster.client.check_promises(TOPIC)
    assert not any(value.startswith(b"only here") for _, value in records)
    assert len(records) == 8
    assert b"only here" in diverged
    logs = {log_bytes(cluster, node) for node in cluster.brokers.values()}
    assert len(logs) == 1, "the replicas differ"


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("seed", range(3))
@judged
async def test_a_leader_without_contact_acknowledges_nothing_past_its_session(
    cluster: JudgedCluster, seed: int, paused: bool
) -> None:
    """Clients still reach it, and nobody can tell it that it was replaced. Only its clock can."""

    await a_topic(cluster)
    old = cluster.leader(TOPIC)
    await cluster.client.produce(TOPIC, b"before", broker=old.id, acks=1)
    others = [node.host for node in cluster.nodes.values() if node is not old]
    cluster.simulation.fabric.isolate(old.host, others)
    if paused:
        old.pause()
    await cluster.until(lambda: cluster.leader(TOPIC) is not old, "another one leads")
    late = [
        asyncio.create_task(
            cluster.client.produce(TOPIC, b"late", broker=old.id, acks=acks, timeout_s=20)
        )
        for acks in (1, -1)
    ]
    await asyncio.sleep(0.1)
    old.resume()
    outcomes = await asyncio.gather(*late, return_exceptions=True)
    assert all(isinstance(outcome, ApiError) for outcome in outcomes), outcomes
    cluster.simulation.fabric.heal()
    await cluster.until_isr(TOPIC, 3)
    await cluster.client.check_promises(TOPIC)


@pytest.mark.parametrize("slow_is_leader", [True, False])
@pytest.mark.parametrize("seed", range(4))
@judged
async def test_an_acknowledgement_waits_for_the_disk_of_every_replica_in_sync(
    cluster: JudgedCluster, seed: int, slow_is_leader: bool
) -> None:
    await a_topic(cluster)
    await write(cluster, 3)
    leader = cluster.leader(TOPIC)
    others = [node for node in cluster.brokers.values() if node is not leader]
    slow = leader if slow_is_leader else others[0]
    cluster.simulation.machine(slow.host).disk.faults.sync_s = (1.0, 1.0)
    waiting = asyncio.create_task(
        cluster.client.produce(TOPIC, b"on two disks of three", broker=leader.id)
    )
    await asyncio.sleep(0.9)
    assert not waiting.done()
    for node in cluster.nodes.values():
        cluster.simulation.power_off(node.host)
    cluster.simulation.machine(slow.host).disk.faults.sync_s = (0.001, 0.001)
    for node in (*cluster.controllers.values(), slow):  # it has the best chance to lead
        cluster.simulation.power_on(node.host)
        node.start()
    await cluster.until(lambda: slow.ready, "it is back")
    for node in cluster.brokers.values():
        if node is not slow:
            cluster.simulation.power_on(node.host)
            node.start()
    await cluster.until_isr(TOPIC, 3)
    with pytest.raises((ApiError, OSError)):
        await waiting
    await write(cluster, 3, "w")
    await cluster.client.check_promises(TOPIC)


def test_broken_invariants_are_seen() -> None:
    async def scenario(cluster: JudgedCluster) -> None:
        await a_topic(cluster)
        await write(cluster, 3)
        assert cluster.invariants.looks > 5
        leader = cluster.leader(TOPIC)
        assert leader.node is not None
        assert leader.node.broker is not None
        assert leader.process is not None
        (replica,) = leader.node.broker.replicas

        def move(by: int) -> None:
            replica.machine.high_watermark += by

        leader.process.loop.call_soon(move, 100)
        await asyncio.sleep(0.05)
        leader.process.loop.call_soon(move, -100)
        await asyncio.sleep(0.05)

    cluster = JudgedCluster(1)
    with pytest.raises(SimulationFailedError):
        cluster.run(scenario)
    found = "; ".join(cluster.invariants.violations)
    assert "is in the ISR, has 3 on disk, below the high watermark 103" in found
    assert "went back from 103 to 3" in found
