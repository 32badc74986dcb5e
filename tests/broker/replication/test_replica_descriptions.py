"""A broker's descriptions of its directories and of the producers of its replicas."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Collection

import pytest

from broker.membership.directories import Unopened
from broker.replication import descriptions
from broker.replication.replica import ReplicaState
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId, TopicPartition, decode_uuid
from stele.wire.v1 import metadata_pb2 as pb
from tests.support import directory_moves
from tests.support.batches import make_batch
from tests.support.directory_moves import DIRECTORIES, SLOW, Writer, begun, move, place
from tests.support.replica_cluster import (
    DIRECTORY,
    OTHER_DIRECTORY,
    P0,
    TOPIC_ID,
    Node,
    ReplicaCluster,
)
from tests.support.replication import settled, with_brokers, with_topic
from tests.support.timing import until


@with_topic
async def test_directories_with_the_sizes_of_their_logs(cluster: ReplicaCluster) -> None:
    batch = make_batch(size=300)
    size = len(batch)
    await cluster[1].produce(batch)
    node = cluster[1]
    (directory,) = await node.manager.descriptions.directories(None)
    assert (directory.path, directory.error) == ("/data", ErrorCode.NONE)
    (replica,) = directory.replicas
    assert (replica.topic, replica.partition) == ("orders", 0)
    assert (replica.size_bytes, replica.offset_lag) == (size, 0)
    assert directory.total_bytes - directory.usable_bytes == node.disk.used_bytes()
    (directory,) = await node.manager.descriptions.directories({("orders", 1)})
    assert directory.replicas == []
    node.disk.faults.failing_sync = True
    await node.produce()
    (directory,) = await node.manager.descriptions.directories(None)
    assert directory.error is ErrorCode.KAFKA_STORAGE_ERROR
    (lost,) = directory.replicas
    assert (lost.topic, lost.partition, lost.size_bytes, lost.offset_lag) == ("orders", 0, -1, -1)
    with pytest.raises(ApiError) as refused:
        node.manager.descriptions.producers(P0)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@with_topic
async def test_high_watermarks_of_what_is_led(cluster: ReplicaCluster) -> None:
    await cluster[1].produce()
    name = TopicPartition("orders", 0)
    assert [*cluster[1].manager.measures.high_watermarks()] == [
        (name, cluster[1].replica().log.end_offset)
    ]
    assert [*cluster[2].manager.measures.high_watermarks()] == []


@with_topic
async def test_what_is_being_deleted_is_not_described(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in Kafka: neither a replica that is removed during the description, nor one whose files
    could not be deleted yet."""
    monkeypatch.setattr(descriptions, "TURN_REPLICAS", 1)

    def refuse(source: str, target: str) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory", source)

    await cluster[1].produce()
    node = cluster[1]
    monkeypatch.setattr(node.process.world.disk, "rename", refuse)
    under_way = node.manager.descriptions.directories(None)
    under_way.send(None)  # it has the replicas, and lets others run before it looks at them
    cluster.delete_topic()
    await until(lambda: not node.holds())
    with pytest.raises(StopIteration) as ended:
        under_way.send(None)
    for (directory,) in (ended.value.value, await node.manager.descriptions.directories(None)):
        assert (directory.error, directory.replicas) == (ErrorCode.NONE, [])
    assert list(node.directory.logs) == [("orders", 0)], "which is still to be deleted"


@with_topic
async def test_producers_of_leader_and_follower(cluster: ReplicaCluster) -> None:
    await cluster[1].produce(make_batch(producer=(7, 1, 0)))
    for node in (cluster[1], cluster[2]):
        (entry,) = node.manager.descriptions.producers(P0)
        assert (entry.producer_id, entry.epoch, entry.last_sequence) == (7, 1, 0)
    with pytest.raises(ApiError) as refused:
        cluster[1].manager.descriptions.producers(PartitionId(P0.topic_id, 9))
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def told(
    node: Node, wanted: Collection[tuple[str, int]] | None
) -> dict[str, list[tuple[int, bool]]]:
    """The number of each replica that is described, and whether it is a copy, by directory."""
    found = await node.process.run(node.manager.descriptions.directories(wanted))
    return {
        each.path: [(replica.partition, replica.is_future) for replica in each.replicas]
        for each in found
    }


