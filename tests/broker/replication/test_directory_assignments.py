"""A broker tells the controller in which log directories its replicas are."""

from __future__ import annotations

import asyncio
import errno
import random

import pytest

from broker.replication import assignments
from metadata.directories import REPLICA_DIRECTORIES, UNASSIGNED
from metadata.partitions import NO_LEADER
from stele.errors import ErrorCode
from stele.ids import PartitionId, TopicPartition, decode_uuid
from stele.wire.v1 import metadata_pb2 as pb
from stele.wire.v1.controller_pb2 import (
    AssignReplicasToDirectoriesRequest,
    AssignReplicasToDirectoriesResponse,
)
from tests.support.directory_moves import (
    DIRECTORIES,
    KEY,
    Writer,
    crash,
    move,
    on_disk,
    place,
    values,
)
from tests.support.replica_cluster import (
    DIRECTORY,
    OTHER_DIRECTORY,
    P0,
    TOPIC,
    TOPIC_ID,
    Node,
    ReplicaCluster,
)
from tests.support.replication import settled, with_brokers
from tests.support.timing import until

Request = AssignReplicasToDirectoriesRequest
Response = AssignReplicasToDirectoriesResponse


def raise_level(cluster: ReplicaCluster, level: int = 5) -> None:
    feature = pb.FeatureLevelRecord(name="metadata.version", level=level)
    cluster.commit(pb.MetadataRecord(feature_level=feature))


def id_of(node: Node, path: str) -> bytes:
    return decode_uuid(node.directory_id(path))


def known(cluster: ReplicaCluster, partition: PartitionId = P0) -> bytes:
    return cluster.state(partition).directory_of(1)


async def all_told(cluster: ReplicaCluster) -> None:
    """Wait until the metadata have each replica of broker 1 where it is."""
    node = cluster[1]
    await until(
        lambda: (
            bool(list(node.manager))
            and all(
                known(cluster, each.id) == id_of(node, each.directory.path) for each in node.manager
            )
        )
    )


