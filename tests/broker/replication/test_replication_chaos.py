"""Random faults on three brokers, by seed: what was acknowledged or read stays."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.compaction import keyed_batch
from tests.support.replica_cluster import ReplicaCluster
from tests.support.replication import with_brokers
from tests.support.replication_chaos import Chaos
from tests.support.timing import until


@pytest.mark.parametrize("min_insync", [1, 2])
@pytest.mark.parametrize("seed", range(3))
@with_brokers(replica_lag_time_max_ms=3_000)
async def test_nothing_acknowledged_or_read_is_ever_lost(
    cluster: ReplicaCluster, seed: int, min_insync: int
) -> None:
    chaos = Chaos(cluster, seed)

    cluster.create_topic((1, 2, 3), min_insync=min_insync)
    await until(lambda: all(node.holds() for node in cluster.nodes.values()))
    clients = [asyncio.ensure_future(chaos.write()) for _ in range(4)]
    clients.append(asyncio.ensure_future(chaos.consume()))
    clients.append(asyncio.ensure_future(chaos.watch()))
    await chaos.break_things(12)
    chaos.stopping = True
    await asyncio.gather(*clients)
    await chaos.verify()

    # A run in which nothing was written proves nothing.
    assert len(chaos.acknowledged) > 50, (len(chaos.acknowledged), chaos.refusals)
    assert chaos.read


class CompactedChaos(Chaos):
    """On a compacted topic with few keys."""

    KEYS = 5
    removed = 0  # records that compaction has removed, of all replicas

    def key_of(self, value: bytes) -> bytes:
        return b"key-%d" % (sum(value) % self.KEYS)

    def batch_of(self, value: bytes) -> bytearray:
        now_ms = self.cluster[1].process.world.clock.time_ms()
        return keyed_batch([(self.key_of(value), value)], timestamp_ms=now_ms)

    def judge(self, logs: list[dict[int, bytes | None]]) -> None:
        written = {b"value-%d" % (number + 1) for number in range(self.attempts)} | {b"last"}
        for log in logs:
            self.removed += max(log) + 1 - len(log)
            latest: dict[bytes, int] = {}
            for offset, value in log.items():
                assert value in written
                latest[self.key_of(value)] = offset
            for told in (self.acknowledged, self.read):
                for offset, value in told.items():
                    assert log.get(offset, value) == value, self.faults
                    # Only a later value of its key may have taken its place.
                    assert offset in log or latest[self.key_of(value)] > offset, self.faults
            final = {key: log[offset] for key, offset in latest.items()}
            assert final == {self.key_of(value or b""): value for value in logs[0].values()}


@pytest.mark.parametrize("seed", range(4))
@with_brokers(
    replica_lag_time_max_ms=3_000,
    log_cleaner_backoff_ms=20,
    replica_high_watermark_checkpoint_interval_ms=100,
)
async def test_a_compacted_log_holds_the_last_value_of_every_key(
    cluster: ReplicaCluster, seed: int
) -> None:
    chaos = CompactedChaos(cluster, seed)

    configs = {
        "cleanup.policy": "compact",
        "segment.bytes": "1024",
        "min.cleanable.dirty.ratio": "0.1",
    }
    cluster.create_topic((1, 2, 3), configs=configs)
    await until(lambda: all(node.holds() for node in cluster.nodes.values()))
    clients = [asyncio.ensure_future(chaos.write()) for _ in range(4)]
    clients.append(asyncio.ensure_future(chaos.consume()))
    await chaos.break_things(15)
    chaos.stopping = True
    await asyncio.gather(*clients)
    await chaos.verify()

    assert len(chaos.acknowledged) > 50, (len(chaos.acknowledged), chaos.refusals)
    assert chaos.removed > 50
