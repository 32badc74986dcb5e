"""Snapshots of the metadata log: written, fetched, checked, the start of the log, and a start from
them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.sim.world.disk import VirtualDisk
from raft.messages import SnapshotId
from raft.ready import Role
from runtime.quorum.log import CorruptMetadataLogError
from runtime.quorum.messages import FETCH_SNAPSHOT
from runtime.quorum.snapshots import SnapshotError, encode, file_name, parse_name, read
from stele.errors import ErrorCode
from stele.wire.v1 import raft_pb2 as pb
from tests.support.raft_quorum import DIRECTORY, QuorumCluster, QuorumNode, with_quorum
from world.network import Peer

LOG = f"{DIRECTORY}/__cluster_metadata-0"
SNAPSHOT = SnapshotId(1234, 7)


async def start(cluster: QuorumCluster, *replicas: QuorumNode, **config: Any) -> QuorumNode:
    """Start with snapshots after very few bytes."""
    settings: dict[str, Any] = {"snapshot_after_bytes": 2_000, "snapshot_interval_ms": 0}
    for replica in replicas or cluster.replicas.values():
        await replica.start(**{**settings, **config})
    return await cluster.leader()


async def write(cluster: QuorumCluster, leader: QuorumNode, count: int, size: int = 100) -> None:
    """Write so many batches, over a time in which snapshots are written."""
    for number in range(count):
        await leader.propose(b"%06d" % number + b"." * size)
        await asyncio.sleep(0.1)
    await asyncio.sleep(4.0)


def snapshots(replica: QuorumNode) -> list[SnapshotId]:
    return [found for name in files(replica) if (found := parse_name(name)) is not None]


def files(replica: QuorumNode) -> list[str]:
    return sorted(disk_of(replica).directory(LOG).entries)


def disk_of(replica: QuorumNode) -> VirtualDisk:
    return replica.cluster.simulation.machines[replica.machine].disk


def states_are_equal(cluster: QuorumCluster) -> bool:
    up = [replica for replica in cluster.replicas.values() if replica.up]
    return all(each.witness.state == up[0].witness.state for each in up)


# ----------------------------------------------------------------------------------- content


@settings(max_examples=50)
@given(
    values=st.lists(st.binary(max_size=40), max_size=2500),
    time_ms=st.integers(0, 2**40),
)
def test_what_is_encoded_is_read(values: list[bytes], time_ms: int) -> None:
    data = b"".join(encode(SNAPSHOT, "cluster", time_ms, values))
    found = read(data, SNAPSHOT, "cluster")
    assert (found.timestamp_ms, list(found.records)) == (time_ms, values)
    assert b"".join(encode(SNAPSHOT, "cluster", time_ms, values)) == data


def test_a_cluster_id_of_any_length() -> None:
    for length in (0, 1, 127, 128, 300):
        data = b"".join(encode(SNAPSHOT, "c" * length, 1, [b"x"]))
        assert read(data, SNAPSHOT, "c" * length).records == (b"x",)
        with pytest.raises(SnapshotError):
            read(data, SNAPSHOT, "c" * (length + 1))


def test_names_are_kafkas() -> None:
    name = "00000000000000001234-0000000007.checkpoint"
    assert file_name(SNAPSHOT) == name
    assert parse_name(name) == SNAPSHOT
    for other in ("00000000000000001234.snapshot", name + ".part", "x" + name):
        assert parse_name(other) is None


def damaged() -> Iterator[bytes]:
    whole = list(encode(SNAPSHOT, "cluster", 1, [b"%d" % number for number in range(2000)]))
    data = b"".join(whole)
    yield b""
    yield data[:-1]
    yield b"".join(whole[:-1])  # without its end
    yield b"".join(whole[1:])
    yield b"".join([*whole[:-1], whole[-1], whole[-1]])
    yield b"".join([whole[0], whole[2], whole[3]])  # a batch is missing
    yield data[:200] + bytes([data[200] ^ 1]) + data[201:]
    yield b"".join(encode(SnapshotId(1234, 8), "cluster", 1, [b"x"]))  # of another epoch
    yield whole[0]
    yield b"".join(encode(SNAPSHOT, "foreign", 1, [b"x"]))


@pytest.mark.parametrize("data", list(damaged()))
def test_damaged_snapshots_are_refused(data: bytes) -> None:
    with pytest.raises(SnapshotError):
        read(data, SNAPSHOT, "cluster")


# ---------------------------------------------------------------------------------- writing


@with_quorum(observers=1)
async def test_snapshots_by_bytes_and_the_log_is_cut_behind_them(cluster: QuorumCluster) -> None:
    leader = await start(cluster)
    await write(cluster, leader, 120)
    for replica in cluster.replicas.values():
        kept = snapshots(replica)
        assert len(kept) == 2
        assert replica.quorum.log_start_offset == kept[0].end_offset > 20
        assert replica.witness.records[0].startswith(b"000000")  # nobody was reset
    await cluster.until_equal()


@with_quorum(voters=1)
async def test_the_cut_frees_the_disk(cluster: QuorumCluster) -> None:
    leader = await start(cluster, snapshot_after_bytes=1_000_000)
    leader.quorum.take_snapshots_of(list)
    for number in range(80):
        await leader.propose(b"%d" % number + b"." * 100_000)
        await asyncio.sleep(0.3)
    logs = [name for name in files(leader) if name.endswith(".log")]
    assert int(logs[0].removesuffix(".log")) > 0
    sizes = [len(disk_of(leader).file(f"{LOG}/{name}").data) for name in logs]
    assert sum(sizes) < 6_000_000


@with_quorum(voters=1)
async def test_snapshots_by_time_only_of_what_is_new(cluster: QuorumCluster) -> None:
    leader = await start(cluster, snapshot_after_bytes=10**9, snapshot_interval_ms=10_000)
    end_offset = await leader.propose(b"a") + 1
    await asyncio.sleep(8.0)
    assert snapshots(leader) == []
    await asyncio.sleep(5.0)
    assert snapshots(leader) == [SnapshotId(end_offset, 1)]
    await asyncio.sleep(60.0)
    assert snapshots(leader) == [SnapshotId(end_offset, 1)]


@with_quorum(voters=1)
async def test_a_full_disk_is_no_failure(cluster: QuorumCluster) -> None:
    leader = await start(cluster)
    await leader.propose(b"." * 3000)
    disk_of(leader).faults.quota_bytes = 0
    await asyncio.sleep(5.0)
    assert snapshots(leader) == []
    assert not leader.fatal
    disk_of(leader).faults.quota_bytes = None
    await leader.propose(b"." * 3000)
    await asyncio.sleep(5.0)
    assert len(snapshots(leader)) == 1


# ---------------------------------------------------------------------------------- starting


@pytest.mark.parametrize("power_loss", [False, True])
@with_quorum(observers=1)
async def test_startup_from_snapshot_and_tail(cluster: QuorumCluster, power_loss: bool) -> None:
    leader = await start(cluster)
    await write(cluster, leader, 100)
    await leader.propose(b"tail")
    await cluster.until_equal()
    before = leader.witness.state
    for replica in cluster.replicas.values():
        if power_loss:
            cluster.simulation.power_off(replica.machine)
            cluster.simulation.power_on(replica.machine)
        else:
            await replica.stop()
    await start(cluster)
    await cluster.until(lambda: states_are_equal(cluster) and leader.witness.state == before)
    for replica in cluster.replicas.values():
        assert replica.witness.events[0][0] == "snapshot"
        assert len(replica.witness.records) < len(before) / 2
    successor = await cluster.leader()
    await successor.propose(b"more")
    await cluster.until(lambda: states_are_equal(cluster))


@with_quorum
async def test_a_corrupt_snapshot_is_refused_and_nothing_changed(cluster: QuorumCluster) -> None:
    leader = await start(cluster)
    await write(cluster, leader, 60)
    victim = cluster.others(leader)[0]
    await victim.stop()
    newest = snapshots(victim)[-1]
    path = f"{LOG}/{file_name(newest)}"
    before = files(victim)
    disk_of(victim).flip_bit(path, 200)
    with pytest.raises(CorruptMetadataLogError, match="damaged"):
        await victim.start()
    assert files(victim) == before
    disk_of(victim).flip_bit(path, 200)
    await victim.start()
    await cluster.until(lambda: states_are_equal(cluster))


@with_quorum(voters=1)
async def test_a_foreign_snapshot_is_refused_and_nothing_changed(cluster: QuorumCluster) -> None:
    leader = await start(cluster)
    await leader.propose(b"mine")
    await cluster.until(lambda: leader.witness.state == [b"mine"])
    await leader.stop()
    foreign = SnapshotId(1000, 9)
    name = file_name(foreign)
    data = b"".join(encode(foreign, "foreign", 1, [b"theirs"]))
    process = cluster.simulation.process(leader.machine)

    async def put() -> None:
        process.world.disk.replace_file_now(f"{LOG}/{name}", data)

    await process.run(put())
    cluster.simulation.kill(process)
    before = files(leader)
    with pytest.raises(CorruptMetadataLogError, match="not of cluster cluster"):
        await leader.start()
    assert files(leader) == before
    del disk_of(leader).directory(LOG).entries[name]
    await leader.start()
    await cluster.until(lambda: leader.witness.state == [b"mine"])


@with_quorum(voters=1)
async def test_a_log_whose_snapshot_is_gone_is_refused(cluster: QuorumCluster) -> None:
    leader = await start(cluster, snapshot_after_bytes=1_000_000)
    for number in range(60):
        await leader.propose(b"%d" % number + b"." * 100_000)
        await asyncio.sleep(0.3)
    await leader.stop()
    for snapshot in snapshots(leader):
        del disk_of(leader).directory(LOG).entries[file_name(snapshot)]
    with pytest.raises(CorruptMetadataLogError, match="snapshot before it is missing"):
        await leader.start()


# ---------------------------------------------------------------------------------- fetching


@pytest.mark.parametrize("late", [3, 4])
@with_quorum(observers=1)
async def test_a_slow_voter_or_broker_is_given_a_snapshot(
    cluster: QuorumCluster, late: int
) -> None:
    slow = cluster.replicas[late]
    others = [replica for replica in cluster.replicas.values() if replica is not slow]
    leader = await start(cluster, *others)
    await write(cluster, leader, 100)
    assert leader.quorum.log_start_offset > 0
    await start(cluster, slow, fetch_max_bytes=500)  # in many pieces
    await cluster.until(lambda: states_are_equal(cluster))
    assert slow.witness.events[0][0] != "commit"
    assert any(event[0] == "snapshot" for event in slow.witness.events)
    await leader.propose(b"after")
    await cluster.until(lambda: states_are_equal(cluster))
    await slow.stop()
    await start(cluster, slow)
    await cluster.until(lambda: states_are_equal(cluster))


@with_quorum(observers=1)
async def test_a_replica_that_was_away_is_reset_by_a_snapshot(cluster: QuorumCluster) -> None:
    leader = await start(cluster)
    slow = cluster.replicas[4]
    await leader.propose(b"seen")
    await cluster.until_equal()
    cluster.isolate(slow)
    await write(cluster, leader, 100)
    cluster.simulation.fabric.heal()
    await cluster.until(lambda: states_are_equal(cluster))
    kinds = [event[0] for event in slow.witness.events if event[0] != "leader"]
    assert kinds[:2] == ["commit", "snapshot"]  # the same life: it was up all the time


@with_quorum(observers=1)
async def test_a_download_goes_on_where_it_broke_off(cluster: QuorumCluster) -> None:
    slow = cluster.replicas[4]
    leader = await start(cluster, *list(cluster.replicas.values())[:3])
    await write(cluster, leader, 200)
    asked: list[tuple[int, int]] = []
    serve = leader.service.unary[FETCH_SNAPSHOT]

    async def serve_late(data: bytes, peer: Peer) -> bytes:
        request = pb.FetchSnapshotRequest.FromString(data)
        asked.append((request.snapshot.end_offset, request.position))
        if len(asked) == 5:
            await asyncio.sleep(3.0)  # longer than the asker waits
        return await serve(data, peer)

    leader.service.unary[FETCH_SNAPSHOT] = serve_late
    await start(cluster, slow, fetch_max_bytes=2_000)
    await cluster.until(lambda: states_are_equal(cluster))
    positions = [position for _, position in asked]
    assert positions == sorted(positions)
    assert positions.count(0) == 1
    assert positions[4] == positions[5] > 0


@with_quorum(observers=1)
async def test_a_piece_that_is_damaged_on_its_way_is_never_loaded(cluster: QuorumCluster) -> None:
    slow = cluster.replicas[4]
    leader = await start(cluster, *list(cluster.replicas.values())[:3])
    await write(cluster, leader, 100)
    serve = leader.service.unary[FETCH_SNAPSHOT]
    damaged: list[int] = []

    async def serve_damaged(data: bytes, peer: Peer) -> bytes:
        answer = pb.FetchSnapshotResponse.FromString(await serve(data, peer))
        if not damaged and answer.data:
            damaged.append(answer.position)
            flipped = bytes([answer.data[150] ^ 1])
            answer.data = answer.data[:150] + flipped + answer.data[151:]
        return answer.SerializeToString()

    leader.service.unary[FETCH_SNAPSHOT] = serve_damaged
    await start(cluster, slow)
    await cluster.until(lambda: states_are_equal(cluster))
    assert damaged == [0]
    assert [event[0] for event in slow.witness.events].count("snapshot") == 1
    assert not slow.fatal


@with_quorum
async def test_what_a_leader_refuses(cluster: QuorumCluster) -> None:
    leader = await start(cluster)
    await write(cluster, leader, 60)
    asker, newest = cluster.others(leader)[0], snapshots(leader)[-1]

    async def ask(target: QuorumNode, **changed: Any) -> tuple[ErrorCode, bytes]:
        fields = {
            "cluster_id": "cluster",
            "replica_id": asker.id,
            "epoch": leader.quorum.leader.epoch,
            "snapshot": pb.SnapshotId(end_offset=newest.end_offset, epoch=newest.epoch),
            "max_bytes": 100,
        }
        request = pb.FetchSnapshotRequest(**{**fields, **changed})
        data = await asker.call(target, FETCH_SNAPSHOT, request.SerializeToString())
        answer = pb.FetchSnapshotResponse.FromString(data)
        return ErrorCode(answer.error), answer.data

    code, data = await ask(leader)
    assert (code, len(data)) == (ErrorCode.NONE, 100)
    unknown = pb.SnapshotId(end_offset=newest.end_offset, epoch=newest.epoch + 1)
    assert await ask(leader, cluster_id="foreign") == (ErrorCode.INCONSISTENT_CLUSTER_ID, b"")
    assert await ask(leader, snapshot=unknown) == (ErrorCode.SNAPSHOT_NOT_FOUND, b"")
    assert await ask(leader, position=10**9) == (ErrorCode.POSITION_OUT_OF_RANGE, b"")
    assert await ask(leader, position=-1) == (ErrorCode.INVALID_REQUEST, b"")
    assert await ask(leader, epoch=0) == (ErrorCode.FENCED_LEADER_EPOCH, b"")
    assert await ask(leader, epoch=99) == (ErrorCode.UNKNOWN_LEADER_EPOCH, b"")
    other = cluster.others(leader)[1]
    assert await ask(other) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")


@pytest.mark.parametrize("seed", range(8))
@with_quorum(observers=1)
async def test_among_kills_power_losses_and_partitions(cluster: QuorumCluster, seed: int) -> None:
    rng = random.Random(seed)

    await start(cluster, fetch_max_bytes=1_000)
    loaded = 0
    for _ in range(12):
        leader = await cluster.leader(timeout_s=30)
        for _ in range(rng.randint(1, 60)):
            if leader.up and leader.quorum.role is Role.LEADER:
                await leader.propose(rng.randbytes(100))
            await asyncio.sleep(0.1)
        victim = rng.choice([leader, *cluster.replicas.values()])
        loaded += sum(e[0] == "snapshot" for e in victim.witness.events) if victim.up else 0
        match rng.randrange(3):
            case 0 if victim.up:
                victim.kill()
            case 1 if victim.up:
                cluster.simulation.power_off(victim.machine)
                cluster.simulation.power_on(victim.machine)
            case _:
                cluster.simulation.fabric.heal()
                cluster.isolate(victim)
        await asyncio.sleep(rng.uniform(0, 6))
        if rng.random() < 0.5:
            cluster.simulation.fabric.heal()
        down = [each for each in cluster.replicas.values() if not each.up]
        for each in down[:: 1 if len(down) > 1 else rng.choice([1, 2])]:
            await each.start()
    cluster.simulation.fabric.heal()
    for replica in cluster.replicas.values():
        if not replica.up:
            await replica.start()
    leader = await cluster.leader(timeout_s=30)
    await leader.propose(b"last")
    await cluster.until(
        lambda: states_are_equal(cluster) and leader.witness.state[-1] == b"last",
        timeout_s=30,
    )
    assert len(leader.witness.state) > 30
    assert not any(replica.fatal for replica in cluster.replicas.values())
    loaded += sum(e[0] == "snapshot" for r in cluster.replicas.values() for e in r.witness.events)
    assert loaded > 0
