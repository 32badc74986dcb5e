"""Followers, leaders deposed and topics changed, over three brokers on simulated disks."""

from __future__ import annotations

import asyncio

import pytest

from broker.replication.types import FetchEntry
from metadata.partitions import RECOVERING
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.batches import make_batch
from tests.support.fetches import AskedFetch
from tests.support.replica_cluster import P0, TOPIC, ReplicaCluster
from tests.support.replication import ends, with_topic, write_apart
from tests.support.timing import until


@with_topic
async def test_a_replica_cut_off_leaves_the_isr_and_comes_back(cluster: ReplicaCluster) -> None:
    cluster.simulation.fabric.isolate("b3", ["b1", "b2"])
    start = cluster.simulation.now
    result = await cluster[1].produce()
    assert result.error is ErrorCode.NONE
    assert 9.0 < cluster.simulation.now - start < 12.0
    assert cluster.state().isr == (1, 2)
    await cluster[1].produce()
    cluster.simulation.fabric.heal()
    await until(lambda: cluster.state().isr == (1, 2, 3))
    assert ends(cluster, 3) == [2]
    counters = cluster[1].manager.measures.counters()
    assert (counters.isr_expands_total, counters.isr_shrinks_total) == (1, 1)


@with_topic
async def test_a_restarted_follower_joins_again(cluster: ReplicaCluster) -> None:
    await cluster[1].produce()
    cluster[3].kill()
    cluster.fence(3)
    assert (await cluster[1].produce()).error is ErrorCode.NONE
    await cluster[3].start()
    cluster.register(cluster[3])
    await until(lambda: cluster.state().isr == (1, 2, 3))
    assert ends(cluster, 3) == [2]
    assert cluster[1].manager.measures.counters().isr_expands_total == 1


@with_topic
async def test_a_deposed_leader_cuts_its_diverging_tail(cluster: ReplicaCluster) -> None:
    await cluster[1].produce()
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    await write_apart(cluster, cluster[1], 3)
    cluster.fence(1, tell=False)
    await until(lambda: cluster[2].replica().machine.is_leader)
    assert (await cluster[2].produce(make_batch(2))).error is ErrorCode.NONE
    assert ends(cluster, 1, 2, 3) == [4, 3, 3]
    cluster.simulation.fabric.heal()
    cluster.tell(cluster[1])
    await until(lambda: ends(cluster, 1) == [3])
    assert cluster[1].replica().log.epochs.entries == [(0, 0), (1, 1)]
    assert cluster[1].replica().machine.high_watermark >= 1


