"""Replicas that use the copy of their log in another directory, before it counts and afterwards."""

from __future__ import annotations

import asyncio
import errno

import pytest

from broker.replication.replica import ReplicaState
from stele.errors import ErrorCode
from storage.errors import CorruptLogError
from tests.support.directory_moves import (
    DIRECTORIES,
    KEY,
    Writer,
    crash,
    holders,
    move,
    moved,
    on_disk,
    place,
    values,
    with_topic,
)
from tests.support.replica_cluster import DIRECTORY, OTHER_DIRECTORY, P0, Node, ReplicaCluster
from tests.support.replicated_transactions import NEW, Coordinator, batch, marker
from tests.support.timing import until


async def switched(node: Node) -> None:
    """Wait until the replica uses its copy, which does not count yet: the disk is slow."""
    node.disk.faults.extra_sync_s = 0.5
    await until(lambda: node.manager.moves.is_settling(P0))


@with_topic
async def test_nothing_is_acknowledged_before_the_copy_counts(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    writer = Writer(node)
    await writer.write(5)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await switched(node)
    assert place(node) == OTHER_DIRECTORY
    assert holders(node) == [*DIRECTORIES]
    copy = node.replica().log
    writing = asyncio.ensure_future(writer.write_on())
    await until(lambda: copy.end_offset == 6)
    assert await move(node, DIRECTORY) is ErrorCode.NONE, "a move back begins afterwards"
    assert copy.durable_offset == 5
    assert len(writer.acknowledged) == 5
    await crash(cluster, node, power=False)
    assert place(node) == DIRECTORY
    writing.cancel()
    node.disk.faults.extra_sync_s = 0
    writer.check(await values(node))
    await moved(node, OTHER_DIRECTORY)
    assert await move(node, DIRECTORY) is ErrorCode.NONE
    await switched(node)
    writing = asyncio.ensure_future(writer.write_on())
    await node.stop()  # which lets the copy count first
    writing.cancel()
    node.disk.faults.extra_sync_s = 0
    await node.start()
    cluster.register(node)
    await until(lambda: node.holds() and node.replica().machine.is_leader)
    assert (place(node), holders(node)) == (DIRECTORY, [DIRECTORY])
    writer.check(await values(node))


@with_topic
async def test_a_full_disk_puts_off_the_time_when_the_copy_counts(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    await Writer(node).write(5)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await switched(node)
    node.disk.faults.quota_bytes = node.disk.used_bytes()
    node.disk.faults.extra_sync_s = 0
    await asyncio.sleep(3)
    assert node.manager.moves.is_settling(P0)
    assert holders(node) == [*DIRECTORIES]
    node.disk.faults.quota_bytes = None
    await moved(node, OTHER_DIRECTORY)
    assert holders(node) == [OTHER_DIRECTORY]


@with_topic
async def test_a_stop_does_not_wait_for_a_copy_that_cannot_count(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    writer = Writer(node)
    await writer.write(5)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await switched(node)
    node.disk.faults.quota_bytes = node.disk.used_bytes()
    node.disk.faults.extra_sync_s = 0
    await asyncio.sleep(3)
    assert node.manager.moves.is_settling(P0)
    async with asyncio.timeout(60):
        await node.stop()
    node.disk.faults.quota_bytes = None
    await node.start()
    cluster.register(node)
    await until(lambda: node.holds() and node.replica().machine.is_leader)
    writer.check(await values(node))


@with_topic
async def test_a_copy_whose_directory_fails_before_it_counts_is_given_up(
    cluster: ReplicaCluster,
) -> None:
    """The old log is still there for the next process."""
    node = cluster[1]
    await Writer(node).write(5)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await switched(node)
    error = OSError(errno.EROFS, "it failed")
    node.process.loop.call_soon(node.directories[1].failed, node.replica().log, error)
    node.disk.faults.extra_sync_s = 0
    await until(lambda: not node.manager.moves.is_settling(P0))
    assert node.failed_directories == [OTHER_DIRECTORY]
    assert f"{DIRECTORY}/{KEY}" in on_disk(node)


@with_topic
async def test_deleted_records_are_not_acknowledged_before_the_copy_counts(
    cluster: ReplicaCluster,
) -> None:
    node = cluster[1]
    await Writer(node).write(5)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await switched(node)
    refused = await node.delete(3)
    assert refused.error is ErrorCode.KAFKA_STORAGE_ERROR
    assert "is about to change its log directory" in refused.message
    await crash(cluster, node, power=False)
    node.disk.faults.extra_sync_s = 0
    assert (place(node), node.replica().log.start_offset) == (DIRECTORY, 0)
    await moved(node, OTHER_DIRECTORY)
    assert (await node.delete(3)).error is ErrorCode.NONE
    await crash(cluster, node, power=False)
    assert node.replica().log.start_offset == 3


@with_topic(brokers=2)
async def test_a_follower_tells_the_start_of_its_old_log_before_the_copy_counts(
    cluster: ReplicaCluster,
) -> None:
    """Else records count as deleted that come back when the follower is killed and elected."""
    leader, follower = cluster[1], cluster[2]
    await Writer(leader).write(5)
    await until(lambda: follower.holds() and follower.replica().log.end_offset == 5)
    assert await move(follower, OTHER_DIRECTORY) is ErrorCode.NONE
    await switched(follower)
    deleting = asyncio.ensure_future(leader.delete(3))
    await until(lambda: follower.replica().log.start_offset == 3)
    target, copy = follower.directories[1], follower.replica().log
    await until(lambda: target.durable_start_offset(copy) == 3)
    assert follower.manager.moves.is_settling(P0)
    assert follower.replica().durable_start_offset == 0
    assert not deleting.done()
    follower.disk.faults.extra_sync_s = 0
    assert (await deleting).error is ErrorCode.NONE
    assert not follower.manager.moves.is_settling(P0)


@with_topic
async def test_a_topic_is_deleted_and_made_again_before_the_copy_counts(
    cluster: ReplicaCluster,
) -> None:
    node = cluster[1]
    await Writer(node).write(5)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await switched(node)
    cluster.delete_topic()
    await until(lambda: not node.holds())
    assert on_disk(node) == []
    again = b"orders-once-more"
    cluster.create_topic((1,), min_insync=1, topic_id=again)
    renewed = P0._replace(topic_id=again)
    await until(lambda: node.holds(renewed))
    node.disk.faults.extra_sync_s = 0
    await until(lambda: not node.manager.moves.is_settling(P0))
    assert len(holders(node)) == len(on_disk(node)) == 1
    assert node.replica(renewed).log.end_offset == 0
    assert (await node.produce(partition=renewed)).error is ErrorCode.NONE


@with_topic(brokers=3)
async def test_a_corrupt_copy_is_begun_anew_only_when_the_old_log_is_gone(
    cluster: ReplicaCluster,
) -> None:
    """Else the old log, which lacks what was acknowledged since, would be there after a restart."""

    node = cluster[2]
    writer = Writer(cluster[1])
    await writer.write(5)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await switched(node)
    replica, log = node.replica(), node.replica().log
    error = CorruptLogError(log.directory, position=0, offset=0, reason="a test says so")

    async def found() -> None:
        assert node.directories[1].on_log_failed is not None
        node.directories[1].on_log_failed(log, OSError(errno.ENOENT, str(error)))

    await node.process.run(found())
    assert replica.state is ReplicaState.CORRUPT
    cluster.fence(2)
    cluster.unfence(2)
    cluster.change(leader=1)
    await asyncio.sleep(0.3)
    assert node.manager.moves.is_settling(P0)
    assert replica.state is ReplicaState.CORRUPT
    node.disk.faults.extra_sync_s = 0
    await until(lambda: cluster.state().isr == (1, 2, 3))
    assert holders(node) == [OTHER_DIRECTORY]
    assert len(on_disk(node)) == 1
    await writer.write(3)


@pytest.mark.parametrize("commit", [True, False])
@with_topic(segment_ms=str(1 << 60))
async def test_a_transaction_goes_on_over_a_move(cluster: ReplicaCluster, commit: bool) -> None:
    node = cluster[1]
    coordinator = Coordinator(node)
    await node.produce(batch(0, 2), transaction=NEW)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await moved(node, OTHER_DIRECTORY)
    assert node.replica().machine.last_stable_offset == 0
    assert (await node.produce(batch(2), transaction=NEW)).base_offset == 2
    assert len(coordinator.asked) == 1, "the log knows that the transaction is open"
    coordinator.verdict = None
    other = asyncio.ensure_future(node.produce(batch(0, producer_id=8), transaction=NEW))
    await until(lambda: len(coordinator.waiting) == 1)
    assert await move(node, DIRECTORY) is ErrorCode.NONE
    await moved(node, DIRECTORY)
    await coordinator.answer(node)
    assert (await other).error is ErrorCode.NONE, "the verdict outlasts the move"
    assert await node.mark(marker(commit=commit)) == [ErrorCode.NONE]
    assert await node.mark(marker(producer_id=8)) == [ErrorCode.NONE]
    result = await node.fetch(0, read_committed=True)
    assert result.error is ErrorCode.NONE
    assert len(result.aborted) == (not commit)
    await until(lambda: node.replica().machine.last_stable_offset == 6)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await moved(node, OTHER_DIRECTORY)
    assert len((await node.fetch(0, read_committed=True)).aborted) == (not commit)
    assert node.replica().machine.last_stable_offset == 6
