"""A replica's disk: faults with which it refuses to start, and what it finds after a restart."""

from __future__ import annotations

import asyncio
import json

import pytest

from raft.ready import HardState
from runtime.quorum import state as quorum_state
from runtime.quorum.log import CorruptMetadataLogError
from runtime.quorum.state import QuorumStateError
from tests.support.raft_quorum import DIRECTORY, QuorumCluster, QuorumNode, with_quorum
from world.disk import Disk

LOG = f"{DIRECTORY}/__cluster_metadata-0"


async def stopped_follower(cluster: QuorumCluster) -> QuorumNode:
    """A voter with some records that was stopped in good order."""
    leader = await cluster.start()
    for number in range(20):
        await leader.propose(b"%d" % number)
    await cluster.until_equal()
    follower = cluster.others(leader)[0]
    await follower.stop()
    return follower


@with_quorum
async def test_a_corrupt_log_is_never_cut(cluster: QuorumCluster) -> None:
    follower = await stopped_follower(cluster)
    disk = cluster.simulation.machines[follower.machine].disk
    path = f"{LOG}/00000000000000000000.log"
    size = len(disk.file(path).data)
    for position in (size // 2, size - 1):  # in the middle, and in the very last batch
        disk.flip_bit(path, position)
        with pytest.raises(CorruptMetadataLogError, match="must not vote"):
            await follower.start()
        assert len(disk.file(path).data) == size
        disk.flip_bit(path, position)
    await follower.start()
    await cluster.until_equal()


@with_quorum(observers=1)
async def test_a_voter_that_forgot_its_votes_does_not_start(cluster: QuorumCluster) -> None:
    follower = await stopped_follower(cluster)
    observer = cluster.replicas[4]
    await observer.stop()
    for replica in (follower, observer):
        process = cluster.simulation.process(replica.machine)
        process.world.disk.remove(f"{LOG}/quorum-state")
        process.kill()
    with pytest.raises(QuorumStateError, match="no longer knows how it voted"):
        await follower.start()
    await observer.start()  # it has never voted


@with_quorum
async def test_a_directory_of_another_cluster_is_refused(cluster: QuorumCluster) -> None:
    follower = await stopped_follower(cluster)
    with pytest.raises(QuorumStateError, match="is of cluster cluster"):
        await follower.start(cluster_id="other")


@with_quorum
async def test_a_restart_needs_to_check_only_what_came_since_the_checkpoint(
    cluster: QuorumCluster,
) -> None:
    follower = await stopped_follower(cluster)
    end_offset = (await cluster.leader()).quorum.log_end_offset
    process = cluster.simulation.process(follower.machine)
    text = process.world.disk.read_file(f"{LOG}/recovery-point-offset-checkpoint").decode()
    assert text.split() == ["0", "1", "__cluster_metadata", "0", str(end_offset)]
    epochs = process.world.disk.read_file(f"{LOG}/leader-epoch-checkpoint").decode()
    assert epochs.split() == ["0", "1", "1", "0"]
    process.kill()


@pytest.mark.parametrize(
    "state",
    [HardState(), HardState(3, 1), HardState(7, None, 2, b"x" * 16), HardState(7, 2, 2, bytes(16))],
)
@with_quorum
async def test_quorum_state_round_trip(cluster: QuorumCluster, state: HardState) -> None:
    async def inside(disk: Disk) -> None:
        assert quorum_state.read(disk, "/quorum-state", "cluster") is None
        await disk.replace_file("/quorum-state", quorum_state.encode(state, "cluster"))
        assert quorum_state.read(disk, "/quorum-state", "cluster") == state

    process = cluster.simulation.process("node1")
    await process.run(inside(process.world.disk))


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", json.dumps({"data_version": 2}), '{"leaderEpoch": "x"}'],
)
@with_quorum
async def test_a_malformed_quorum_state_is_refused(cluster: QuorumCluster, text: str) -> None:
    disk = cluster.simulation.process("node1").world.disk
    disk.replace_file_now("/quorum-state", text.encode())
    with pytest.raises(QuorumStateError, match="malformed"):
        quorum_state.read(disk, "/quorum-state", "cluster")


def test_quorum_state_has_kafkas_fields() -> None:
    fields = json.loads(quorum_state.encode(HardState(4, None, 2, bytes(16)), "cluster"))
    assert fields == {
        "clusterId": "cluster",
        "leaderId": -1,
        "leaderEpoch": 4,
        "votedId": 2,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA",
        "data_version": 1,
    }


@with_quorum
async def test_a_vote_waits_for_room_on_the_disk(cluster: QuorumCluster) -> None:
    leader = await cluster.start()
    await leader.propose(b"x")
    await cluster.until_equal()
    full, other = cluster.others(leader)
    disk = cluster.simulation.machines[full.machine].disk
    disk.faults.quota_bytes = disk.used_bytes()
    epoch = leader.quorum.leader.epoch
    leader.process.kill()
    await asyncio.sleep(20)
    for replica in (full, other):
        known = replica.quorum.leader
        assert known.epoch == epoch or known.leader_id is None, "its vote is not on disk"
    disk.faults.quota_bytes = None
    assert await cluster.leader(after_epoch=epoch) in (full, other)
    assert not full.fatal
