"""Produce to three brokers: the answers, and when they come."""

from __future__ import annotations

import asyncio

from broker.replication.types import LeaderHint
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.batch import read_header
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, ReplicaCluster
from tests.support.replication import ends, settled, with_brokers, with_topic
from tests.support.timing import until


@with_brokers
async def test_acks_all_is_answered_when_the_isr_has_it_on_disk(cluster: ReplicaCluster) -> None:
    cluster.create_topic((1, 2, 3))
    await settled(cluster)
    result = await cluster[1].produce(make_batch(3))
    assert (result.error, result.base_offset) == (ErrorCode.NONE, 0)
    for node in cluster.nodes.values():
        assert node.replica().log.synced_offset == 3
    assert cluster[1].replica().machine.high_watermark == 3


@with_topic
async def test_acks_all_takes_one_sync_here_one_there_and_a_round_trip(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce()
    start = cluster.simulation.now
    for _ in range(50):
        await cluster[1].produce()
    assert (cluster.simulation.now - start) / 50 < 0.008


@with_topic((1, 2, 3), (2, 3, 1), (3, 1, 2))
async def test_a_partition_followed_anew_does_not_wait_for_the_long_poll_of_the_others(
    cluster: ReplicaCluster,
) -> None:
    await asyncio.sleep(1.0)
    start = cluster.simulation.now
    cluster.change(leader=2)
    await until(lambda: cluster[2].replica().machine.is_leader)
    result = await cluster[2].produce()
    assert result.error is ErrorCode.NONE
    assert cluster.simulation.now - start < 0.2


@with_topic(settings={"replica_fetch_min_bytes": 100_000, "replica_fetch_wait_max_ms": 300})
async def test_a_follower_that_waits_for_more_bytes_acknowledges_what_it_has(
    cluster: ReplicaCluster,
) -> None:
    began = cluster.simulation.now
    for _ in range(3):
        assert (await cluster[1].produce()).error is ErrorCode.NONE
    assert cluster.simulation.now - began < 3


@with_topic
async def test_acks_one_waits_for_the_leaders_disk_only(cluster: ReplicaCluster) -> None:
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    result = await cluster[1].produce(acks=1)
    assert result.error is ErrorCode.NONE
    log = cluster[1].replica().log
    assert log.synced_offset == 1
    assert cluster[1].replica().machine.high_watermark == 0


@with_topic
async def test_acks_none_is_answered_at_once(cluster: ReplicaCluster) -> None:
    result = await cluster[1].produce(acks=0)
    assert result.error is ErrorCode.NONE
    assert cluster[1].replica().log.synced_offset == 0
    await until(lambda: ends(cluster, 1, 2, 3) == [1, 1, 1])


@with_topic
async def test_what_is_not_replicated_in_time_times_out_and_is_replicated_later(
    cluster: ReplicaCluster,
) -> None:
    cluster.simulation.fabric.cut("b1", "b3")
    cluster.simulation.fabric.cut("b3", "b1")
    start = cluster.simulation.now
    result = await cluster[1].produce(timeout_ms=700)
    assert result.error is ErrorCode.REQUEST_TIMED_OUT
    assert 0.7 <= cluster.simulation.now - start < 0.75
    cluster.simulation.fabric.heal()
    await until(lambda: cluster[1].replica().machine.high_watermark == 1)


@with_topic(flush_messages="1000")
async def test_a_relaxed_flush_acknowledges_from_the_page_cache(cluster: ReplicaCluster) -> None:
    result = await cluster[1].produce()
    assert result.error is ErrorCode.NONE
    assert [node.replica().log.synced_offset for node in cluster.nodes.values()] == [0, 0, 0]


@with_topic(max_message_bytes="1000")
async def test_a_bad_batch_is_refused_with_its_own_error(cluster: ReplicaCluster) -> None:
    broken = make_batch()
    broken[-1] ^= 1
    assert (await cluster[1].produce(broken)).error is ErrorCode.CORRUPT_MESSAGE
    large = make_batch(size=2000)
    assert (await cluster[1].produce(large)).error is ErrorCode.MESSAGE_TOO_LARGE
    assert (await cluster[2].produce()).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    unknown = P0._replace(topic_id=bytes(16))
    result = await cluster[1].produce(partition=unknown)
    assert result.error is ErrorCode.UNKNOWN_TOPIC_ID
    result = await cluster[1].produce(partition=P0._replace(partition=7))
    assert result.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ends(cluster, 1) == [0]


@with_topic
async def test_a_refusal_names_the_leader(cluster: ReplicaCluster) -> None:
    result = await cluster[2].produce()
    assert tuple(result.leader) == (1, 0)
    fetched = await cluster[3].fetch(0)
    assert fetched.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert tuple(fetched.leader) == (1, 0)


@with_topic
async def test_an_acknowledgement_names_the_leader_and_its_epoch(cluster: ReplicaCluster) -> None:
    result = await cluster[1].produce()
    assert result.error is ErrorCode.NONE
    machine = cluster[1].replica().machine
    assert result.leader == (1, machine.leader_epoch)


@with_topic
async def test_an_acknowledgement_names_the_epoch_in_which_it_is_given(
    cluster: ReplicaCluster,
) -> None:
    cluster.simulation.fabric.cut("b1", "b3")
    cluster.simulation.fabric.cut("b3", "b1")
    waiting = asyncio.ensure_future(cluster[1].produce())
    await until(lambda: ends(cluster, 1) == [1])
    appended_in = cluster.state().leader_epoch
    cluster.change(leader=2, to=())  # broker 1 hears of it when it leads again
    cluster.change(leader=1, to=())
    for node in cluster.nodes.values():
        cluster.tell(node)
    assert not waiting.done()
    cluster.simulation.fabric.heal()
    result = await waiting
    assert result.error is ErrorCode.NONE
    assert result.leader == (1, appended_in + 2)


@with_topic(message_timestamp_before_max_ms="3600000")
async def test_timestamps_out_of_bounds_are_refused(cluster: ReplicaCluster) -> None:
    result = await cluster[1].produce()  # of 1970
    assert result.error is ErrorCode.INVALID_TIMESTAMP


@with_topic(message_timestamp_type="LogAppendTime")
async def test_log_append_time_is_stamped_and_told(cluster: ReplicaCluster) -> None:
    result = await cluster[1].produce()
    assert result.log_append_time_ms > 1_000_000
    fetched = await cluster[1].fetch(0)
    header = read_header(fetched.records[0])
    assert header.max_timestamp_ms == result.log_append_time_ms
    assert header.is_log_append_time


@with_topic
async def test_too_few_in_sync_refuses_before_and_after_the_append_and_recovers(
    cluster: ReplicaCluster,
) -> None:
    await cluster[1].produce()
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    waiting = asyncio.ensure_future(cluster[1].produce())
    await asyncio.sleep(0.5)
    assert not waiting.done()
    cluster.fence(2)
    cluster.fence(3)
    after = await waiting
    assert after.error is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    before = await cluster[1].produce()
    assert before.error is ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await cluster[1].produce(acks=1)).error is ErrorCode.NONE
    assert cluster[1].replica().machine.high_watermark == 1
    cluster.simulation.fabric.heal()
    for broker_id in (2, 3):
        cluster.register(cluster[broker_id])
    await until(lambda: cluster.state().isr == (1, 2, 3))
    assert (await cluster[1].produce()).error is ErrorCode.NONE
    assert cluster[1].replica().machine.high_watermark == 4


