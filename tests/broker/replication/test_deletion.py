"""DeleteRecords: in the partition machine, over replicas, and by the API."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.partition.effects import Acknowledged, Proposed, Refused
from broker.replication.deletion import Deletion, DeletionResult
from broker.replication.replica import ReplicaState
from metadata.topic_config import TopicConfig
from stele.errors import ApiError, ErrorCode
from stele.ids import PartitionId
from stele.wire.batch import batches
from stele.wire.kafka.messages import delete_records as wire
from tests.support.batches import make_batch
from tests.support.broker import leading, of, state
from tests.support.broker_apis import Edges, topic_id
from tests.support.replica_cluster import ReplicaCluster
from tests.support.replication import with_topic
from tests.support.timing import until
from tests.support.worlds import virtual

# --------------------------------------------------------------------------------- the machine


def test_only_what_is_committed_can_be_deleted() -> None:
    bench = leading()
    bench.append(10, durable=True)
    for broker_id in (2, 3):
        bench.fetch(broker_id, 6)
    assert bench.machine.high_watermark == 6
    assert [bench.machine.deletable(offset) for offset in (0, 4, 6, -1)] == [0, 4, 6, 6]
    for offset in (7, 10, -2):
        with pytest.raises(ApiError) as refused:
            bench.machine.deletable(offset)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    bench.delete(4, "first")
    assert bench.machine.deletable(2) == 4, "the start never moves back"
    bench.update(state(leader=2, epoch=6, partition_epoch=11))
    with pytest.raises(ApiError) as refused:
        bench.machine.deletable(4)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_deletion_waits_for_all_replicas_that_may_lead() -> None:
    bench = leading(isr=(1, 2))
    bench.append(10, durable=True)
    bench.fetch(2, 10)
    bench.eligible[3] = False
    bench.fetch(3, 2)  # neither in sync nor alive
    assert of(Acknowledged, bench.delete(5, "deleted")) == []
    assert of(Acknowledged, bench.fetch(2, 10, start=4)) == []
    assert bench.machine.low_watermark == 4
    assert of(Acknowledged, bench.fetch(2, 10, start=5)) == [Acknowledged(("deleted",))]


def test_who_leaves_the_isr_is_waited_for_no_more() -> None:
    bench = leading(isr=(1, 2, 3))
    bench.append(10, durable=True)
    for broker_id in (2, 3):
        bench.fetch(broker_id, 10)
    bench.delete(-1, "deleted")
    bench.fetch(2, 10, start=10)
    bench.eligible[3] = False
    bench.machine.broker_changed(3, bench.status(3), bench.now_ms)
    effects = bench.update(state(isr=(1, 2), partition_epoch=11))
    assert of(Acknowledged, effects) == [Acknowledged(("deleted",))]


def test_a_deletion_ends_with_the_leadership() -> None:
    bench = leading(isr=(1, 2, 3))
    bench.append(10, durable=True)
    for broker_id in (2, 3):
        bench.fetch(broker_id, 10)
    bench.delete(3, "deleted")
    effects = bench.update(state(leader=2, epoch=6, partition_epoch=11))
    assert of(Refused, effects) == [Refused(("deleted",), ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_who_begins_earlier_than_the_leader_does_not_join() -> None:
    bench = leading(isr=(1, 2))
    bench.append(10, durable=True)
    bench.fetch(2, 10)
    bench.delete(4, "deleted")
    assert of(Proposed, bench.fetch(3, 10, start=3)) == []
    assert of(Proposed, bench.fetch(3, 10, start=4))


@given(
    starts=st.lists(st.tuples(st.sampled_from([2, 3]), st.integers(0, 10)), max_size=12),
    wanted=st.lists(st.integers(0, 10), min_size=1, max_size=4),
)
def test_deletions_are_acknowledged_as_the_twin_says(
    starts: list[tuple[int, int]], wanted: list[int]
) -> None:
    bench = leading(isr=(1, 2, 3))
    bench.append(10, durable=True)
    told = {2: 0, 3: 0}
    for broker_id in told:
        bench.fetch(broker_id, 10)
    waiting: dict[str, int] = {}
    answered: set[str] = set()

    def observe(effects: list[object]) -> None:
        for effect in effects:
            if isinstance(effect, Acknowledged):
                answered.update(str(token) for token in effect.tokens)
        least = min(told.values())
        assert answered == {token for token, offset in waiting.items() if offset <= least}

    for number, offset in enumerate(wanted):
        waiting[str(number)] = max([offset, *waiting.values()])
        observe([*bench.delete(offset, str(number))])
    for broker_id, start in starts:
        told[broker_id] = max(start, told[broker_id])  # a log's start never moves back
        observe([*bench.fetch(broker_id, 10, start=told[broker_id])])


# -------------------------------------------------------------------------------- the replicas


async def write(cluster: ReplicaCluster, count: int) -> None:
    for _ in range(count):
        assert (await cluster[1].produce(make_batch(3))).error is ErrorCode.NONE


@with_topic
async def test_deleted_records_are_gone_everywhere_and_stay_so(cluster: ReplicaCluster) -> None:
    await write(cluster, 4)
    assert await cluster[1].delete(5) == DeletionResult(ErrorCode.NONE, 5)
    assert [cluster[each].starts() for each in (1, 2, 3)] == [(5, 5)] * 3
    assert (await cluster[1].fetch(4)).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await cluster[1].fetch(5)).error is ErrorCode.NONE
    for node in cluster.nodes.values():
        cluster.simulation.power_off(node.name)
    for node in cluster.nodes.values():
        cluster.simulation.power_on(node.name)
        await node.start()
        log = node.directory.get("orders", 0)
        assert log is not None
        assert log.start_offset == 5


@with_topic
async def test_the_new_leader_has_deleted_them_too(cluster: ReplicaCluster) -> None:
    await write(cluster, 2)
    assert (await cluster[1].delete(-1)).low_watermark == 6
    cluster[1].kill()
    cluster.fence(1)
    await until(lambda: cluster[2].replica().machine.is_leader)
    assert (await cluster[2].fetch(3)).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await cluster[2].produce()).base_offset == 6


@with_topic
async def test_a_replica_that_is_down_is_not_waited_for_and_learns_it_when_it_is_back(
    cluster: ReplicaCluster,
) -> None:
    await write(cluster, 2)
    cluster[3].kill()
    assert (await cluster[1].delete(4, timeout_ms=500)).error is ErrorCode.REQUEST_TIMED_OUT
    assert (await cluster[1].fetch(3)).error is ErrorCode.OFFSET_OUT_OF_RANGE, "all the same"
    cluster.fence(3)
    assert await cluster[1].delete(5) == DeletionResult(ErrorCode.NONE, 5)
    await cluster[3].start()
    cluster.register(cluster[3])
    await until(lambda: 3 in cluster.state().isr)
    assert cluster[3].starts() == (5, 5)


@pytest.mark.parametrize("is_lost", [True, False])
@with_topic
async def test_a_replica_that_begins_anew_within_a_batch_joins(
    cluster: ReplicaCluster, is_lost: bool
) -> None:
    """The leader's log begins in the middle of a batch, and the leader sends the whole batch."""

    await write(cluster, 1)
    cluster[3].kill()
    cluster.fence(3)
    await write(cluster, 3)
    assert (await cluster[1].delete(5)).low_watermark == 5
    if is_lost:
        cluster[3].disk.lose("/data")
    await cluster[3].start()
    cluster.register(cluster[3])
    await until(lambda: 3 in cluster.state().isr)
    assert cluster[3].starts() == (5, 5)
    cluster.change(leader=3)
    await until(lambda: cluster[3].replica().machine.is_leader)
    assert (await cluster[3].fetch(4)).error is ErrorCode.OFFSET_OUT_OF_RANGE
    (records,) = (await cluster[3].fetch(5)).records
    (_, first), *_ = batches(records)
    assert (first.base_offset, first.last_offset) == (3, 5)
    assert (await cluster[3].produce()).base_offset == 12