@directory_moves.with_topic((1,), (1,), settings=SLOW)
async def test_only_the_replicas_that_are_asked_for_are_described(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    source, target = place(node), next(path for path in DIRECTORIES if path != place(node))
    other = node.replica(PartitionId(TOPIC_ID, 1)).directory.path
    await Writer(node).write(40, size=20_000)
    await move(node, target)
    await begun(node, target)

    def expected(*replicas: tuple[str, int, bool]) -> dict[str, list[tuple[int, bool]]]:
        return {
            path: [(number, is_future) for where, number, is_future in replicas if where == path]
            for path in DIRECTORIES
        }

    first = (source, 0, False), (target, 0, True)
    second = (other, 1, False)
    assert await told(node, {("orders", 0)}) == expected(*first)
    assert await told(node, {("orders", 1)}) == expected(second)
    assert await told(node, {("another", 0)}) == expected()
    assert await told(node, set()) == expected()
    everything = await told(node, None)
    assert {path: sorted(each) for path, each in everything.items()} == {
        path: sorted(each) for path, each in expected(*first, second).items()
    }


@pytest.mark.parametrize("is_known", [True, False])
@with_brokers(brokers=1, directories=DIRECTORIES, log_dirs="/data,/other")
async def test_replicas_in_a_directory_that_is_not_open_are_described_without_sizes(
    cluster: ReplicaCluster, is_known: bool
) -> None:
    """Where it is known which one of the directories that are not open it is."""
    level = pb.FeatureLevelRecord(name="metadata.version", level=5)
    cluster.commit(pb.MetadataRecord(feature_level=level))
    cluster.create_topic((1,), (1,))
    await settled(cluster)
    node = cluster[1]
    at = {each.id.partition: each.directory.path for each in node.manager}
    assert sorted(at.values()) == [DIRECTORY, OTHER_DIRECTORY]
    (lost,) = [number for number, path in at.items() if path == OTHER_DIRECTORY]
    await until(
        lambda: all(
            cluster.state(PartitionId(TOPIC_ID, number)).directory_of(1)
            == decode_uuid(node.directory_id(path))
            for number, path in at.items()
        )
    )
    await node.stop()
    cluster.fence(1)
    directory_id = decode_uuid(node.directory_id(OTHER_DIRECTORY))
    node.unopened = [
        Unopened(OTHER_DIRECTORY, directory_id if is_known else None, "it cannot be read"),
        *([] if is_known else [Unopened("/third", None, "it cannot be read, either")]),
    ]
    await node.start()
    cluster.register(node)
    kept = 1 - lost
    await until(lambda: node.holds(PartitionId(TOPIC_ID, kept)))
    await asyncio.sleep(0.1)
    described = await node.process.run(node.manager.descriptions.directories(None))
    by_path = {each.path: each for each in described}
    if not is_known:
        assert by_path.keys() == {DIRECTORY, OTHER_DIRECTORY, "/third"}
        assert [each.partition for each in by_path[DIRECTORY].replicas] == [kept]
        assert by_path[OTHER_DIRECTORY].replicas == by_path["/third"].replicas == []
        return
    assert by_path.keys() == {DIRECTORY, OTHER_DIRECTORY}
    assert by_path[DIRECTORY].error is ErrorCode.NONE
    assert by_path[OTHER_DIRECTORY].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert by_path[OTHER_DIRECTORY].usable_bytes == -1
    (replica,) = by_path[OTHER_DIRECTORY].replicas
    assert (replica.partition, replica.size_bytes, replica.offset_lag) == (lost, -1, -1)
    nothing: list[tuple[int, bool]] = []
    assert await told(node, {("orders", lost)}) == {
        DIRECTORY: nothing,
        OTHER_DIRECTORY: [(lost, False)],
    }
    assert await told(node, {("orders", kept)}) == {
        DIRECTORY: [(kept, False)],
        OTHER_DIRECTORY: nothing,
    }
    refused = await node.produce(partition=PartitionId(TOPIC_ID, lost))
    assert refused.error is ErrorCode.KAFKA_STORAGE_ERROR
    for number, path in ((lost, DIRECTORY), (kept, OTHER_DIRECTORY)):
        error = await move(node, path, TopicPartition("orders", number))
        assert error is ErrorCode.KAFKA_STORAGE_ERROR


@with_topic
async def test_a_leader_with_records_above_its_high_watermark_lags_behind_nobody(
    cluster: ReplicaCluster,
) -> None:
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    node = cluster[1]
    await node.produce(make_batch(3), acks=1)
    assert node.replica().machine.high_watermark == 0
    (directory,) = await node.process.run(node.manager.descriptions.directories(None))
    assert [each.offset_lag for each in directory.replicas] == [0]


@with_topic
async def test_a_producer_is_described_by_the_leader_of_that_epoch_alone(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce(make_batch(producer=(7, 1, 0)))
    leader = cluster[1].manager.descriptions
    for epoch in (-1, 0):
        known = leader.producer(P0, 7, epoch)
        assert known.entry is not None
        assert (known.entry.last_sequence, known.high_watermark) == (0, 1)
        assert leader.producer(P0, 8, epoch).entry is None

    def refusal(node: Node, epoch: int = -1) -> ErrorCode:
        with pytest.raises(ApiError) as refused:
            node.manager.descriptions.producer(P0, 7, epoch)
        return refused.value.code

    assert refusal(cluster[2]) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(cluster[1], 1) is ErrorCode.UNKNOWN_LEADER_EPOCH
    cluster[1].lease = False
    assert refusal(cluster[1]) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster[1].lease = True
    node = cluster[1]
    node.process.loop.call_soon(node.manager.take_down, node.replica(), ReplicaState.OFFLINE)
    await until(lambda: node.replica().state is ReplicaState.OFFLINE)
    assert refusal(node) is ErrorCode.KAFKA_STORAGE_ERROR
