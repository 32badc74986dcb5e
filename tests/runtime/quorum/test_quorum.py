"""The driver of the metadata quorum in the simulated world: elections, commits, deaths."""

from __future__ import annotations

import asyncio
import random

import pytest

from raft.api import LeaderAndEpoch, NotLeaderError
from raft.ready import Role
from runtime.metrics.quorum import declare_quorum_metrics
from runtime.metrics.registry import MetricsRegistry
from runtime.quorum.log import BATCH_BYTES_MAX
from stele.errors import ApiError, ErrorCode
from tests.support.raft_quorum import QuorumCluster, QuorumNode, with_quorum


@with_quorum(observers=1)
async def test_everybody_is_delivered_what_the_leader_proposes(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    begin = leader.quorum.log_end_offset  # behind control batches: who leads, who votes
    assert await leader.propose(b"a", b"b") == begin > 0
    assert await leader.propose(b"c") == begin + 2
    assert leader.quorum.log_end_offset == begin + 3
    await cluster.until_equal()
    for replica in cluster.replicas.values():
        assert [batch.records for batch in replica.witness.batches] == [(b"a", b"b"), (b"c",)]
        offsets = [batch.base_offset for batch in replica.witness.batches]
        assert offsets == [begin, begin + 2]
        assert replica.quorum.high_watermark == begin + 3
        assert replica.quorum.leader == LeaderAndEpoch(leader.id, 1)


@with_quorum
async def test_a_first_election_takes_a_fraction_of_a_second(cluster: QuorumCluster) -> None:
    await cluster.start()
    assert cluster.now < 0.5


@with_quorum(voters=1)
async def test_a_lone_voter(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    await leader.propose(b"a")
    await cluster.until(lambda: leader.witness.records == [b"a"])
    await leader.stop()
    await leader.start()
    await cluster.until(lambda: leader.witness.records == [b"a"])
    assert (await cluster.leader()).quorum.leader.epoch == 2


@with_quorum(observers=1)
async def test_the_leader_is_killed(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    for number in range(50):
        await leader.propose(b"%d" % number)
    await cluster.until_equal()
    killed_at, epoch = cluster.now, leader.quorum.leader.epoch
    leader.kill()
    successor = await cluster.leader(after_epoch=epoch)
    assert cluster.now - killed_at < 0.5
    await successor.propose(b"after")
    await cluster.until_equal()
    await leader.start()
    await cluster.until_equal()
    expected = [b"%d" % number for number in range(50)] + [b"after"]
    for replica in cluster.replicas.values():
        assert replica.witness.records == expected


@with_quorum
async def test_claimed_means_that_all_before_was_delivered(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    for _ in range(3):
        await leader.propose(b"x")
        await cluster.until_equal()
        epoch = leader.quorum.leader.epoch
        leader.kill()
        killed, leader = leader, await cluster.leader(after_epoch=epoch)
        await killed.start()
    assert leader.witness.records_when_claimed == [3]


@with_quorum
async def test_stop_hands_over_at_once(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    await leader.propose(b"a")
    await cluster.until_equal()
    epoch, stopped_at = leader.quorum.leader.epoch, cluster.now
    await leader.process.run(leader.quorum.stop())
    assert ("resigned", epoch) in leader.witness.events
    assert leader.quorum.leader == LeaderAndEpoch(None, epoch)
    with pytest.raises(NotLeaderError):
        await leader.propose(b"b")
    await cluster.leader(after_epoch=epoch)
    assert cluster.now - stopped_at < 0.3
    await leader.process.run(leader.quorum.stop())  # twice does no harm


@with_quorum
async def test_a_leader_without_a_majority_resigns(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    await leader.propose(b"kept")
    await cluster.until_equal()
    epoch = leader.quorum.leader.epoch
    cluster.isolate(leader)
    await leader.propose(b"lost")
    await cluster.until(lambda: leader.quorum.role is not Role.LEADER, timeout_s=2.5)
    successor = await cluster.leader(after_epoch=epoch)
    await successor.propose(b"new")
    with pytest.raises(NotLeaderError) as refusal:
        await leader.propose(b"refused")
    assert refusal.value.code is ErrorCode.NOT_CONTROLLER
    cluster.simulation.fabric.heal()
    await cluster.until_equal(timeout_s=20)
    for replica in cluster.replicas.values():
        assert replica.witness.records == [b"kept", b"new"]
    assert ("resigned", epoch) in leader.witness.events


@with_quorum(seed=3)
async def test_power_loss_everywhere_loses_nothing_committed(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    for number in range(200):
        await leader.propose(b"%d" % number)
        if number % 40 == 0:
            await asyncio.sleep(0.01)
    committed = list(leader.witness.records)
    assert committed
    for replica in cluster.replicas.values():
        cluster.simulation.power_off(replica.machine)
    await asyncio.sleep(1)
    for replica in cluster.replicas.values():
        cluster.simulation.power_on(replica.machine)
        await replica.start()
    leader = await cluster.leader()
    await cluster.until_equal()
    assert leader.witness.records[: len(committed)] == committed


@with_quorum
async def test_only_the_leader_of_the_epoch_proposes(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    epoch = leader.quorum.leader.epoch
    follower = cluster.others(leader)[0]
    end_offset = leader.quorum.log_end_offset
    await cluster.until(lambda: follower.quorum.leader.leader_id == leader.id)
    with pytest.raises(NotLeaderError) as refusal:
        follower.quorum.propose([b"x"], epoch=epoch)
    assert refusal.value.leader == LeaderAndEpoch(leader.id, epoch)
    with pytest.raises(NotLeaderError):
        leader.quorum.propose([b"x"], epoch=epoch - 1)
    assert leader.quorum.log_end_offset == end_offset


@with_quorum
async def test_a_listener_may_propose(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    quorum, epoch = leader.quorum, leader.quorum.leader.epoch

    def answer(batches: object) -> None:
        if len(leader.witness.batches) < 5:
            quorum.propose([b"answer"], epoch=epoch)

    leader.witness.on_batches = answer
    await leader.propose(b"question")
    await cluster.until(lambda: len(leader.witness.batches) == 5)
    assert leader.witness.records == [b"question"] + [b"answer"] * 4


@with_quorum
async def test_a_listener_that_fails_stops_the_replica(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    epoch = leader.quorum.leader.epoch

    def fail(batches: object) -> None:
        raise KeyError("a bug")

    leader.witness.on_batches = fail
    await leader.propose(b"x")
    await cluster.until(lambda: bool(leader.fatal))
    assert isinstance(leader.fatal[0], KeyError)
    await cluster.leader(after_epoch=epoch)
    await leader.process.run(leader.quorum.stop())


@with_quorum
async def test_a_failed_sync_is_the_end_of_the_replica(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    epoch = leader.quorum.leader.epoch
    leader.process.machine.disk.faults.failing_sync = True
    await leader.propose(b"x")
    await cluster.until(lambda: bool(leader.fatal))
    assert isinstance(leader.fatal[0], OSError)
    assert len(leader.fatal) == 1
    await cluster.until(lambda: ("resigned", epoch) in leader.witness.events)
    with pytest.raises(NotLeaderError):
        await leader.propose(b"y")
    successor = await cluster.leader(after_epoch=epoch)
    assert successor is not leader
    await leader.process.run(leader.quorum.stop())


@with_quorum
async def test_a_failed_write_is_the_end_of_the_replica(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    leader.process.machine.disk.faults.failing_write = True
    with pytest.raises(ApiError) as refusal:
        await leader.propose(b"x")
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(leader.fatal) == 1
    with pytest.raises(NotLeaderError):  # the controller has not heard of it yet
        leader.quorum.next_offset(epoch=leader.quorum.leader.epoch)
    await cluster.leader(after_epoch=leader.quorum.leader.epoch)
    await leader.process.run(leader.quorum.stop())


@with_quorum
async def test_a_leader_that_cannot_read_its_log_for_others_is_no_leader_any_more(
    cluster: QuorumCluster,
) -> None:
    leader = await cluster.start()
    epoch = leader.quorum.leader.epoch
    faults = leader.process.machine.disk.faults
    faults.cold_read, faults.failing_read = 1.0, True
    await leader.propose(b"x")
    assert await cluster.leader(after_epoch=epoch) is not leader
    assert len(leader.fatal) == 1
    await leader.process.run(leader.quorum.stop())


@with_quorum
async def test_a_batch_that_no_replica_could_fetch_is_refused_and_the_largest_is_replicated(
    cluster: QuorumCluster,
) -> None:
    half = b"x" * (BATCH_BYTES_MAX // 2)

    leader = await cluster.start()
    before = leader.quorum.log_end_offset
    with pytest.raises(ApiError) as refusal:
        await leader.propose(half, half, b"y")
    assert refusal.value.code is ErrorCode.RECORD_LIST_TOO_LARGE
    assert leader.quorum.log_end_offset == before, "nothing was appended"
    await leader.propose(half, half)
    await cluster.until_equal()
    assert leader.witness.records == [half, half]
    assert not leader.fatal


@with_quorum
async def test_a_full_disk_refuses_and_does_not_kill(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    follower = cluster.others(leader)[0]
    for replica in (leader, follower):
        replica.process.machine.disk.faults.quota_bytes = 1 << 20
    with pytest.raises(ApiError) as refusal:
        await leader.propose(b"x" * 1000)
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    leader.process.machine.disk.faults.quota_bytes = None
    await leader.propose(b"y")
    await cluster.until(lambda: leader.witness.records == [b"y"])
    await asyncio.sleep(5)
    assert follower.witness.records == []
    follower.process.machine.disk.faults.quota_bytes = None
    await cluster.until_equal()
    assert not leader.fatal + follower.fatal


@with_quorum(observers=1)
async def test_a_long_catch_up_comes_in_bounded_pieces_and_from_a_cold_disk(
    cluster: QuorumCluster,
) -> None:
    late = cluster.replicas[4]
    for replica in list(cluster.replicas.values())[:3]:
        await replica.start()
    leader = await cluster.leader()
    for number in range(64):
        await leader.propose(b"%d" % number + b"x" * 100_000)
    await cluster.until_equal(*list(cluster.replicas.values())[:3])
    leader.process.machine.disk.faults.cold_read = 0.5
    await late.start(fetch_max_bytes=500_000)
    late.process.machine.disk.faults.cold_read = 0.5
    await cluster.until_equal()
    assert late.witness.batches == leader.witness.batches
    commits = [event for event in late.witness.events if event[0] == "commit"]
    assert len(commits) > 10


@pytest.mark.parametrize("seed", range(6))
@with_quorum(observers=1)
async def test_among_kills_power_losses_and_partitions(cluster: QuorumCluster, seed: int) -> None:
    rng = random.Random(seed)

    await cluster.start()
    committed: list[bytes] = []
    epochs: set[int] = set()
    for round_number in range(12):
        leader = await cluster.leader(timeout_s=20)
        epochs.add(leader.quorum.leader.epoch)
        committed = await _propose_some(cluster, leader, round_number, committed)
        await _trouble(cluster, rng, rng.choice([leader] * 4 + [*cluster.replicas.values()]))
    cluster.simulation.fabric.heal()
    for replica in cluster.replicas.values():
        if not replica.up:
            await replica.start()
    leader = await cluster.leader(timeout_s=20)
    await leader.propose(b"last")
    await cluster.until_equal(timeout_s=20)
    assert leader.witness.records[: len(committed)] == committed
    assert len(committed) >= 12
    assert len(epochs) >= 2
    assert not any(replica.fatal for replica in cluster.replicas.values())


async def _propose_some(
    cluster: QuorumCluster, leader: QuorumNode, round_number: int, committed: list[bytes]
) -> list[bytes]:
    """Propose, wait until some of it is committed, and check what was committed before."""
    seen = len(leader.witness.records)
    for number in range(5):
        try:
            await leader.propose(b"%d-%d" % (round_number, number))
        except NotLeaderError:
            break
    await cluster.until(
        lambda: len(leader.witness.records) > seen or leader.quorum.role is not Role.LEADER
    )
    now = list(leader.witness.records)
    shared = min(len(now), len(committed))
    assert now[:shared] == committed[:shared]
    return max(now, committed, key=len)


async def _trouble(cluster: QuorumCluster, rng: random.Random, victim: QuorumNode) -> None:
    kind = rng.choice(["kill", "power", "isolate", "stop"])
    if kind == "isolate":
        cluster.isolate(victim)
        await asyncio.sleep(rng.uniform(0.1, 4.0))
        cluster.simulation.fabric.heal()
        return
    if kind == "kill":
        victim.kill()
    elif kind == "stop":
        await victim.stop()
    else:
        cluster.simulation.power_off(victim.machine)
    await asyncio.sleep(rng.uniform(0.0, 2.0))
    if kind == "power":
        cluster.simulation.power_on(victim.machine)
    await victim.start()


def test_same_seed_same_events() -> None:
    def events(seed: int) -> list[object]:
        cluster = QuorumCluster(seed=seed, observers=1)

        async def main() -> None:
            leader = await cluster.start()
            await leader.propose(b"x")
            await cluster.until_equal()
            leader.kill()
            await cluster.leader(after_epoch=1)

        cluster.simulation.run(main())
        return [cluster.now, [replica.witness.events for replica in cluster.replicas.values()]]

    assert events(5) == events(5)
    assert events(5) != events(6)


@with_quorum
async def test_leadership_is_handed_over(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    await leader.propose(b"a")
    target = cluster.others(leader)[1]
    began_at = cluster.now
    await leader.process.run(leader.quorum.transfer_leadership(target.id))
    assert leader.quorum.leader.leader_id == target.id
    assert cluster.now - began_at < 0.3
    assert await cluster.leader(after_epoch=1) is target
    await target.process.run(target.quorum.transfer_leadership(target.id))  # it leads already
    assert target.quorum.leader.epoch == leader.quorum.leader.epoch
    await target.propose(b"b")
    await cluster.until_equal()
    assert target.witness.records == [b"a", b"b"]


@with_quorum
async def test_a_refused_transfer_changes_nothing(cluster: QuorumCluster) -> None:
    async def refused(replica: QuorumNode, to: int) -> ErrorCode:
        with pytest.raises(ApiError) as refusal:
            await replica.process.run(replica.quorum.transfer_leadership(to))
        return refusal.value.code

    leader = await cluster.start()
    other, silent = cluster.others(leader)
    assert await refused(leader, 9) is ErrorCode.VOTER_NOT_FOUND
    assert await refused(other, leader.id) is ErrorCode.NOT_CONTROLLER
    silent.kill()
    await leader.propose(b"what the silent one lacks")
    assert await refused(leader, silent.id) is ErrorCode.REQUEST_TIMED_OUT
    await asyncio.sleep(2.0)
    assert await refused(leader, silent.id) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    assert leader.quorum.leader == LeaderAndEpoch(leader.id, 1)
    await leader.propose(b"goes on")
    await cluster.until(lambda: leader.witness.records[1:] == [b"goes on"])


@with_quorum
async def test_nothing_is_proposed_while_leadership_is_on_its_way(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    silent = cluster.others(leader)[0]
    silent.kill()
    await leader.propose(b"before")
    transfer = asyncio.create_task(leader.process.run(leader.quorum.transfer_leadership(silent.id)))
    await asyncio.sleep(0.01)
    with pytest.raises(NotLeaderError):
        await leader.propose(b"meanwhile")
    with pytest.raises(ApiError):
        await transfer
    await leader.propose(b"after")
    await cluster.until(lambda: leader.witness.records == [b"before", b"after"])


@with_quorum
async def test_elections_and_the_time_of_commits_are_reported(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    registry = MetricsRegistry()
    declare_quorum_metrics(registry, leader.quorum)
    for payload in (b"a", b"b"):
        await leader.propose(payload)
    await cluster.until_equal()
    values = registry.values()
    labels = 'log="__cluster_metadata"'
    assert values[f"stele_quorum_commit_seconds_count{{{labels}}}"] == 2
    assert 0 < values[f"stele_quorum_commit_seconds_sum{{{labels}}}"] < 1
    assert values['stele_quorum_state{state="leader"}'] == 1
    assert values['stele_quorum_state{state="follower"}'] == 0
    assert values["stele_quorum_leader"] == leader.id
    assert values["stele_quorum_epoch"] == 1
    assert values["stele_quorum_voters"] == 3
    assert values["stele_quorum_elections_total"] == 1
    assert values["stele_metadata_applied_offset"] == values["stele_quorum_high_watermark"]
    assert values["stele_quorum_log_end_offset"] == leader.quorum.log_end_offset