@pytest.mark.parametrize("after_s", [0.0, 0.001, 0.002, 0.004, 0.008, 0.02])
@with_topic
async def test_a_loss_of_power_while_it_begins_anew_does_not_matter(
    cluster: ReplicaCluster, after_s: float
) -> None:
    cluster[3].kill()
    cluster.fence(3)
    await write(cluster, 4)
    assert (await cluster[1].delete(5)).low_watermark == 5
    await cluster[3].start()
    cluster.register(cluster[3])
    await until(lambda: cluster[3].holds() and cluster[3].replica().log.end_offset > 3)
    await asyncio.sleep(after_s)
    cluster.simulation.power_off(cluster[3].name)
    cluster.fence(3)
    cluster.simulation.power_on(cluster[3].name)
    await cluster[3].start()
    cluster.register(cluster[3])
    await until(lambda: 3 in cluster.state().isr)
    assert cluster[3].starts() == (5, 5)
    assert cluster[3].replica().log.end_offset == 12
    assert cluster[3].corrupt == []


@with_topic
async def test_refused(cluster: ReplicaCluster) -> None:
    await write(cluster, 1)
    assert (await cluster[1].delete(4)).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (await cluster[2].delete(1)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    elsewhere = PartitionId(bytes(16), 0)
    result = await cluster[1].delete(1, partition=elsewhere)
    assert result.error is ErrorCode.UNKNOWN_TOPIC_ID
    cluster[1].lease = False
    assert (await cluster[1].delete(1)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@with_topic
async def test_nothing_is_deleted_from_a_log_that_is_offline(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    await write(cluster, 1)
    node.process.loop.call_soon(node.manager.take_down, node.replica(), ReplicaState.OFFLINE)
    await until(lambda: node.replica().state is ReplicaState.OFFLINE)
    assert (await node.delete(1)).error is ErrorCode.KAFKA_STORAGE_ERROR


@with_topic
async def test_a_leader_that_is_deposed_while_it_writes_the_start_says_so_at_once(
    cluster: ReplicaCluster,
) -> None:
    await write(cluster, 1)
    node = cluster[1]
    node.disk.faults.extra_sync_s = 0.5
    began = cluster.simulation.now
    deleting = asyncio.ensure_future(node.delete(1))
    await until(lambda: node.replica().log.start_offset == 1)
    cluster.change(leader=2)
    assert (await deleting).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.simulation.now < began + 5, "it does not wait for the time-out"


@with_topic
async def test_a_topic_that_is_only_compacted_keeps_its_records(cluster: ReplicaCluster) -> None:
    replica = cluster[1].replica()
    values = {**vars(replica.config), "cleanup_policy": ("compact",)}
    replica.config = TopicConfig(lambda key: values[key.name.replace(".", "_")])
    assert (await cluster[1].delete(-1)).error is ErrorCode.POLICY_VIOLATION


@with_topic
async def test_a_full_disk_does_not_promise_what_it_cannot_keep(cluster: ReplicaCluster) -> None:
    await write(cluster, 1)
    disk = cluster[1].disk
    disk.faults.quota_bytes = disk.used_bytes()
    assert (await cluster[1].delete(1)).error is ErrorCode.KAFKA_STORAGE_ERROR
    disk.faults.quota_bytes = None
    follower = cluster[2].disk
    follower.faults.quota_bytes = follower.used_bytes()
    deleting = asyncio.ensure_future(cluster[1].delete(2))
    await asyncio.sleep(3)
    assert not deleting.done()
    follower.faults.quota_bytes = None
    assert await deleting == DeletionResult(ErrorCode.NONE, 2)


# ------------------------------------------------------------------------------------- the API


@pytest.mark.parametrize("version", range(3))
@virtual
async def test_each_partition_is_answered(version: int) -> None:
    edges = Edges()
    edges.add_topic("a", [[1], [1], [1]])
    request = wire.DeleteRecordsRequest(
        [
            wire.DeleteRecordsTopic(
                "a",
                [
                    wire.DeleteRecordsPartition(0, 5),
                    wire.DeleteRecordsPartition(1, -1),
                    wire.DeleteRecordsPartition(9, 0),
                    wire.DeleteRecordsPartition(2, 1),
                    wire.DeleteRecordsPartition(2, 2),
                ],
            ),
            wire.DeleteRecordsTopic("x", [wire.DeleteRecordsPartition(0, 5)]),
        ],
        timeout_ms=1234,
    )
    answer = await edges.client().call(wire.API, version, request)
    assert [
        (topic.name, each.partition_index, each.low_watermark, each.error_code)
        for topic in answer.topics
        for each in topic.partitions
    ] == [
        ("a", 0, 7, ErrorCode.NONE),
        ("a", 1, 7, ErrorCode.NONE),
        ("a", 9, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a", 2, -1, ErrorCode.INVALID_REQUEST),
        ("a", 2, -1, ErrorCode.INVALID_REQUEST),
        ("x", 0, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    known = PartitionId(topic_id("a"), 0), PartitionId(topic_id("a"), 1)
    deletions = [Deletion(known[0], 5), Deletion(known[1], -1)]
    assert edges.replicas.deletion.deleted == [(deletions, 1234)]
