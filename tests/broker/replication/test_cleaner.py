"""The compaction of replicas' logs: which replica compacts what, and what readers find."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from broker.replication import cleaner
from broker.replication.cleaner import Cleaner
from broker.replication.replica import ReplicaState
from stele.errors import ErrorCode
from stele.ids import PartitionId
from stele.wire.batch import Record, batches, decode
from stele.wire.v1 import metadata_pb2 as pb
from storage.compaction.round import AbandonedError
from storage.compaction.survey import Survey, survey
from storage.log import PartitionLog
from tests.support import replication
from tests.support.batches import make_batch
from tests.support.compaction import keyed_batch, last_values
from tests.support.replica_cluster import P0, Node, ReplicaCluster
from tests.support.replication import settled, with_brokers
from tests.support.timing import until

CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "1024",
    "min.cleanable.dirty.ratio": "0.1",
}
BACKOFF_MS = 500


with_topic = replication.with_topic.having(
    settings={"log_cleaner_backoff_ms": BACKOFF_MS},
    **{name.replace(".", "_"): value for name, value in CONFIGS.items()},
)


async def fill(node: Node, numbers: Iterable[int], keys: int = 7) -> dict[bytes | None, bytes]:
    values: dict[bytes | None, bytes] = {}
    for number in numbers:
        key, value = b"k%d" % (number % keys), b"v%d" % number
        now_ms = node.process.world.clock.time_ms()
        result = await node.produce(keyed_batch([(key, value)], timestamp_ms=now_ms))
        assert result.error is ErrorCode.NONE
        values[key] = value
    return values


async def read_all(node: Node) -> list[Record]:
    """What a consumer reads from the beginning."""
    found: list[Record] = []
    offset = node.replica().log.start_offset
    while True:
        result = await node.fetch(offset)
        assert result.error is ErrorCode.NONE
        data = b"".join(bytes(each) for each in result.records)
        if not data:
            assert offset == result.high_watermark
            return found
        for at, header in batches(data):
            found += decode(data, at)
            offset = header.next_offset


def is_compacted(node: Node, most: int) -> bool:
    """Whether a node has at most so many records left."""
    left = [header.record_count for header, _ in node.replica().log.batches_now(0)]
    return sum(left) <= most


def is_clean_upto(node: Node, offset: int) -> bool:
    return node.directory.clean_end(node.replica().log) >= offset


@with_topic
async def test_leader_and_followers_compact_their_own_logs(cluster: ReplicaCluster) -> None:
    values = await fill(cluster[1], range(200))
    await until(lambda: all(is_compacted(cluster[each], 30) for each in (1, 2, 3)))
    assert last_values(await read_all(cluster[1])) == values
    for each in (1, 2, 3):
        node = cluster[each]
        log = node.replica().log
        await until(partial(is_clean_upto, node, 150))
        assert node.manager.cleaner.rounds > 0
        assert 0 < node.manager.cleaner.recopy_percent < 100
        # The active segment is as it was.
        active = list(log.batches_now(log.segments.active.base_offset))
        assert sum(header.record_count for header, _ in active) == (
            log.end_offset - log.segments.active.base_offset
        )
    # A former follower leads now, and compaction goes on.
    cluster.fence(1)
    await until(lambda: cluster[2].replica().machine.is_leader)
    values |= await fill(cluster[2], range(200, 300))
    assert last_values(await read_all(cluster[2])) == values


@with_topic
async def test_a_replica_that_begins_anew_copies_a_compacted_log(cluster: ReplicaCluster) -> None:
    values = await fill(cluster[1], range(200))
    await until(lambda: is_compacted(cluster[1], 30))
    cluster[3].kill()
    cluster.fence(3)
    cluster[3].disk.lose("/data/orders-0")
    await cluster[3].start()
    cluster.register(cluster[3])
    await until(cluster[3].holds)
    end = cluster[1].replica().log.end_offset
    await until(lambda: cluster[3].replica().log.end_offset == end)
    await until(lambda: 3 in cluster.state().isr)
    assert cluster[3].replica().log.start_offset == 0
    cluster.change(leader=3)
    await until(lambda: cluster[3].replica().machine.is_leader)
    assert last_values(await read_all(cluster[3])) == values


@with_topic(delete_retention_ms="30000")
async def test_a_tombstone_goes_when_its_time_is_over(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    values = await fill(node, range(50))
    await node.produce(keyed_batch([(b"k3", None)]))
    del values[b"k3"]
    values |= await fill(node, [number for number in range(50, 130) if number % 7 != 3])
    await until(lambda: is_compacted(node, 30))
    assert any(record.value is None for record in await read_all(node))
    await asyncio.sleep(60)
    values |= await fill(node, [number for number in range(130, 230) if number % 7 != 3])
    await until(lambda: is_clean_upto(node, 180))
    found = await read_all(node)
    assert all(record.key != b"k3" for record in found)
    assert last_values(found) == values


@with_topic(cleanup_policy="compact,delete", retention_ms="600000")
async def test_compact_and_delete_does_both(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    await fill(node, range(200))
    await until(lambda: is_compacted(node, 30))
    assert node.replica().log.start_offset == 0
    await asyncio.sleep(700)
    values = await fill(node, range(200, 260), keys=3)
    await until(lambda: node.replica().log.start_offset > 150, within_s=400)
    assert last_values(await read_all(node)).items() >= values.items()


@with_topic(retention_ms="1000", retention_bytes="1")
async def test_a_topic_that_is_only_compacted_keeps_old_records(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    values = await fill(node, range(100))
    await asyncio.sleep(1000)
    assert node.replica().log.start_offset == 0
    assert last_values(await read_all(node)) == values


@with_topic(min_cleanable_dirty_ratio="1")
async def test_a_damaged_log_is_given_up_and_the_others_go_on(
    cluster: ReplicaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    node = cluster[2]
    # Nothing is compacted yet: nothing is dirty enough.
    await fill(cluster[1], range(60))
    log = node.replica().log
    await until(lambda: node.directory.checkpointed(log)[0] > 50)
    node.disk.flip_bit(log.segments.all()[1].path, 70)
    for each in (1, 2):
        log = cluster[each].replica().log
        log.configure(replace(log.config, min_cleanable_dirty_ratio=0.1))
    await until(lambda: node.manager.cleaner.uncleanable_in(node.directory) == 1)
    await until(lambda: is_compacted(cluster[1], 30))
    assert node.replica().state is ReplicaState.ONLINE
    rounds = node.manager.cleaner.rounds
    await asyncio.sleep(5 * BACKOFF_MS / 1000)
    assert node.manager.cleaner.rounds == rounds
    told = [each for each in caplog.messages if "cannot be compacted" in each]
    assert len(told) == 1
    assert node.manager.cleaner.uncleanable_in(cluster[1].directory) == 0, "it is in another one"
    assert cluster[1].manager.cleaner.uncleanable_in(cluster[1].directory) == 0
    cluster.delete_topic()
    await until(lambda: not node.holds())
    assert node.manager.cleaner.uncleanable_in(node.directory) == 0, "before the next look, too"


@with_topic(min_cleanable_dirty_ratio="1", cleanup_policy="compact,delete")
async def test_a_damaged_log_is_compacted_again_when_the_damage_is_deleted(
    cluster: ReplicaCluster,
) -> None:
    leader, node = cluster[1], cluster[2]
    await fill(leader, range(60))
    log = node.replica().log
    await until(lambda: node.directory.checkpointed(log)[0] > 50)
    damaged = log.segments.all()[1]
    node.disk.flip_bit(damaged.path, 70)
    log.configure(replace(log.config, min_cleanable_dirty_ratio=0.1))
    cleaner = node.manager.cleaner
    await until(lambda: cleaner.uncleanable_in(node.directory) == 1)
    rounds = cleaner.rounds
    result = await leader.delete(log.segments.all()[2].base_offset)
    assert result.error is ErrorCode.NONE
    await until(lambda: cleaner.rounds > rounds, within_s=600)  # housekeeping removes the segments
    assert cleaner.uncleanable_in(node.directory) == 0


@with_topic
async def test_a_record_without_a_key_is_refused(cluster: ReplicaCluster) -> None:
    result = await cluster[1].produce(keyed_batch([(b"k", b"v"), (None, b"v")]))
    assert result.error is ErrorCode.INVALID_RECORD
    assert cluster[1].replica().log.end_offset == 0
    assert (await cluster[1].produce(make_batch())).error is ErrorCode.NONE


@with_topic(min_cleanable_dirty_ratio="1", max_compaction_lag_ms="60000")
async def test_a_log_that_is_dirty_for_too_long_is_compacted(cluster: ReplicaCluster) -> None:
    node = cluster[1]
    await fill(node, range(60))
    await asyncio.sleep(30)
    assert node.manager.cleaner.rounds == 0
    assert node.manager.cleaner.max_dirty_percent == 100
    await asyncio.sleep(40)
    assert node.manager.cleaner.rounds == 1


@with_brokers(log_cleaner_backoff_ms=BACKOFF_MS, log_cleaner_enable="false")
async def test_a_cleaner_that_is_turned_off_does_nothing(cluster: ReplicaCluster) -> None:
    cluster.create_topic((1, 2, 3), configs=CONFIGS)
    await settled(cluster)
    await fill(cluster[1], range(100))
    await asyncio.sleep(60)
    assert len(await read_all(cluster[1])) == 100
    assert cluster[1].manager.cleaner.max_dirty_percent == 0


@with_topic
async def test_a_deleted_topic_is_not_compacted_any_more(cluster: ReplicaCluster) -> None:
    await fill(cluster[1], range(200))
    await asyncio.sleep(5.2)  # the checkpoint is written, a compaction may be under way
    cluster.delete_topic()
    await until(lambda: not cluster[1].holds())
    assert not cluster[1].process.world.disk.exists("/data/orders-0")
    cluster.create_topic((1, 2, 3), configs=CONFIGS, topic_id=b"orders-made-anew")
    assert cluster[1].manager.cleaner.uncleanable_in(cluster[1].directory) == 0


@with_topic
async def test_what_is_not_committed_is_not_compacted(cluster: ReplicaCluster) -> None:
    await fill(cluster[1], range(100))
    await until(lambda: is_compacted(cluster[1], 30))
    cluster.simulation.fabric.isolate("b1", ["b2", "b3"])
    for number in range(100, 200):
        batch = keyed_batch([(b"k%d" % (number % 7), b"not committed")])
        await cluster[1].produce(batch, acks=1)
    replica = cluster[1].replica()
    high_watermark = replica.machine.high_watermark
    assert high_watermark <= 101
    # Two checkpoints, and less than it takes to lose the followers.
    await asyncio.sleep(8)
    above = [header for header, _ in replica.log.batches_now(high_watermark)]
    assert sum(header.record_count for header in above) == 200 - high_watermark
    values = last_values(await read_all(cluster[1]))
    assert values[b"k0"] == b"v98"


@with_brokers(
    log_cleaner_backoff_ms=BACKOFF_MS, replica_high_watermark_checkpoint_interval_ms=1000000
)
async def test_what_is_above_the_checkpointed_recovery_point_is_not_compacted(
    cluster: ReplicaCluster,
) -> None:
    cluster.create_topic((1, 2, 3), configs=CONFIGS)
    await settled(cluster)
    await fill(cluster[1], range(100))
    await asyncio.sleep(100)
    assert cluster[1].manager.cleaner.rounds == 0
    await cluster[1].process.run(cluster[1].directory.checkpoint())
    await until(lambda: is_compacted(cluster[1], 30))


@with_topic(min_cleanable_dirty_ratio="1")
async def test_a_log_that_failed_for_now_is_compacted_later(
    cluster: ReplicaCluster, caplog: pytest.LogCaptureFixture
) -> None:
    node = cluster[1]
    await fill(node, range(60))
    log = node.replica().log
    await until(lambda: node.directory.checkpointed(log)[0] > 50)
    node.disk.faults.quota_bytes = node.disk.used_bytes() + 10
    log.configure(replace(log.config, min_cleanable_dirty_ratio=0.1))
    await until(lambda: any("failed for now" in each for each in caplog.messages))
    assert node.manager.cleaner.rounds == 0
    node.disk.faults.quota_bytes = None
    await until(lambda: is_compacted(node, 30))
    assert node.manager.cleaner.uncleanable_in(node.directory) == 0


@replication.with_topic.having(
    settings={"log_cleaner_backoff_ms": 1000},
    **{name.replace(".", "_"): value for name, value in CONFIGS.items()},
)
async def test_settings_of_the_cleaner_and_of_producers_change_at_run_time(
    cluster: ReplicaCluster,
) -> None:
    assert cluster[1].replica().log.config.producer_id_expiration_ms == 86_400_000
    cluster.commit(
        *(
            pb.MetadataRecord(
                config=pb.ConfigRecord(
                    resource_type=pb.ConfigResourceType.BROKER,
                    resource_name=resource,
                    name=name,
                    value=value,
                )
            )
            for resource, name, value in (
                ("", "producer.id.expiration.ms", "7000"),
                ("1", "log.cleaner.backoff.ms", "3600000"),
            )
        )
    )
    await until(lambda: cluster[1].replica().log.config.producer_id_expiration_ms == 7000)
    await asyncio.sleep(2.0)  # the wait that was under way is over
    await fill(cluster[1], range(200))
    await until(lambda: is_compacted(cluster[2], 40))
    assert not is_compacted(cluster[1], 40), "its cleaner waits for an hour"


@with_topic(cleanup_policy="delete")
async def test_a_topic_that_is_not_compacted_keeps_older_values(cluster: ReplicaCluster) -> None:
    await fill(cluster[1], range(60))
    await asyncio.sleep(20 * BACKOFF_MS / 1000)
    assert all(node.manager.cleaner.rounds == 0 for node in cluster.nodes.values())
    assert [each.value for each in await read_all(cluster[1])] == [b"v%d" % n for n in range(60)]


async def write(node: Node, number: int, count: int) -> None:
    """Write values of three keys to one partition, of which a checkpoint knows afterwards."""
    for at in range(count):
        now_ms = node.process.world.clock.time_ms()
        some = keyed_batch([(b"k%d" % (at % 3), b"v%d" % at)], timestamp_ms=now_ms)
        partition = P0._replace(partition=number)
        assert (await node.produce(some, partition=partition)).error is ErrorCode.NONE
    await asyncio.sleep(10)


@with_brokers(brokers=1, log_cleaner_backoff_ms=60_000)
async def test_all_that_is_dirty_is_compacted_before_the_cleaner_rests(
    cluster: ReplicaCluster,
) -> None:
    cluster.create_topic((1,), (1,), (1,), configs=CONFIGS, min_insync=1)
    await settled(cluster)
    node = cluster[1]
    for number in range(3):
        await write(node, number, 50)
    assert node.manager.cleaner.rounds == 0
    await asyncio.sleep(60)
    assert node.manager.cleaner.rounds == 3


@with_brokers(brokers=1, log_cleaner_enable="false")
async def test_the_dirtiest_log_is_compacted_first(cluster: ReplicaCluster) -> None:
    """Partition 1 has as much that is clean as the other, and more that is not."""
    cluster.create_topic((1,), (1,), (1,), configs=CONFIGS, min_insync=1)
    await settled(cluster)
    node = cluster[1]
    cleaner = node.manager.cleaner

    def clean_ends() -> list[int]:
        logs = [node.replica(P0._replace(partition=number)).log for number in range(3)]
        return [node.directory.clean_end(log) for log in logs]

    for number in range(3):
        await write(node, number, 50)
        assert await node.process.run(cleaner.clean_dirtiest())
    before = clean_ends()
    assert all(before)
    for number, count in ((0, 30), (1, 90), (2, 30)):
        await write(node, number, count)
    assert await node.process.run(cleaner.clean_dirtiest())
    percent = cleaner.max_dirty_percent
    assert [end > was for end, was in zip(clean_ends(), before, strict=True)] == [
        False,
        True,
        False,
    ]
    assert await node.process.run(cleaner.clean_dirtiest())
    assert 0 < cleaner.max_dirty_percent < percent < 100


class Compacting:
    """A cleaner whose compactions last until the test ends them. ``paused``: what is not to be
    compacted. ``pauses``: whether it becomes so while the cleaner looks at the logs."""

    def __init__(
        self, node: Node, monkeypatch: pytest.MonkeyPatch, *, pauses: bool = False
    ) -> None:
        self.paused: set[PartitionId] = set()
        self.begun: list[PartitionLog] = []
        self.may_end = asyncio.Event()

        async def compact(log: PartitionLog, *_: object) -> object:
            self.begun.append(log)
            await self.may_end.wait()
            raise AbandonedError

        async def look(log: PartitionLog, *more: Any) -> Survey:
            found = await survey(log, *more)
            if pauses:
                self.paused.add(P0)
            return found

        monkeypatch.setattr(cleaner, "compact_log", compact)
        monkeypatch.setattr(cleaner, "survey", look)
        self.cleaner = Cleaner(
            node.manager.hosted,
            node.process.world.disk,
            node.cluster.config,
            is_paused=self.paused.__contains__,
        )


@pytest.mark.parametrize("pauses", [False, True])
@with_topic
async def test_a_log_that_is_to_be_copied_since_it_was_looked_at_is_not_compacted(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch, pauses: bool
) -> None:
    """The copy would get a record and not the tombstone that is compacted away with it."""
    node = cluster[1]
    await node.process.run(node.manager.cleaner.stop())
    await fill(node, range(30))
    await asyncio.sleep(10)  # a checkpoint
    each = Compacting(node, monkeypatch, pauses=pauses)
    each.may_end.set()
    assert await node.process.run(each.cleaner.clean_dirtiest())
    assert len(each.begun) == (0 if pauses else 1)


@with_topic((1, 2, 3), (1, 2, 3))
async def test_who_waits_for_a_log_does_not_wait_for_the_compaction_of_another_one(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = cluster[1]
    await node.process.run(node.manager.cleaner.stop())
    await fill(node, range(30))
    await asyncio.sleep(10)  # a checkpoint
    each = Compacting(node, monkeypatch)
    log, other = node.replica().log, node.replica(P0._replace(partition=1)).log
    await node.process.run(each.cleaner.leave(log))  # nothing is under way
    cleaning = asyncio.ensure_future(node.process.run(each.cleaner.clean_dirtiest()))
    await until(lambda: each.begun == [log])
    await node.process.run(each.cleaner.leave(other))
    leaving = asyncio.ensure_future(node.process.run(each.cleaner.leave(log)))
    await asyncio.sleep(1)
    assert not leaving.done()
    each.may_end.set()
    await leaving
    await cleaning
