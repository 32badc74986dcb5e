"""The steps in docs/quorum.md work."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from raft.ready import Role
from tests.support.raft_quorum import DIRECTORY, QuorumCluster, QuorumNode, with_quorum


async def lose_disk(replica: QuorumNode) -> None:
    """The node dies, and comes back later with an empty disk."""
    if replica.up:
        replica.kill()
    process = replica.cluster.simulation.process(replica.machine)

    async def wipe() -> None:
        disk = process.world.disk
        disk.remove_tree(DIRECTORY)
        disk.sync_now("/")

    await process.run(wipe())
    replica.cluster.simulation.kill(process)


def has_everything(replica: QuorumNode, count: int) -> bool:
    return replica.up and replica.witness.state == [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("voters", [3, 5])
@pytest.mark.parametrize("snapshot_after_bytes", [1_000, 10**9])
@with_quorum(observers=1)
async def test_a_lost_majority(
    cluster: QuorumCluster, voters: int, snapshot_after_bytes: int
) -> None:
    for replica in cluster.replicas.values():
        await replica.start(snapshot_after_bytes=snapshot_after_bytes, snapshot_interval_ms=0)
    leader = await cluster.leader()
    for number in range(100):
        await leader.propose(b"%d" % number)
        await asyncio.sleep(0.1)
    await cluster.until_equal()
    lost = [leader, *cluster.others(leader)[: voters // 2]]
    survivors = [each for each in cluster.others(leader) if each not in lost]
    for replica in lost:
        await lose_disk(replica)

    # 1. The survivors alone decide nothing.
    await asyncio.sleep(10.0)
    assert all(each.quorum.role is not Role.LEADER for each in survivors)

    # 2. One emptied controller more is a majority, and only a survivor can be elected.
    await lost[0].start()
    assert await cluster.leader(after_epoch=1) in survivors
    await cluster.until(lambda: has_everything(lost[0], 100))

    # 3. The others follow one by one.
    for replica in lost[1:]:
        await replica.start()
        await cluster.until(partial(has_everything, replica, 100))
    leader = await cluster.leader()
    await leader.propose(b"100")
    await cluster.until(
        lambda: all(has_everything(each, 101) for each in cluster.replicas.values())
    )
    assert not any(each.fatal for each in cluster.replicas.values())


@with_quorum
async def test_one_controller_with_an_empty_disk(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    for number in range(10):
        await leader.propose(b"%d" % number)
    await cluster.until_equal()
    await lose_disk(leader)
    await cluster.leader(after_epoch=1)
    await leader.start()
    await cluster.until(lambda: has_everything(leader, 10))


@with_quorum
async def test_a_restart_one_after_the_other_hands_leadership_over_first(
    cluster: QuorumCluster,
) -> None:
    leader = await cluster.start()
    first = leader
    for replica in [*cluster.others(first), first]:
        if replica is first:
            target = cluster.others(first)[0]
            await first.process.run(first.quorum.transfer_leadership(target.id))
            leader = await cluster.leader(after_epoch=1)
            assert leader is target
        await replica.stop()
        await leader.propose(b"x")
        await replica.start()
        await cluster.until_equal()
    assert leader.quorum.leader.epoch == 2  # one change of leaders for three restarts
