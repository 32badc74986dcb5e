"""Replicas that move from one log directory of their broker to another."""

from __future__ import annotations

import asyncio
import errno

import pytest

from broker.replication.moves import RESERVE_BYTES
from broker.replication.replica import ReplicaState
from stele.errors import ErrorCode
from stele.ids import PartitionId, TopicPartition
from tests.support.batches import make_batch
from tests.support.directory_moves import (
    DIRECTORIES,
    KEY,
    SLOW,
    THIRD_DIRECTORY,
    Writer,
    begun,
    crash,
    futures,
    holders,
    hurry,
    is_settled,
    move,
    moved,
    on_disk,
    place,
    values,
    with_topic,
)
from tests.support.replica_cluster import (
    DIRECTORY,
    OTHER_DIRECTORY,
    P0,
    TOPIC,
    Node,
    ReplicaCluster,
)
from tests.support.replication import with_brokers
from tests.support.timing import until


@with_topic
async def test_a_replica_moves_while_it_is_written(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    writer = Writer(node)
    await writer.write(50, size=20_000)
    assert place(node) == DIRECTORY
    writing = asyncio.ensure_future(writer.write_on())
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await moved(node, OTHER_DIRECTORY)
    before = len(writer.acknowledged)
    assert before > 50
    await until(lambda: len(writer.acknowledged) > before + 20)
    writing.cancel()
    assert holders(node) == [OTHER_DIRECTORY]
    assert on_disk(node) == [f"{OTHER_DIRECTORY}/{KEY}"]
    writer.check(await values(node))
    await node.stop()
    await node.start()
    cluster.register(node)
    await until(lambda: node.holds() and node.replica().machine.is_leader)
    assert place(node) == OTHER_DIRECTORY
    writer.check(await values(node))
    assert await move(node, DIRECTORY) is ErrorCode.NONE
    await moved(node, DIRECTORY)
    await writer.write(3)
    writer.check(await values(node))


@pytest.mark.parametrize("power", [True, False], ids=["power", "process"])
def test_a_crash_at_any_time_leaves_one_log_with_all_that_was_acknowledged(power: bool) -> None:
    """The move takes some 40 ms here. Each crash comes a little later than the last one."""
    places: list[str] = []

    def crash_after(delay_s: float, seed: int) -> bool:
        over = False

        async def scenario(cluster: ReplicaCluster) -> None:
            nonlocal over
            node = cluster[1]
            writer = Writer(node)
            await writer.write(10, size=300)
            await node.delete(4)
            writing = asyncio.ensure_future(writer.write_on())
            start_offset = 4
            assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
            await asyncio.sleep(delay_s)
            over = is_settled(node)
            writing.cancel()
            await crash(cluster, node, power=power)
            places.append(place(node))
            # A copy that was begun anew may have taken over already.
            assert node.manager.moves.is_settling(P0) or holders(node) == [place(node)]
            assert node.starts()[0] == start_offset
            found = await values(node)
            del writer.acknowledged[:start_offset]
            writer.check(found)
            if is_settled(node):  # the crash came before anything of the copy was on disk
                assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
            await moved(node, OTHER_DIRECTORY)
            assert on_disk(node) == [f"{OTHER_DIRECTORY}/{KEY}"]
            assert await values(node) == found
            assert node.replica().log.start_offset == start_offset
            await writer.write(2)
            await crash(cluster, node, power=power)
            assert (place(node), holders(node)) == (OTHER_DIRECTORY, [OTHER_DIRECTORY])
            writer.check(await values(node))

        with_topic.run(scenario, seed=seed, segment_bytes="1024", retention_ms="-1")
        return over

    delay_s, seed = 0.0, 0
    while not crash_after(delay_s, seed):
        delay_s += 0.000_5
        seed += 1
    assert {*places} == {*DIRECTORIES}
    assert seed > 20


@with_topic(directories=(*DIRECTORIES, THIRD_DIRECTORY), settings=SLOW)
async def test_a_move_is_cancelled_and_redirected(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    writer = Writer(node)
    await writer.write(40, size=20_000)
    assert await move(node, DIRECTORY) is ErrorCode.NONE
    assert futures(node) == []
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    assert futures(node) == [(OTHER_DIRECTORY, 0, 40)]
    await begun(node, OTHER_DIRECTORY)
    ((_, size, lag),) = futures(node)
    assert size > 0
    assert 0 < lag < 40
    described = await node.process.run(node.manager.descriptions.directories(None))
    assert [
        (each.path, replica.is_future, replica.size_bytes, replica.offset_lag)
        for each in described
        for replica in each.replicas
    ] == [
        (DIRECTORY, False, node.replica().log.size_bytes, 0),
        (OTHER_DIRECTORY, True, size, lag),
    ]
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    assert futures(node) == [(OTHER_DIRECTORY, size, lag)]
    assert await move(node, THIRD_DIRECTORY) is ErrorCode.NONE
    assert [where for where, _, _ in futures(node)] == [THIRD_DIRECTORY]
    await begun(node, THIRD_DIRECTORY)
    assert await move(node, DIRECTORY) is ErrorCode.NONE
    assert futures(node) == []
    await asyncio.sleep(0.1)
    assert on_disk(node) == [f"{DIRECTORY}/{KEY}"]
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    hurry(node)
    await moved(node, OTHER_DIRECTORY)
    writer.check(await values(node))


@with_topic(directories=(*DIRECTORIES, THIRD_DIRECTORY))
async def test_what_cannot_be_moved_is_refused(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    await Writer(node).write(2)
    assert await move(node, "/elsewhere") is ErrorCode.LOG_DIR_NOT_FOUND
    for key in (TopicPartition("x", 0), TopicPartition(TOPIC, 1), TopicPartition(TOPIC, -1)):
        error = await move(node, OTHER_DIRECTORY, key)
        assert error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    node.disk.faults.quota_bytes = node.disk.used_bytes() + (1 << 20)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.KAFKA_STORAGE_ERROR
    node.disk.faults.quota_bytes = None
    third = node.directories[2]
    third.offline = OSError("it failed")
    assert await move(node, THIRD_DIRECTORY) is ErrorCode.KAFKA_STORAGE_ERROR
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.KAFKA_STORAGE_ERROR, "as in Kafka"
    assert await move(node, DIRECTORY) is ErrorCode.NONE
    assert futures(node) == []


@pytest.mark.parametrize("path", DIRECTORIES)
@pytest.mark.parametrize("state", [ReplicaState.CORRUPT, ReplicaState.OFFLINE])
@with_topic
async def test_a_replica_without_log_is_neither_moved_nor_where_it_was_asked_to_be(
    cluster: ReplicaCluster, state: ReplicaState, path: str
) -> None:
    node = cluster[1]
    node.manager.take_down(node.replica(), state)
    assert await move(node, path) is ErrorCode.KAFKA_STORAGE_ERROR
    assert futures(node) == []


@with_brokers(brokers=2, directories=DIRECTORIES)
async def test_a_replica_that_is_not_here_yet_is_made_where_it_was_asked_to_be(
    cluster: ReplicaCluster,
) -> None:
    cluster.create_topic((1,), (1,), (1,), min_insync=1)
    await until(lambda: cluster[2].image.topic(TOPIC) is not None)
    for node, number in ((cluster[2], 0), (cluster[2], 1)):
        error = await move(node, OTHER_DIRECTORY, TopicPartition(TOPIC, number))
        assert error is ErrorCode.REPLICA_NOT_AVAILABLE
    cluster.change(replicas=(1, 2))
    await until(cluster[2].holds)
    assert place(cluster[2]) == OTHER_DIRECTORY
    assert futures(cluster[2]) == []


@with_brokers(brokers=2, directories=DIRECTORIES)
async def test_a_replica_is_not_made_in_the_directory_that_failed_since_it_was_asked_for(
    cluster: ReplicaCluster,
) -> None:
    cluster.create_topic((1,), min_insync=1)
    node = cluster[2]
    await until(lambda: node.image.topic(TOPIC) is not None)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.REPLICA_NOT_AVAILABLE
    node.directories[1].offline = OSError("it failed")
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.KAFKA_STORAGE_ERROR
    cluster.change(replicas=(1, 2))
    await until(node.holds)
    assert place(node) == DIRECTORY


@with_topic(settings=SLOW)
async def test_a_copy_may_fill_its_disk_up_to_the_reserve(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    writer = Writer(node)
    await writer.write(30, size=20_000)  # the last slice is all that is left after the first pause
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await begun(node, OTHER_DIRECTORY)
    assert [lag for _, _, lag in futures(node)] == [4]
    node.disk.faults.quota_bytes = node.disk.used_bytes() + RESERVE_BYTES
    hurry(node)
    await moved(node, OTHER_DIRECTORY)
    writer.check(await values(node))


@with_topic(settings=SLOW)
async def test_deleted_records_stay_deleted(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    writer = Writer(node)
    await writer.write(40, size=20_000)
    await node.delete(5)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await begun(node, OTHER_DIRECTORY)
    await node.delete(7)
    await writer.write(1)
    await node.delete(30)  # all that was copied
    await writer.write(1)
    hurry(node)
    await moved(node, OTHER_DIRECTORY)
    assert node.replica().log.start_offset == 30
    assert node.directories[1].durable_start_offset(node.replica().log) == 30
    del writer.acknowledged[:30]
    writer.check(await values(node))
    await crash(cluster, node, power=True)
    assert node.replica().log.start_offset == 30
    writer.check(await values(node))
    assert (await node.delete(-1)).low_watermark == 42


@with_topic(settings=SLOW)
async def test_a_topic_is_deleted_and_made_again_while_it_is_copied(
    cluster: ReplicaCluster,
) -> None:
    node = cluster[1]
    await Writer(node).write(40, size=20_000)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await begun(node, OTHER_DIRECTORY)
    cluster.delete_topic()
    await until(lambda: not node.holds())
    assert futures(node) == []
    assert on_disk(node) == []
    again = b"orders-once-more"
    cluster.create_topic((1,), (1,), min_insync=1, topic_id=again)
    await until(lambda: node.holds(P0._replace(topic_id=again, partition=1)))
    assert {each.path: sorted(each.logs) for each in node.directories} == {
        DIRECTORY: [KEY],
        OTHER_DIRECTORY: [TopicPartition(TOPIC, 1)],
    }


@with_topic(settings=SLOW)
async def test_a_copy_of_a_topic_that_was_deleted_meanwhile_is_deleted_at_the_start(
    cluster: ReplicaCluster,
) -> None:
    node = cluster[1]
    await Writer(node).write(40, size=20_000)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await begun(node, OTHER_DIRECTORY)
    node.kill()
    cluster.delete_topic()
    await node.start()
    cluster.register(node)
    await until(lambda: on_disk(node) == [])
    assert futures(node) == []


@with_topic(settings=SLOW)
async def test_an_unfinished_copy_is_begun_anew_at_the_start(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    writer = Writer(node)
    await writer.write(40, size=20_000)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await begun(node, OTHER_DIRECTORY)
    await crash(cluster, node, power=False)
    await begun(node, OTHER_DIRECTORY)
    hurry(node)
    await moved(node, OTHER_DIRECTORY)
    writer.check(await values(node))


@with_topic(settings=SLOW)
async def test_a_copy_of_an_earlier_topic_of_the_name_is_deleted_at_the_start(
    cluster: ReplicaCluster,
) -> None:
    """The topic was made again while the broker was down. Nobody has asked to move the new one."""
    node = cluster[1]
    await Writer(node).write(40, size=20_000)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await begun(node, OTHER_DIRECTORY)
    node.kill()
    cluster.delete_topic()
    cluster.create_topic((1,), min_insync=1, topic_id=b"orders-made-anew")
    await node.start()
    cluster.register(node)
    again = PartitionId(b"orders-made-anew", 0)
    await until(lambda: node.holds(again) and node.replica(again).machine.is_leader)
    assert futures(node) == []
    at = node.replica(again).directory.path
    assert on_disk(node) == [f"{at}/{KEY}"]
    assert node.replica(again).log.end_offset == 0
    assert all(not each.copies.left for each in node.directories)


@with_topic(brokers=3, settings=SLOW)
async def test_a_follower_moves_and_is_truncated_meanwhile(cluster: ReplicaCluster) -> None:
    """Its copy begins anew. Nothing that was acknowledged is lost when the others are gone."""

    leader, node = cluster[1], cluster[2]
    writer = Writer(leader)
    await writer.write(30, size=20_000)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await begun(node, OTHER_DIRECTORY)
    ends = node.replica().log.end_offset
    node.process.loop.call_soon(node.replica().truncate_to, ends - 3)
    hurry(node)
    await writer.write(30)
    await moved(node, OTHER_DIRECTORY)
    await writer.write(5)
    leader.kill()
    cluster.fence(1)
    await until(lambda: node.replica().machine.is_leader)
    writer.check(await values(node))
    writer.node = node
    await writer.write(5)


@with_topic(brokers=3)
async def test_a_leader_moves_while_followers_fetch_and_leads_on(cluster: ReplicaCluster) -> None:
    """Also the other way: the leader moves, and loses its leadership afterwards."""

    node = cluster[1]
    writer = Writer(node)
    await writer.write(30, size=20_000)
    writing = asyncio.ensure_future(writer.write_on())
    hosted = node.manager.hosting.host(P0)
    assert hosted is not None
    for path in (OTHER_DIRECTORY, DIRECTORY):
        assert await move(node, path) is ErrorCode.NONE
        assert await move(cluster[2], path) is ErrorCode.NONE
        await moved(node, path)
        await moved(cluster[2], path)
    assert hosted.is_led
    assert hosted.end_offset == node.replica().log.end_offset
    assert cluster.state().isr == (1, 2, 3)
    before = len(writer.acknowledged)
    await until(lambda: len(writer.acknowledged) > before + 10)
    writing.cancel()
    assert node.replica().log.epochs.entries == cluster[2].replica().log.epochs.entries
    node.kill()
    cluster.fence(1)
    await until(lambda: cluster[2].replica().machine.is_leader)
    writer.check(await values(cluster[2]))


@with_topic(segment_bytes="1024", retention_ms="-1")
async def test_producers_and_epochs_without_batches_are_still_known(
    cluster: ReplicaCluster,
) -> None:
    """Their batches were deleted, so a copy of the batches alone would not know of them."""

    node = cluster[1]
    for sequence in range(3):
        await node.produce(make_batch(producer=(7, 0, sequence), size=600))
    await node.produce(make_batch(size=600))
    await node.delete(4)
    cluster.change(leader=1)  # in a later epoch, in which nothing is written
    await until(lambda: len(node.replica().log.epochs.entries) == 1)
    before = node.replica().log
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await moved(node, OTHER_DIRECTORY)
    log = node.replica().log
    assert log is not before
    assert log.epochs.entries == before.epochs.entries != []
    repeated = await node.produce(make_batch(producer=(7, 0, 2), size=600))
    assert (repeated.error, repeated.base_offset) == (ErrorCode.NONE, 2)
    gap = await node.produce(make_batch(producer=(7, 0, 5)))
    assert gap.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    await crash(cluster, node, power=True)
    repeated = await node.produce(make_batch(producer=(7, 0, 2), size=600))
    assert (repeated.error, repeated.base_offset) == (ErrorCode.NONE, 2)


@with_topic(settings=SLOW)
async def test_a_failing_target_costs_the_copy_and_not_the_replica(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    writer = Writer(node)
    await writer.write(40, size=20_000)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await begun(node, OTHER_DIRECTORY)
    other = node.directories[1]
    (copy,) = other.copies.open.values()
    node.process.loop.call_soon(other.failed, copy, OSError(errno.EROFS, "it failed"))
    hurry(node)
    await until(lambda: futures(node) == [])
    assert node.failed_directories == [OTHER_DIRECTORY]
    await writer.write(3)
    assert place(node) == DIRECTORY
    writer.check(await values(node))
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.KAFKA_STORAGE_ERROR


@with_topic(settings=SLOW)
async def test_a_failing_source_ends_the_move(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    await Writer(node).write(40, size=20_000)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await begun(node, OTHER_DIRECTORY)
    error = OSError(errno.EROFS, "it failed")
    node.process.loop.call_soon(node.directory.failed, node.replica().log, error)
    await until(lambda: node.replica().state is ReplicaState.OFFLINE)
    assert futures(node) == []
    hurry(node)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.KAFKA_STORAGE_ERROR
    assert on_disk(node) == [f"{DIRECTORY}/{KEY}"]


@with_topic(settings=SLOW)
async def test_a_disk_that_fills_up_ends_the_move_before_the_broker_lacks_room(
    cluster: ReplicaCluster,
) -> None:
    node = cluster[1]
    writer = Writer(node)
    await writer.write(40, size=20_000)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await begun(node, OTHER_DIRECTORY)
    node.disk.faults.quota_bytes = node.disk.used_bytes() + (4 << 20)
    hurry(node)
    await until(lambda: futures(node) == [])
    await writer.write(3)
    assert place(node) == DIRECTORY
    writer.check(await values(node))


@with_topic(brokers=2, settings=SLOW)
async def test_a_corrupt_batch_ends_the_move_and_is_not_copied(cluster: ReplicaCluster) -> None:
    node = cluster[2]
    writer = Writer(cluster[1])
    await writer.write(40, size=20_000)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await begun(node, OTHER_DIRECTORY)
    node.disk.flip_bit(f"{DIRECTORY}/{KEY}/00000000000000000000.log", 38 * 20_000)
    hurry(node)
    await until(lambda: node.corrupt == [P0])
    assert futures(node) == []
    cluster.fence(2)
    cluster.unfence(2)
    cluster.change(leader=1)
    await until(lambda: cluster.state().isr == (1, 2))
    assert len(holders(node)) == 1
    await writer.write(1)


@with_topic(
    settings={**SLOW, "log.cleaner.backoff.ms": 2000},
    cleanup_policy="compact",
    segment_bytes="30000",
    min_cleanable_dirty_ratio="0",
)
async def test_a_topic_is_not_compacted_while_it_is_copied(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    writer = Writer(node)
    await writer.write(40, size=20_000)
    cleaner = node.manager.cleaner
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await begun(node, OTHER_DIRECTORY)
    await asyncio.sleep(20)
    assert cleaner.rounds == 0
    hurry(node)
    await moved(node, OTHER_DIRECTORY)
    writer.check(await values(node))
    await until(lambda: cleaner.rounds > 0)
    assert await values(node) == writer.acknowledged[-2:], "all have one key"


@with_topic(
    settings={"log.cleaner.backoff.ms": 2000, "log.cleaner.io.max.bytes.per.second": 100000},
    cleanup_policy="compact",
    segment_bytes="30000",
    min_cleanable_dirty_ratio="0",
)
async def test_a_compaction_under_way_ends_before_the_copy_begins(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    writer = Writer(node)
    await writer.write(40, size=20_000)
    cleaner = node.manager.cleaner
    await until(lambda: node.disk.names(f"{DIRECTORY}/{KEY}") != [] and is_cleaning(node))
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    await asyncio.sleep(1)
    assert futures(node) == [(OTHER_DIRECTORY, 0, 40)]
    assert cleaner.rounds == 0
    await moved(node, OTHER_DIRECTORY)
    assert cleaner.rounds == 1
    assert await values(node) == writer.acknowledged[-2:]
    assert node.directories[1].clean_end(node.replica().log) == 39


def is_cleaning(node: Node) -> bool:
    return any(name.endswith(".cleaned") for name in node.disk.names(f"{DIRECTORY}/{KEY}"))


@with_topic(flush_messages="1000")
async def test_a_relaxed_topic_is_noted_where_it_goes(cluster: ReplicaCluster) -> None:
    """After a power loss, the controller hears that the replica may lack what it acknowledged."""

    node = cluster[1]
    writer = Writer(node)
    await writer.write(20, size=20_000)
    for path in (OTHER_DIRECTORY, DIRECTORY, OTHER_DIRECTORY):
        assert await move(node, path) is ErrorCode.NONE
        await moved(node, path)
        cluster.unfence(1)  # the next metadata take names out of the note that are not needed
        await until(lambda: node.image.offset == cluster.image.offset)
    await writer.write(5)
    writer.check(await values(node))
    node.kill()
    cluster.fence(1)
    await node.start()
    assert node.manager.reports.unsynced() == [P0]