@with_brokers(brokers=1, directories=DIRECTORIES, log_dirs="/data,/other")
async def test_new_replicas_are_reported(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(assignments, "REPLICAS_PER_REQUEST", 2)

    raise_level(cluster)
    cluster.create_topic(*[[1]] * 5)
    await all_told(cluster)
    assert len(cluster.assignments) == 5, "each once"
    assert {path for _, path, _ in cluster.assignments} == {
        id_of(cluster[1], path) for path in DIRECTORIES
    }


@with_brokers(brokers=1, log_dirs="/data")
async def test_a_broker_with_one_directory_tells_nothing(cluster: ReplicaCluster) -> None:
    raise_level(cluster)
    cluster.create_topic([1])
    await settled(cluster)
    await asyncio.sleep(1.0)
    assert cluster.assignments == []
    # Unless the metadata name another directory, from which it was moved here.
    record = pb.PartitionChangeRecord(topic_id=TOPIC_ID)
    record.directories.ids.append(b"elsewhere-------")
    cluster.commit(pb.MetadataRecord(partition_change=record))
    await all_told(cluster)


@with_brokers(brokers=1, directories=DIRECTORIES, log_dirs="/data,/other")
async def test_all_replicas_are_reported_once_the_level_allows_it(cluster: ReplicaCluster) -> None:
    raise_level(cluster, 4)
    cluster.create_topic(*[[1]] * 3)
    await settled(cluster)
    await asyncio.sleep(1.0)
    assert cluster.assignments == []
    raise_level(cluster)
    await all_told(cluster)


@with_brokers(brokers=1, directories=DIRECTORIES, log_dirs="/data,/other")
async def test_an_unanswered_or_refused_report_is_repeated(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [Response(error=ErrorCode.STALE_BROKER_EPOCH), None]

    assign = cluster.assign_replicas

    def failing(request: Request) -> Response:
        if answers:
            answer = answers.pop()
            return answer or Response(error=ErrorCode.NOT_CONTROLLER)
        return assign(request)

    monkeypatch.setattr(cluster, "assign_replicas", failing)
    raise_level(cluster)
    cluster.create_topic([1])
    await all_told(cluster)
    assert not answers


@with_brokers(brokers=1, directories=DIRECTORIES, log_dirs="/data,/other")
async def test_a_late_copy_of_a_request_is_corrected(cluster: ReplicaCluster) -> None:
    raise_level(cluster)
    cluster.create_topic([1])
    await all_told(cluster)
    request = Request(broker_id=1)
    directory = request.directories.add(directory_id=id_of(cluster[1], OTHER_DIRECTORY))
    directory.replicas.add(topic_id=TOPIC_ID)
    assert place(cluster[1]) == DIRECTORY
    cluster.assign_replicas(request)
    assert known(cluster) == id_of(cluster[1], OTHER_DIRECTORY)
    await all_told(cluster)
    assert known(cluster) == id_of(cluster[1], DIRECTORY)


@with_brokers(brokers=1, directories=DIRECTORIES, log_dirs="/data,/other")
async def test_a_replica_whose_directory_fails_before_its_report_is_reported_then(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_level(cluster)
    assign = cluster.assign_replicas
    monkeypatch.setattr(
        cluster, "assign_replicas", lambda request: Response(error=ErrorCode.NOT_CONTROLLER)
    )
    cluster.create_topic([1])
    await until(cluster[1].holds)
    log = cluster[1].replica().log
    cluster[1].process.loop.call_soon(
        cluster[1].directory.failed, log, OSError(errno.EIO, "the device is gone")
    )
    await until(lambda: cluster[1].directory.offline is not None)
    assert cluster[1].manager.reports.failed_directories == [id_of(cluster[1], DIRECTORY)]
    assert known(cluster) == UNASSIGNED
    monkeypatch.setattr(cluster, "assign_replicas", assign)
    await all_told(cluster)
    assert known(cluster) == id_of(cluster[1], DIRECTORY)


@with_brokers(brokers=1, directories=DIRECTORIES, log_dirs="/data,/other")
async def test_a_move_acknowledges_nothing_before_the_controller_knows_the_new_place(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_level(cluster)
    cluster.create_topic([1])
    await all_told(cluster)
    node, assign = cluster[1], cluster.assign_replicas
    writer = Writer(node)
    await writer.write(10)
    monkeypatch.setattr(
        cluster, "assign_replicas", lambda request: Response(error=ErrorCode.NOT_CONTROLLER)
    )
    await move(node, OTHER_DIRECTORY)
    await until(lambda: place(node) == OTHER_DIRECTORY)
    writing = asyncio.ensure_future(writer.write())
    await asyncio.sleep(5.0)
    assert len(writer.acknowledged) == 10
    assert len(on_disk(node)) == 2, "the old log is there"
    monkeypatch.setattr(cluster, "assign_replicas", assign)
    await writing
    assert known(cluster) == id_of(node, OTHER_DIRECTORY)
    await until(lambda: on_disk(node) == [f"{OTHER_DIRECTORY}/{KEY}"])


@with_brokers(brokers=1, directories=DIRECTORIES, log_dirs="/data,/other")
async def test_an_end_while_the_new_place_is_not_known_leaves_the_old_log(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    raise_level(cluster)
    cluster.create_topic([1])
    await all_told(cluster)
    node, assign = cluster[1], cluster.assign_replicas
    writer = Writer(node)
    await writer.write(10)
    monkeypatch.setattr(
        cluster, "assign_replicas", lambda request: Response(error=ErrorCode.NOT_CONTROLLER)
    )
    await move(node, OTHER_DIRECTORY)
    await until(lambda: place(node) == OTHER_DIRECTORY)
    await asyncio.sleep(1.0)
    await node.stop()
    assert len(on_disk(node)) == 2
    monkeypatch.setattr(cluster, "assign_replicas", assign)
    await node.start()
    cluster.register(node)
    await until(lambda: node.holds() and node.replica().machine.is_leader)
    assert place(node) == DIRECTORY, "where the controller knows it"
    assert on_disk(node) == [f"{DIRECTORY}/{KEY}"]
    await writer.write(1)
    assert len(writer.acknowledged) == 11
    assert cluster.state().leader != NO_LEADER


@with_brokers(brokers=1, directories=DIRECTORIES, log_dirs="/data,/other")
async def test_a_move_ends_with_its_replica_while_the_controller_is_silent(
    cluster: ReplicaCluster,
) -> None:
    """Otherwise no other replica of the broker would move any more."""
    raise_level(cluster)
    cluster.create_topic([1], [1], min_insync=1)
    await all_told(cluster)
    node = cluster[1]
    asked = cluster.assign_replicas
    cluster.assign_replicas = lambda request: Response(error=ErrorCode.NOT_CONTROLLER)  # type: ignore[method-assign]
    source = place(node)
    (target,) = (each for each in DIRECTORIES if each != source)
    assert await move(node, target) is ErrorCode.NONE
    await until(lambda: place(node) == target)
    await asyncio.sleep(0.5)
    assert node.manager.moves.is_settling(P0)
    cluster.change(replicas=(7,), isr=(7,), leader=7)
    await until(lambda: not node.holds())
    await until(lambda: not node.manager.moves.is_settling(P0))
    cluster.assign_replicas = asked  # type: ignore[method-assign]
    other = PartitionId(TOPIC_ID, 1)
    source = node.replica(other).directory.path
    (target,) = (each for each in DIRECTORIES if each != source)
    assert await move(node, target, TopicPartition(TOPIC, 1)) is ErrorCode.NONE
    await until(lambda: node.replica(other).directory.path == target)


async def begin_to_settle(
    cluster: ReplicaCluster, replicas: tuple[int, ...] = (1,), *, level: int = 5
) -> Writer:
    """Write to a replica of broker 1, and move it. It uses its copy, which does not count yet: the
    disk is slow."""
    raise_level(cluster, level)
    cluster.create_topic(replicas, min_insync=1)
    node = cluster[1]
    await until(lambda: node.holds() and node.replica().machine.is_leader)
    if level >= 5:
        await all_told(cluster)
    assert place(node) == DIRECTORY
    writer = Writer(node)
    await writer.write(10)
    assert await move(node, OTHER_DIRECTORY) is ErrorCode.NONE
    node.disk.faults.extra_sync_s = 0.5
    await until(lambda: node.manager.moves.is_settling(P0))
    assert place(node) == OTHER_DIRECTORY
    return writer


async def fail_target(node: Node) -> None:
    target, copy = node.directories[1], node.replica().log
    node.process.loop.call_soon(target.failed, copy, OSError(errno.EIO, "the device is gone"))
    await until(lambda: target.offline is not None)


async def check_old_log_leads(cluster: ReplicaCluster, writer: Writer) -> None:
    """Kill broker 1. It leads again from the old log, where the controller knows it."""
    node = cluster[1]
    node.disk.faults.extra_sync_s = 0
    await crash(cluster, node, power=False)
    assert place(node) == DIRECTORY
    assert P0 in node.manager.reports.held()[known(cluster)]
    await writer.write()
    assert len(writer.acknowledged) == 11
    writer.check(await values(node))


@with_brokers(brokers=1, directories=DIRECTORIES, log_dirs="/data,/other")
async def test_a_change_of_the_partition_does_not_tell_a_copy_that_does_not_count(
    cluster: ReplicaCluster,
) -> None:
    writer = await begin_to_settle(cluster)
    node = cluster[1]
    cluster.commit(pb.MetadataRecord(partition_change=pb.PartitionChangeRecord(topic_id=TOPIC_ID)))
    await asyncio.sleep(0.1)
    assert node.manager.moves.is_settling(P0)
    assert known(cluster) == id_of(node, DIRECTORY)
    await check_old_log_leads(cluster, writer)


@with_brokers(brokers=1, directories=DIRECTORIES, log_dirs="/data,/other")
async def test_a_level_that_is_raised_meanwhile_tells_the_old_log_before_the_copy_counts(
    cluster: ReplicaCluster,
) -> None:
    writer = await begin_to_settle(cluster, level=4)
    node = cluster[1]
    raise_level(cluster)
    await all_told(cluster)
    assert cluster.assignments == [
        (1, id_of(node, DIRECTORY), P0),
        (1, id_of(node, OTHER_DIRECTORY), P0),
    ]
    await writer.write()
    assert len(writer.acknowledged) == 11


@with_brokers(brokers=1, directories=DIRECTORIES, log_dirs="/data,/other")
async def test_a_sole_replica_stays_with_its_old_log_if_the_target_fails_before_the_copy_counts(
    cluster: ReplicaCluster,
) -> None:
    writer = await begin_to_settle(cluster)
    node = cluster[1]
    await fail_target(node)
    await asyncio.sleep(0.1)
    assert known(cluster) == id_of(node, DIRECTORY)
    assert node.manager.reports.corrupt() == [], "nobody else has its records"
    assert (await node.produce()).error is ErrorCode.KAFKA_STORAGE_ERROR
    await check_old_log_leads(cluster, writer)


@with_brokers(brokers=2, directories=DIRECTORIES, log_dirs="/data,/other")
async def test_others_take_over_if_the_target_fails_before_the_copy_counts(
    cluster: ReplicaCluster,
) -> None:
    """The controller knows the replica in a directory that works, so it must hear of the move."""
    await begin_to_settle(cluster, (1, 2))
    node = cluster[1]
    await fail_target(node)
    await asyncio.sleep(0.1)
    assert known(cluster) == id_of(node, DIRECTORY)
    assert node.corrupt == [P0], "as soon as the directory has failed"
    cluster.change(isr=(2,), leader=2)
    await until(lambda: node.manager.reports.corrupt() == [])
    assert known(cluster) == id_of(node, DIRECTORY)


@with_brokers(brokers=2, directories=DIRECTORIES, log_dirs="/data,/other")
async def test_a_broker_without_directories_gives_up_no_old_log(cluster: ReplicaCluster) -> None:
    """It is fenced, so others take over. The old log counts again after a restart."""
    await begin_to_settle(cluster, (1, 2))
    node = cluster[1]
    node.process.loop.call_soon(node.directory.failed, node.replica().log, OSError(errno.EIO, ""))
    await until(lambda: node.directory.offline is not None)
    await fail_target(node)
    await asyncio.sleep(0.1)
    assert not node.manager.reports.has_online_directory
    assert node.corrupt == []


@with_brokers(brokers=2, directories=DIRECTORIES, log_dirs="/data,/other")
async def test_below_the_level_at_which_directories_mean_something_replicas_are_reported(
    cluster: ReplicaCluster,
) -> None:
    """The controller has given up what is in the failed directory, until it does not know
    directories any more."""
    raise_level(cluster, REPLICA_DIRECTORIES + 1)
    cluster.create_topic((1, 2), min_insync=1)
    await settled(cluster)
    node = cluster[1]
    directory = node.replica().directory
    node.process.loop.call_soon(directory.failed, node.replica().log, OSError(errno.EIO, ""))
    await until(lambda: directory.offline is not None)
    for level in (REPLICA_DIRECTORIES, REPLICA_DIRECTORIES + 1, REPLICA_DIRECTORIES):
        raise_level(cluster, level)
    cluster.unfence(2)  # a change of something else
    await until(lambda: node.image.offset == cluster.image.offset)
    assert node.corrupt == []
    raise_level(cluster, REPLICA_DIRECTORIES - 1)
    await until(lambda: node.image.offset == cluster.image.offset)
    assert node.corrupt == [P0]
    raise_level(cluster, REPLICA_DIRECTORIES - 2)
    await until(lambda: node.image.offset == cluster.image.offset)
    assert node.corrupt == [P0], "they are reported once"


@pytest.mark.parametrize("seed", range(20))
@with_brokers(brokers=1, directories=DIRECTORIES, log_dirs="/data,/other")
async def test_a_kill_at_any_time_of_a_move_leaves_the_log_where_the_controller_knows_it(
    cluster: ReplicaCluster, seed: int
) -> None:
    rng = random.Random(seed)
    raise_level(cluster)
    cluster.create_topic([1], min_insync=1)
    await all_told(cluster)
    node = cluster[1]
    await until(lambda: node.replica().machine.is_leader)
    writer = Writer(node)
    for _ in range(8):
        node.disk.faults.extra_sync_s = 0
        await writer.write(3)
        node.disk.faults.extra_sync_s = rng.uniform(0, 0.2)
        source = place(node)
        (target,) = (each for each in DIRECTORIES if each != source)
        await move(node, target)
        writing = asyncio.ensure_future(writer.write_on())
        for _ in range(rng.randrange(4)):
            await asyncio.sleep(rng.uniform(0, 0.2))
            change = pb.PartitionChangeRecord(topic_id=TOPIC_ID)
            cluster.commit(pb.MetadataRecord(partition_change=change))
        await asyncio.sleep(rng.uniform(0, 0.2))
        node.kill()
        writing.cancel()
        cluster.fence(1)
        told = known(cluster)
        await node.start()
        assert P0 in node.manager.reports.held()[told]
        cluster.register(node)
        await until(lambda: node.holds() and node.replica().machine.is_leader)
    writer.check(await values(node))