@with_topic(min_insync=1)
async def test_two_deposed_leaders_find_common_ground_over_several_epochs(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce()
    cluster.simulation.fabric.partition(["b1"], ["b2"], ["b3"])
    await write_apart(cluster, cluster[1], 4)
    cluster.change(leader=2, to=(2,))
    await until(lambda: cluster[2].replica().machine.is_leader)
    await write_apart(cluster, cluster[2], 2)
    cluster.change(leader=1, isr=(1,), to=(1,))
    await until(lambda: cluster[1].replica().machine.leader_epoch == 2)
    await write_apart(cluster, cluster[1], 2)
    cluster.simulation.fabric.heal()
    cluster.change(leader=3, isr=(3,), unclean=True)
    await until(lambda: cluster.state().isr == (1, 2, 3))
    assert ends(cluster, 1, 2, 3) == [1, 1, 1]
    assert (await cluster[3].produce()).error is ErrorCode.NONE
    assert all(cluster[each].replica().log.epochs.entries == [(0, 0), (3, 1)] for each in (1, 2, 3))


@with_topic
async def test_a_leader_that_wrote_nothing_in_its_epoch_can_follow_afterwards(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce()
    for leader in (2, 3, 1, 2):
        cluster.change(leader=leader)
        await until(lambda: cluster[leader].replica().machine.is_leader)  # noqa: B023
    await until(lambda: cluster.state().isr == (1, 2, 3))
    assert (await cluster[2].produce()).error is ErrorCode.NONE
    assert ends(cluster, 1, 2, 3) == [2, 2, 2]


@with_topic
async def test_a_new_leader_hears_only_durable_ends(cluster: ReplicaCluster) -> None:
    """Records of the previous leader may still be on their way to the disk."""

    await cluster[1].produce()
    await until(lambda: cluster[2].replica().machine.high_watermark == 1)
    cluster.simulation.machine("b3").disk.faults.sync_s = 3.0, 3.0
    writing = asyncio.create_task(cluster[1].produce())
    await until(lambda: ends(cluster, 2, 3) == [2, 2])
    await until(lambda: cluster[2].replica().log.durable_offset == 2)
    cluster.change(leader=2)
    await until(lambda: cluster[2].replica().machine.is_leader)
    log, leader = cluster[3].replica().log, cluster[2].replica().machine
    while log.durable_offset < 2:
        assert leader.high_watermark == 1
        await asyncio.sleep(0.01)
    await until(lambda: leader.high_watermark == 2)
    await writing


@with_topic(segment_bytes="1024", retention_bytes="1024")
async def test_a_follower_below_the_leaders_start_begins_anew_there(
    cluster: ReplicaCluster,
) -> None:
    cluster[3].kill()
    cluster.fence(3)
    for _ in range(6):
        await cluster[1].produce(make_batch(size=600))
    await until(lambda: cluster[1].replica().machine.high_watermark == 6)
    log = cluster[1].replica().log
    interval_s = cluster.config.log_retention_check_interval_ms / 1000
    await until(lambda: log.start_offset > 0, within_s=interval_s)
    start = log.start_offset
    await cluster[3].start()
    cluster.register(cluster[3])
    await until(lambda: cluster.state().isr == (1, 2, 3))
    log = cluster[3].replica().log
    assert (log.start_offset, log.end_offset) == (start, 6)
    assert (await cluster[1].produce()).error is ErrorCode.NONE
    assert (await cluster[1].fetch(0)).error is ErrorCode.OFFSET_OUT_OF_RANGE


@with_topic(segment_bytes="1024", retention_bytes="1024")
async def test_a_replica_that_began_anew_recognizes_a_repeated_batch(
    cluster: ReplicaCluster,
) -> None:
    """The batch is deleted on all replicas. The replica that leads now has never had it."""
    cluster[3].kill()
    cluster.fence(3)

    def sent() -> bytearray:
        return make_batch(producer=(7, 0, 0))

    assert (await cluster[1].produce(sent())).base_offset == 0
    for _ in range(6):
        await cluster[1].produce(make_batch(size=600))
    log = cluster[1].replica().log
    interval_s = cluster.config.log_retention_check_interval_ms / 1000
    await until(lambda: log.start_offset > 0, within_s=interval_s)
    await cluster[3].start()
    cluster.register(cluster[3])
    await until(lambda: cluster.state().isr == (1, 2, 3))
    await cluster[3].stop()
    await cluster[3].start()
    cluster.register(cluster[3])
    await until(lambda: cluster.state().isr == (1, 2, 3))
    cluster.change(leader=3)
    await until(lambda: cluster[3].replica().machine.is_leader)
    assert cluster[3].replica().log.start_offset > 0
    again = await cluster[3].produce(sent())
    assert (again.error, again.base_offset) == (ErrorCode.NONE, 0)
    assert cluster[3].replica().log.end_offset == 7


@with_topic(segment_bytes="1024", retention_ms="-1")
async def test_nothing_is_deleted_by_retention_before_the_metadata_tell_what_may_be(
    cluster: ReplicaCluster,
) -> None:
    """The records are older than the default allows, but the topic keeps records for ever."""

    node = cluster[1]
    for _ in range(6):
        await node.produce(make_batch(size=600))
    await until(lambda: node.replica().machine.high_watermark == 6)
    await node.stop()
    node.epoch = -1  # it is not registered yet, and hears nothing
    await node.start()
    await asyncio.sleep(cluster.config.log_retention_check_interval_ms / 1000 + 1)
    (log,) = node.directory.logs.values()
    assert (log.start_offset, log.segment_bases[0]) == (0, 0)


@with_topic
async def test_a_follower_that_ends_at_the_leaders_start_in_a_forgotten_epoch_begins_anew(
    cluster: ReplicaCluster,
) -> None:
    """Its last record was never committed, and the leader has deleted the committed one."""

    await cluster[1].produce()
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    await write_apart(cluster, cluster[1], 1)
    cluster.fence(1, tell=False)
    await until(lambda: cluster[2].replica().machine.is_leader)
    for _ in range(2):
        assert (await cluster[2].produce()).error is ErrorCode.NONE
    assert ends(cluster, 1, 2, 3) == [2, 3, 3]
    leading = cluster[2].replica()
    leading.log.advance_start_offset(2)
    leading.machine.started_at(leading.position)
    cluster.simulation.fabric.heal()
    cluster.tell(cluster[1])
    await until(lambda: ends(cluster, 1) == [3])
    log = cluster[1].replica().log
    assert (log.segments.bases, log.start_offset) == ([2], 2)
    assert log.epochs.entries == [(1, 2)]


@with_topic
async def test_a_deleted_topic_takes_its_logs_with_it(cluster: ReplicaCluster) -> None:
    fetching = asyncio.ensure_future(cluster[1].fetch(0, max_wait_ms=60_000))
    await cluster[1].produce()
    await fetching
    fetching = asyncio.ensure_future(cluster[1].fetch(1, max_wait_ms=60_000))
    await asyncio.sleep(0.1)
    cluster.delete_topic()
    assert (await fetching).error is ErrorCode.UNKNOWN_TOPIC_ID
    assert (await cluster[1].produce()).error is ErrorCode.UNKNOWN_TOPIC_ID
    assert all(not node.directory.logs for node in cluster.nodes.values())


@with_topic
async def test_a_topic_deleted_while_the_broker_was_down_is_deleted_at_its_start(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce()
    cluster[3].kill()
    cluster.fence(3)
    cluster.delete_topic()
    await cluster[3].start()
    assert len(cluster[3].directory.logs) == 1
    cluster.register(cluster[3])
    await until(lambda: not cluster[3].directory.logs)


@with_topic
async def test_a_restart_leads_again_only_in_a_higher_epoch_with_all_that_was_there(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce(make_batch(4))
    await cluster[1].stop()
    await cluster[1].start()
    assert cluster[1].directory.clean_shutdown
    assert cluster[1].directory.previous_broker_epoch == cluster[1].epoch
    cluster.register(cluster[1])
    await until(lambda: cluster.state().isr == (1, 2, 3))
    assert cluster[1].replica().machine.leader_epoch == 1
    cluster.change(leader=1)
    await until(lambda: cluster[1].replica().machine.is_leader)
    result = await cluster[1].produce()
    assert (result.error, result.base_offset) == (ErrorCode.NONE, 4)


@with_topic
async def test_stopping_answers_waiters(cluster: ReplicaCluster) -> None:
    fetching = asyncio.ensure_future(cluster[1].fetch(0, max_wait_ms=60_000))
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    producing = asyncio.ensure_future(cluster[1].produce())
    await asyncio.sleep(0.1)
    await cluster[1].process.run(cluster[1].manager.stop())
    assert (await fetching).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (await producing).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@with_topic
async def test_nothing_is_copied_any_more_while_the_log_is_closed(cluster: ReplicaCluster) -> None:
    """Metadata that arrive during a stop must not make a partition followed again: what is written
    then is not covered by the files of the clean shutdown."""

    await cluster[1].produce()
    node = cluster[3]
    log = node.directory.get(TOPIC, 0)
    assert log is not None
    await until(lambda: log.durable_offset == 1)
    node.disk.faults.sync_s = 0.1, 0.1
    stopping = asyncio.ensure_future(node.process.run(node.manager.stop()))
    await asyncio.sleep(0.05)
    cluster.change(leader=2)
    await until(lambda: cluster[2].replica().machine.is_leader)
    await cluster[2].produce(acks=1)
    await stopping
    assert log.end_offset == 1


@with_topic
async def test_a_changed_minimum_takes_effect(cluster: ReplicaCluster) -> None:
    record = pb.ConfigRecord(
        resource_type=pb.ConfigResourceType.TOPIC,
        resource_name="orders",
        name="min.insync.replicas",
        value="3",
    )
    cluster.commit(pb.MetadataRecord(config=record))
    cluster.change(isr=(1, 2))
    cluster.simulation.fabric.isolate("b3", ["b1"])
    await until(lambda: cluster[1].replica().machine.state.isr == (1, 2))
    assert (await cluster[1].produce()).error is ErrorCode.NOT_ENOUGH_REPLICAS


class _NotNow(AskedFetch):
    """A consumer that is to wait first."""

    def admits(self, read_bytes: int) -> bool:
        self.asked_bytes = read_bytes
        return False


@with_topic
async def test_what_a_consumer_does_not_get_is_not_counted(cluster: ReplicaCluster) -> None:
    await cluster[1].produce()
    asked = _NotNow([FetchEntry(P0, 0, 1 << 20)], lambda results: pytest.fail("an answer"))

    async def inside() -> None:
        cluster[1].manager.fetch.begin(asked)

    await cluster[1].process.run(inside())
    assert asked.asked_bytes == len(make_batch())
    assert not asked.is_open
    assert cluster[1].manager.measures.counters().bytes_out == 0
    ((_, traffic),) = cluster[1].manager.measures.traffic()
    assert traffic.bytes_out == 0


@with_topic
async def test_bytes_and_states_are_counted(cluster: ReplicaCluster) -> None:
    size = len(make_batch())
    await cluster[1].produce()
    await cluster[1].fetch(0)
    await cluster[2].produce()
    leader, follower = (
        cluster[1].manager.measures.counters(),
        cluster[2].manager.measures.counters(),
    )
    assert (leader.messages_in, follower.messages_in) == (1, 0)
    assert (leader.bytes_in, leader.bytes_out) == (size, size)
    assert (leader.replication_bytes_out, follower.replication_bytes_in) == (2 * size, size)
    assert (leader.leader_count, leader.partition_count) == (1, 1)
    assert (follower.leader_count, follower.partition_count) == (0, 1)
    assert follower.failed_produce_total == 1
    ((topic, traffic),) = cluster[1].manager.measures.traffic()
    assert (traffic.messages_in, traffic.bytes_in, traffic.bytes_out) == (1, size, size)
    assert traffic.replication_bytes_out == 2 * size
    assert list(cluster[1].manager.measures.log_sizes()) == [(TopicPartition(topic, 0), size)]
    lags = list(cluster[1].manager.measures.replica_lags())
    assert [(broker_id, lag) for _, broker_id, lag in lags] == [(2, 0), (3, 0)]
    assert list(cluster[2].manager.measures.replica_lags()) == []
    assert leader.at_min_isr == 0
    cluster.fence(3)
    await until(lambda: cluster[1].manager.measures.counters().under_replicated == 1)
    assert cluster[1].manager.measures.counters().under_min_isr == 0
    assert cluster[1].manager.measures.counters().at_min_isr == 1
    await until(lambda: cluster[2].replica().machine.state.isr == (1, 2))
    assert cluster[2].manager.measures.counters().at_min_isr == 0
    cluster.fence(2)
    await until(lambda: cluster[1].manager.measures.counters().under_min_isr == 1)
    assert leader.reassigning == 0
    moving = pb.PartitionChangeRecord(topic_id=P0.topic_id, partition=P0.partition)
    moving.removing_replicas.ids.append(3)
    moving.original_replicas.ids.extend((1, 2, 3))
    cluster.commit(pb.MetadataRecord(partition_change=moving))
    await until(lambda: cluster[1].manager.measures.counters().reassigning == 1)
    assert cluster[2].manager.measures.counters().reassigning == 0


@with_topic
async def test_a_topic_made_again_under_its_name_begins_empty(cluster: ReplicaCluster) -> None:
    await cluster[1].produce()
    cluster.delete_topic()
    again = P0._replace(topic_id=b"orders-topic-2nd")
    cluster.create_topic((1, 2, 3), topic_id=again.topic_id)
    await until(lambda: cluster[1].holds(again))
    result = await cluster[1].produce(partition=again)
    assert (result.error, result.base_offset) == (ErrorCode.NONE, 0)


@with_topic((1, 2))
async def test_a_leader_that_says_that_it_has_recovered_changes_no_isr(
    cluster: ReplicaCluster,
) -> None:
    change = pb.PartitionChangeRecord(
        topic_id=P0.topic_id, partition=0, leader=1, leader_recovery_state=RECOVERING
    )
    cluster.commit(pb.MetadataRecord(partition_change=change))
    await until(lambda: len(cluster.proposals) > 0)
    assert set(cluster.proposals) == {(P0, (1, 2))}
    counters = cluster[1].manager.measures.counters()
    assert (counters.isr_expands_total, counters.isr_shrinks_total) == (0, 0)