@with_topic
async def test_a_leader_without_lease_acknowledges_nothing(cluster: ReplicaCluster) -> None:
    cluster[1].lease = False
    for acks in (1, -1):
        result = await cluster[1].produce(acks=acks)
        assert result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster[1].lease = True
    assert (await cluster[1].produce()).error is ErrorCode.NONE


@with_topic
async def test_a_duplicate_waits_for_its_original(cluster: ReplicaCluster) -> None:
    cluster.simulation.fabric.cut("b1", "b2")
    cluster.simulation.fabric.cut("b2", "b1")
    original = asyncio.ensure_future(cluster[1].produce(make_batch(2, producer=(7, 0, 0))))
    await asyncio.sleep(0.1)
    again = asyncio.ensure_future(cluster[1].produce(make_batch(2, producer=(7, 0, 0))))
    await asyncio.sleep(0.5)
    assert not original.done()
    assert not again.done()
    cluster.simulation.fabric.heal()
    first, second = await original, await again
    assert (first.error, first.base_offset) == (ErrorCode.NONE, 0)
    assert (second.error, second.base_offset) == (ErrorCode.NONE, 0)
    assert ends(cluster, 1, 2, 3) == [2, 2, 2]


@with_topic((1, 2))
async def test_a_partition_that_is_not_here_is_refused_by_what_is_known_of_it(
    cluster: ReplicaCluster,
) -> None:
    elsewhere = await cluster[3].produce()
    assert elsewhere.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert elsewhere.leader == LeaderHint(1, 0)
    for number in (-1, 1):
        refused = await cluster[1].produce(partition=PartitionId(P0.topic_id, number))
        assert refused.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert refused.leader == LeaderHint()
    refused = await cluster[1].produce(partition=PartitionId(bytes(16), 0))
    assert refused.error is ErrorCode.UNKNOWN_TOPIC_ID
    fetched = await cluster[1].fetch(0, partition=PartitionId(bytes(16), 0))
    assert (fetched.error, fetched.leader) == (ErrorCode.UNKNOWN_TOPIC_ID, LeaderHint())
