"""Replica managers of three brokers over a simulated network and simulated disks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from broker.replicas_fetch import TURN_BYTES
from broker.types import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    EpochQuery,
    FetchEntry,
    FetchQuery,
    OffsetQuery,
    OffsetResult,
)
from stele.errors import ErrorCode
from stele.wire.batch import BatchBuilder, read_header
from stele.wire.v1 import metadata_pb2 as pb
from tests.support.broker import make_batch
from tests.support.replica_cluster import P0, Node, ReplicaCluster, until

Scenario = Callable[[ReplicaCluster], Awaitable[None]]


def ends(cluster: ReplicaCluster, *broker_ids: int) -> list[int]:
    return [cluster[each].replica().log.end_offset for each in broker_ids]


async def settled(cluster: ReplicaCluster) -> None:
    """The topic is there and everybody follows."""
    assigned = cluster.state().replicas
    await until(lambda: all(P0 in cluster[each].manager._replicas.by_id for each in assigned))
    await asyncio.sleep(0.1)


def test_acks_all_is_answered_when_the_isr_has_it_on_disk() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.create_topic((1, 2, 3))
        await settled(cluster)
        result = await cluster[1].produce(make_batch(3))
        assert (result.error, result.base_offset) == (ErrorCode.NONE, 0)
        for node in cluster.nodes.values():
            assert node.replica().log.synced_offset == 3
        assert cluster[1].replica().machine.high_watermark == 3

    ReplicaCluster().run(scenario)


def run(scenario: Scenario, **options: object) -> ReplicaCluster:
    cluster = ReplicaCluster(**options)  # type: ignore[arg-type]
    cluster.run(scenario)
    return cluster


def with_topic(
    scenario: Scenario, *assignments: tuple[int, ...], min_insync: int = 2, **configs: str
) -> None:
    async def whole(cluster: ReplicaCluster) -> None:
        named = {name.replace("_", "."): value for name, value in configs.items()}
        cluster.create_topic(*(assignments or ((1, 2, 3),)), configs=named, min_insync=min_insync)
        await settled(cluster)
        await scenario(cluster)

    run(whole)


# --------------------------------------------------------------------------------- acks


def test_acks_all_takes_one_sync_here_one_there_and_a_round_trip() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster[1].produce()
        start = cluster.simulation.now
        for _ in range(50):
            await cluster[1].produce()
        assert (cluster.simulation.now - start) / 50 < 0.008

    with_topic(scenario)


def test_a_partition_followed_anew_does_not_wait_for_the_long_poll_of_the_others() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await asyncio.sleep(1.0)
        start = cluster.simulation.now
        cluster.change(leader=2)
        await until(lambda: cluster[2].replica().machine.is_leader)
        result = await cluster[2].produce()
        assert result.error is ErrorCode.NONE
        assert cluster.simulation.now - start < 0.2

    with_topic(scenario, (1, 2, 3), (2, 3, 1), (3, 1, 2))


def test_acks_one_waits_for_the_leaders_disk_only() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
        result = await cluster[1].produce(acks=1)
        assert result.error is ErrorCode.NONE
        log = cluster[1].replica().log
        assert log.synced_offset == 1
        assert cluster[1].replica().machine.high_watermark == 0

    with_topic(scenario)


def test_acks_none_is_answered_at_once() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        result = await cluster[1].produce(acks=0)
        assert result.error is ErrorCode.NONE
        assert cluster[1].replica().log.synced_offset == 0
        await until(lambda: ends(cluster, 1, 2, 3) == [1, 1, 1])

    with_topic(scenario)


def test_what_is_not_replicated_in_time_times_out_and_is_replicated_later() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.simulation.fabric.cut("b1", "b3")
        cluster.simulation.fabric.cut("b3", "b1")
        start = cluster.simulation.now
        result = await cluster[1].produce(timeout_ms=700)
        assert result.error is ErrorCode.REQUEST_TIMED_OUT
        assert 0.7 <= cluster.simulation.now - start < 0.75
        cluster.simulation.fabric.heal()
        await until(lambda: cluster[1].replica().machine.high_watermark == 1)

    with_topic(scenario)


def test_a_relaxed_flush_acknowledges_from_the_page_cache() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        result = await cluster[1].produce()
        assert result.error is ErrorCode.NONE
        assert [node.replica().log.synced_offset for node in cluster.nodes.values()] == [0, 0, 0]

    with_topic(scenario, flush_messages="1000")


# ------------------------------------------------------------------------------- refusals


def test_a_bad_batch_is_refused_with_its_own_error() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        broken = make_batch()
        broken[-1] ^= 1
        assert (await cluster[1].produce(broken)).error is ErrorCode.CORRUPT_MESSAGE
        large = make_batch(value=b"v" * 2000)
        assert (await cluster[1].produce(large)).error is ErrorCode.MESSAGE_TOO_LARGE
        assert (await cluster[2].produce()).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        unknown = P0._replace(topic_id=bytes(16))
        result = await cluster[1].produce(partition=unknown)
        assert result.error is ErrorCode.UNKNOWN_TOPIC_ID
        result = await cluster[1].produce(partition=P0._replace(partition=7))
        assert result.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert ends(cluster, 1) == [0]

    with_topic(scenario, max_message_bytes="1000")


def test_a_refusal_names_the_leader() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        result = await cluster[2].produce()
        assert tuple(result.leader) == (1, 0)
        fetched = await cluster[3].fetch(0)
        assert fetched.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert tuple(fetched.leader) == (1, 0)

    with_topic(scenario)


def test_timestamps_out_of_bounds_are_refused() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        result = await cluster[1].produce()  # of 1970
        assert result.error is ErrorCode.INVALID_TIMESTAMP

    with_topic(scenario, message_timestamp_before_max_ms="3600000")


def test_log_append_time_is_stamped_and_told() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        result = await cluster[1].produce()
        assert result.log_append_time_ms > 1_000
        fetched = await cluster[1].fetch(0)
        header = read_header(fetched.records[0])
        assert header.max_timestamp_ms == result.log_append_time_ms
        assert header.is_log_append_time

    with_topic(scenario, message_timestamp_type="LogAppendTime")


def test_too_few_in_sync_refuses_before_and_after_the_append_and_recovers() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
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

    with_topic(scenario)


def test_a_leader_without_lease_acknowledges_nothing() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster[1].lease = False
        for acks in (1, -1):
            result = await cluster[1].produce(acks=acks)
            assert result.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        cluster[1].lease = True
        assert (await cluster[1].produce()).error is ErrorCode.NONE

    with_topic(scenario)


def test_a_duplicate_waits_for_its_original() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        options: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        cluster.simulation.fabric.cut("b1", "b2")
        cluster.simulation.fabric.cut("b2", "b1")
        original = asyncio.ensure_future(cluster[1].produce(make_batch(2, **options)))
        await asyncio.sleep(0.1)
        again = asyncio.ensure_future(cluster[1].produce(make_batch(2, **options)))
        await asyncio.sleep(0.5)
        assert not original.done()
        assert not again.done()
        cluster.simulation.fabric.heal()
        first, second = await original, await again
        assert (first.error, first.base_offset) == (ErrorCode.NONE, 0)
        assert (second.error, second.base_offset) == (ErrorCode.NONE, 0)
        assert ends(cluster, 1, 2, 3) == [2, 2, 2]

    with_topic(scenario)


# ------------------------------------------------------------------------------ consumers


def test_a_consumer_waits_for_the_high_watermark_and_sees_nothing_above_it() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        waiting = asyncio.ensure_future(cluster[1].fetch(0, max_wait_ms=5_000))
        await asyncio.sleep(0.1)
        produced = asyncio.ensure_future(cluster[1].produce())
        result = await waiting
        assert (await produced).error is ErrorCode.NONE
        assert len(result.records) == 1
        assert result.high_watermark == 1
        cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
        await cluster[1].produce(acks=1)
        between = await cluster[1].fetch(1)
        assert (between.error, between.records) == (ErrorCode.NONE, [])
        at_end = await cluster[1].fetch(2)
        assert (at_end.error, at_end.records) == (ErrorCode.NONE, [])
        assert (await cluster[1].fetch(3)).error is ErrorCode.OFFSET_OUT_OF_RANGE

    with_topic(scenario)


def test_a_fetch_that_finds_nothing_is_answered_at_its_deadline() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        start = cluster.simulation.now
        result = await cluster[1].fetch(0, max_wait_ms=300)
        assert (result.error, result.records) == (ErrorCode.NONE, [])
        assert 0.3 <= cluster.simulation.now - start < 0.33

    with_topic(scenario)


def test_a_fetch_waits_for_its_minimum_of_bytes() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        size = len(make_batch())
        waiting = asyncio.ensure_future(cluster[1].fetch(0, max_wait_ms=60_000, min_bytes=2 * size))
        await cluster[1].produce()
        await asyncio.sleep(0.1)
        assert not waiting.done()
        await cluster[1].produce()
        assert sum(map(len, (await waiting).records)) == 2 * size

    with_topic(scenario)


def test_who_waits_at_a_leader_hears_at_once_that_it_leads_no_more() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        fetching = asyncio.ensure_future(cluster[1].fetch(0, max_wait_ms=60_000))
        cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
        producing = asyncio.ensure_future(cluster[1].produce())
        await asyncio.sleep(0.1)
        cluster.change(leader=2)
        assert (await fetching).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await producing).error is ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_topic(scenario)


def test_a_cancelled_fetch_is_not_answered() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        answers: list[object] = []

        async def inside() -> None:
            query = FetchQuery([FetchEntry(P0, 0, 1 << 20)], 60_000, 1, 1 << 20)
            cancel = cluster[1].manager.fetch(query, answers.append)
            cancel()
            cancel()

        await cluster[1].process.run(inside())
        await cluster[1].produce()
        assert answers == []
        assert not cluster[1].replica().consumers

    with_topic(scenario)


def noting(answered: list[int], number: int) -> Callable[[object], None]:
    return lambda _: answered.append(number)


def test_consumers_get_one_big_answer_in_a_turn_of_the_loop() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        batch = make_batch(value=bytes(TURN_BYTES))
        await cluster[1].produce(batch)
        answered: list[int] = []
        turns: list[int] = []

        def turn() -> None:
            turns.append(len(answered))
            if len(answered) < 4:
                asyncio.get_running_loop().call_soon(turn)

        async def inside() -> None:
            asyncio.get_running_loop().call_soon(turn)
            for number in range(5):
                query = FetchQuery([FetchEntry(P0, 0, 1 << 20)], 60_000, 1, 1 << 20)
                cancel = cluster[1].manager.fetch(query, noting(answered, number))
                if number == 2:
                    cancel()

        await cluster[1].process.run(inside())
        await until(lambda: len(answered) == 4)
        assert answered == [0, 1, 3, 4]
        assert turns == [1, 2, 3, 4]

    with_topic(scenario)


def test_fetches_that_stand_in_the_queue_are_answered_at_the_end() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster[1].produce(make_batch(value=bytes(TURN_BYTES)))
        answered: list[int] = []

        async def inside() -> None:
            for number in range(3):
                query = FetchQuery([FetchEntry(P0, 0, 1 << 20)], 60_000, 1, 1 << 20)
                cluster[1].manager.fetch(query, noting(answered, number))
            assert answered == [0]
            await cluster[1].manager.stop()
            assert answered == [0, 1, 2]

        await cluster[1].process.run(inside())
        cluster[1].kill()

    with_topic(scenario)


def test_cold_bytes_are_warmed_and_then_answered() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster[1].produce(make_batch(5))
        cluster[1].disk.faults.cold_read = 1.0
        result = await cluster[1].fetch(0, max_wait_ms=500)
        assert len(result.records) == 1
        assert cluster[1].process.machine.disk.faults.cold_read == 1.0

    with_topic(scenario)


# ------------------------------------------------------------------------------ followers


def test_a_client_that_poses_as_a_follower_acknowledges_nothing() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
        await cluster[1].produce(acks=1)
        for replica_id, replica_epoch, epoch, error in (
            (2, -1, 0, ErrorCode.STALE_BROKER_EPOCH),
            (2, cluster[2].epoch + 1, 0, ErrorCode.STALE_BROKER_EPOCH),
            (2, cluster[2].epoch, -1, ErrorCode.UNKNOWN_LEADER_EPOCH),
            (9, 1, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ):
            result = await cluster[1].fetch(
                1, epoch=epoch, replica_id=replica_id, replica_epoch=replica_epoch
            )
            assert result.error is error
        assert cluster[1].replica().machine.high_watermark == 0

    with_topic(scenario)


def test_a_replica_cut_off_leaves_the_isr_and_comes_back() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
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

    with_topic(scenario)


def test_a_restarted_follower_joins_again() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster[1].produce()
        cluster[3].kill()
        cluster.fence(3)
        assert (await cluster[1].produce()).error is ErrorCode.NONE
        await cluster[3].start()
        cluster.register(cluster[3])
        await until(lambda: cluster.state().isr == (1, 2, 3))
        assert ends(cluster, 3) == [2]
        assert cluster[1].manager.counters.isr_expands_total == 1

    with_topic(scenario)


async def write_apart(cluster: ReplicaCluster, node: Node, count: int) -> None:
    """Write to a leader that nobody follows any more."""
    for _ in range(count):
        await node.produce(acks=1)


def test_a_deposed_leader_cuts_its_diverging_tail() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
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

    with_topic(scenario)


def test_two_deposed_leaders_find_common_ground_over_several_epochs() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
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
        assert all(
            cluster[each].replica().log.epochs.entries == [(0, 0), (3, 1)] for each in (1, 2, 3)
        )

    with_topic(scenario, min_insync=1)


def test_a_leader_that_wrote_nothing_in_its_epoch_can_follow_afterwards() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster[1].produce()
        for leader in (2, 3, 1, 2):
            cluster.change(leader=leader)
            await until(lambda: cluster[leader].replica().machine.is_leader)  # noqa: B023
        await until(lambda: cluster.state().isr == (1, 2, 3))
        assert (await cluster[2].produce()).error is ErrorCode.NONE
        assert ends(cluster, 1, 2, 3) == [2, 2, 2]

    with_topic(scenario)


def test_a_follower_below_the_leaders_start_begins_anew_there() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster[3].kill()
        cluster.fence(3)
        for _ in range(6):
            await cluster[1].produce(make_batch(value=b"v" * 600))
        await until(lambda: cluster[1].replica().log.high_watermark == 6)
        await cluster[1].process.run(cluster[1].manager._housekeeping.enforce_retention())
        start = cluster[1].replica().log.start_offset
        assert start > 0
        await cluster[3].start()
        cluster.register(cluster[3])
        await until(lambda: cluster.state().isr == (1, 2, 3))
        log = cluster[3].replica().log
        assert (log.start_offset, log.end_offset) == (start, 6)
        assert (await cluster[1].produce()).error is ErrorCode.NONE
        assert (await cluster[1].fetch(0)).error is ErrorCode.OFFSET_OUT_OF_RANGE

    with_topic(scenario, segment_bytes="1024", retention_bytes="1024")


# -------------------------------------------------------------------------------- failures


def test_a_full_disk_refuses_and_recovers_when_there_is_space_again() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster[1].produce()
        disk = cluster[1].disk
        disk.faults.quota_bytes = disk.used_bytes() + 100
        big = make_batch(value=b"v" * 500)
        assert (await cluster[1].produce(big)).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert ends(cluster, 1) == [1]
        assert len((await cluster[1].fetch(0)).records) == 1
        disk.faults.quota_bytes = None
        result = await cluster[1].produce(big)
        assert (result.error, result.base_offset) == (ErrorCode.NONE, 1)

    with_topic(scenario)


def test_a_follower_with_a_full_disk_catches_up_when_there_is_space_again() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        disk = cluster[3].disk
        disk.faults.quota_bytes = disk.used_bytes() + 10
        producing = asyncio.ensure_future(cluster[1].produce())
        await asyncio.sleep(3)
        assert not producing.done()
        disk.faults.quota_bytes = None
        assert (await producing).error is ErrorCode.NONE
        assert ends(cluster, 3) == [1]

    with_topic(scenario)


def test_a_failed_sync_takes_the_directory_offline() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster[1].disk.faults.failing_sync = True
        result = await cluster[1].produce()
        assert result.error is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster[1].failed_directories == ["/data"]
        assert (await cluster[1].produce()).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert (await cluster[1].fetch(0)).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster[1].manager.counters.offline_replicas == 1
        cluster.fence(1)
        await until(lambda: cluster[2].replica().machine.is_leader)
        assert (await cluster[2].produce()).error is ErrorCode.NONE

    with_topic(scenario)


def test_a_corrupt_log_is_reported_not_served_and_fetched_anew() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        for _ in range(3):
            await cluster[1].produce(make_batch(value=b"v" * 300))
        await asyncio.sleep(6)  # the high watermark is checkpointed
        node = cluster[2]
        node.kill()
        cluster.fence(2)
        node.disk.flip_bit("/data/orders-0/00000000000000000000.log", 100)
        await node.start()
        assert node.manager.corrupt_replicas() == [P0]
        cluster.register(node)
        await until(lambda: cluster.state().isr == (1, 2, 3))
        assert node.manager.corrupt_replicas() == []
        assert ends(cluster, 2) == [3]

    with_topic(scenario)


def test_a_leader_that_finds_corruption_gives_the_partition_up() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster[1].produce(make_batch(value=b"v" * 300))
        cluster[1].disk.flip_bit("/data/orders-0/00000000000000000000.log", 16)  # the magic byte
        assert (await cluster[1].fetch(0)).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster[1].corrupt == [P0]
        assert (await cluster[1].produce()).error is ErrorCode.KAFKA_STORAGE_ERROR
        cluster.change(leader=2, isr=(2, 3))
        await until(lambda: cluster.state().isr == (1, 2, 3))
        assert ends(cluster, 1) == [1]
        assert len((await cluster[2].fetch(0)).records) == 1

    with_topic(scenario)


def test_the_only_copy_is_never_thrown_away() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster[1].produce()
        cluster[1].disk.flip_bit("/data/orders-0/00000000000000000000.log", 16)
        await cluster[1].fetch(0)
        cluster.change(leader=-1, isr=())
        await asyncio.sleep(1)
        assert cluster[1].manager.corrupt_replicas() == [P0]
        assert (await cluster[1].fetch(0)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_topic(scenario, (1,), min_insync=1)


# -------------------------------------------------------------------------------- metadata


def test_a_deleted_topic_takes_its_logs_with_it() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        fetching = asyncio.ensure_future(cluster[1].fetch(0, max_wait_ms=60_000))
        await cluster[1].produce()
        await fetching
        fetching = asyncio.ensure_future(cluster[1].fetch(1, max_wait_ms=60_000))
        await asyncio.sleep(0.1)
        cluster.delete_topic()
        assert (await fetching).error is ErrorCode.UNKNOWN_TOPIC_ID
        assert (await cluster[1].produce()).error is ErrorCode.UNKNOWN_TOPIC_ID
        assert all(not node.directory.logs for node in cluster.nodes.values())

    with_topic(scenario)


def test_a_topic_deleted_while_the_broker_was_down_is_deleted_at_its_start() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster[1].produce()
        cluster[3].kill()
        cluster.fence(3)
        cluster.delete_topic()
        await cluster[3].start()
        assert len(cluster[3].directory.logs) == 1
        cluster.register(cluster[3])
        await until(lambda: not cluster[3].directory.logs)

    with_topic(scenario)


def test_a_restart_leads_again_only_in_a_higher_epoch_with_all_that_was_there() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
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

    with_topic(scenario)


def test_a_power_loss_of_everybody_loses_nothing_acknowledged() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        for _ in range(5):
            await cluster[1].produce()
        asyncio.ensure_future(cluster[1].produce()).cancel()
        for name in ("b1", "b2", "b3"):
            cluster.simulation.power_off(name)
        for node in cluster.nodes.values():
            cluster.simulation.power_on(node.name)
            await node.start()
            cluster.register(node)
        await until(lambda: cluster.state().isr == (1, 2, 3))
        result = await cluster[cluster.state().leader].fetch(0)
        assert sum(map(len, result.records)) >= 5 * len(make_batch())

    with_topic(scenario)


def test_stopping_answers_whoever_waits() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        fetching = asyncio.ensure_future(cluster[1].fetch(0, max_wait_ms=60_000))
        cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
        producing = asyncio.ensure_future(cluster[1].produce())
        await asyncio.sleep(0.1)
        await cluster[1].process.run(cluster[1].manager.stop())
        assert (await fetching).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await producing).error is ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_topic(scenario)


def test_a_changed_minimum_takes_effect() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
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

    with_topic(scenario)


def test_an_unclean_end_of_a_relaxed_replica_is_reported() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster[1].produce()
        node = cluster[2]
        await node.stop()
        await node.start()
        assert node.manager.unsynced_replicas() == []
        node.kill()
        await node.start()
        assert node.manager.unsynced_replicas() == [P0]
        cluster.register(node)
        await until(lambda: P0 in node.manager._replicas.by_id)
        assert node.manager.unsynced_replicas() == []

    with_topic(scenario, flush_messages="1000")


def test_an_unclean_end_of_a_strict_replica_is_not_worth_a_word() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster[1].produce()
        cluster[2].kill()
        await cluster[2].start()
        assert cluster[2].manager.unsynced_replicas() == []

    with_topic(scenario)


def test_a_corrupt_replica_waits_until_nobody_counts_on_it() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster[1].produce(make_batch(value=b"v" * 300))
        cluster[1].disk.flip_bit("/data/orders-0/00000000000000000000.log", 16)
        await cluster[1].fetch(0)
        cluster.change(leader=2)  # still in the ISR
        await asyncio.sleep(1)
        assert cluster[1].manager.corrupt_replicas() == [P0]
        cluster.change(isr=(2, 3))
        await until(lambda: cluster.state().isr == (1, 2, 3))
        assert cluster[1].manager.corrupt_replicas() == []
        assert ends(cluster, 1) == [1]

    with_topic(scenario)


# -------------------------------------------------------------------------------- offsets


async def list_offset(node: Node, timestamp_ms: int, epoch: int = -1) -> OffsetResult:
    query = OffsetQuery(P0, timestamp_ms, epoch)
    (result,) = await node.process.run(node.manager.list_offsets([query]))
    return result


def test_offsets_by_name_and_by_time() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        for timestamp_ms in (1_000, 3_000, 2_000):
            builder = BatchBuilder()
            builder.append(b"k", b"v", timestamp_ms=timestamp_ms)
            assert (await cluster[1].produce(builder.build())).error is ErrorCode.NONE
        leader = cluster[1]
        assert (await list_offset(leader, EARLIEST_TIMESTAMP)).offset == 0
        latest = await list_offset(leader, LATEST_TIMESTAMP)
        assert (latest.offset, latest.leader_epoch) == (3, 0)
        found = await list_offset(leader, 1_500)
        assert (found.offset, found.timestamp_ms) == (1, 3_000)
        greatest = await list_offset(leader, MAX_TIMESTAMP)
        assert (greatest.offset, greatest.timestamp_ms) == (1, 3_000)
        nothing = await list_offset(leader, 9_000)
        assert (nothing.error, nothing.offset) == (ErrorCode.NONE, -1)

    with_topic(scenario)


def test_only_what_is_committed_is_found() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
        await cluster[1].produce(acks=1)
        assert (await list_offset(cluster[1], LATEST_TIMESTAMP)).offset == 0
        assert (await list_offset(cluster[1], 500)).offset == -1
        assert (await list_offset(cluster[1], MAX_TIMESTAMP)).offset == -1

    with_topic(scenario)


def test_a_new_leader_does_not_tell_the_latest_before_it_knows() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        for _ in range(3):
            await cluster[1].produce()
        cluster.simulation.fabric.isolate("b2", ["b1", "b3"])
        cluster.change(leader=2, isr=(2, 3))
        await until(lambda: cluster[2].replica().machine.is_leader)
        for timestamp_ms in (LATEST_TIMESTAMP, 5_000):
            result = await list_offset(cluster[2], timestamp_ms)
            assert result.error is ErrorCode.OFFSET_NOT_AVAILABLE
        cluster.simulation.fabric.heal()
        await until(lambda: cluster[2].replica().machine.high_watermark == 3)
        assert (await list_offset(cluster[2], LATEST_TIMESTAMP)).offset == 3

    with_topic(scenario)


def test_offset_requests_are_fenced() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        cluster.change(leader=1)
        await until(lambda: cluster[1].replica().machine.leader_epoch == 1)
        for epoch, error in (
            (0, ErrorCode.FENCED_LEADER_EPOCH),
            (1, ErrorCode.NONE),
            (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ):
            assert (await list_offset(cluster[1], EARLIEST_TIMESTAMP, epoch)).error is error
            asked = [EpochQuery(P0, 0, epoch)]
            assert cluster[1].manager.end_offset_for_epoch(asked)[0].error is error
            assert (await cluster[1].fetch(0, epoch=epoch)).error is error
        refused = await list_offset(cluster[2], EARLIEST_TIMESTAMP)
        assert refused.error is ErrorCode.NOT_LEADER_OR_FOLLOWER

    with_topic(scenario)


def test_the_end_of_an_epoch_is_told() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster[1].produce(make_batch(2))
        cluster.change(leader=1)
        await until(lambda: cluster[1].replica().machine.leader_epoch == 1)
        await cluster[1].produce(make_batch(3))
        ask = [EpochQuery(P0, 0), EpochQuery(P0, 1), EpochQuery(P0, 7)]
        answers = cluster[1].manager.end_offset_for_epoch(ask)
        assert [(a.leader_epoch, a.offset) for a in answers] == [(0, 2), (1, 5), (-1, -1)]

    with_topic(scenario)


def test_bytes_and_states_are_counted() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        size = len(make_batch())
        await cluster[1].produce()
        await cluster[1].fetch(0)
        await cluster[2].produce()
        leader, follower = cluster[1].manager.counters, cluster[2].manager.counters
        assert (leader.bytes_in, leader.bytes_out) == (size, size)
        assert (leader.replication_bytes_out, follower.replication_bytes_in) == (2 * size, size)
        assert (leader.leader_count, leader.partition_count) == (1, 1)
        assert (follower.leader_count, follower.partition_count) == (0, 1)
        assert follower.failed_produce_total == 1
        cluster.fence(3)
        await until(lambda: cluster[1].manager.counters.under_replicated == 1)
        assert cluster[1].manager.counters.under_min_isr == 0
        cluster.fence(2)
        await until(lambda: cluster[1].manager.counters.under_min_isr == 1)

    with_topic(scenario)


def test_a_topic_made_again_under_its_name_begins_empty() -> None:
    async def scenario(cluster: ReplicaCluster) -> None:
        await cluster[1].produce()
        cluster.delete_topic()
        again = P0._replace(topic_id=b"orders-topic-2nd")
        cluster.create_topic((1, 2, 3), topic_id=again.topic_id)
        await until(lambda: again in cluster[1].manager._replicas.by_id)
        result = await cluster[1].produce(partition=again)
        assert (result.error, result.base_offset) == (ErrorCode.NONE, 0)

    with_topic(scenario)
