"""Records of transactions: verified by a coordinator, decided by markers, and shown to readers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from broker.replication.types import FetchResult, Marker, TransactionalWrite
from stele.errors import ErrorCode
from stele.ids import PartitionId, TopicPartition
from stele.wire.batch import batches
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, Node, ReplicaCluster
from tests.support.replication import with_topic
from tests.support.timing import until

OLD = TransactionalWrite("t", adds_partition=False)
NEW = TransactionalWrite("t", adds_partition=True)
Done = Callable[[ErrorCode], None]


class Coordinator:
    """Answers at once, or when the test lets it."""

    def __init__(self, *nodes: Node) -> None:
        self.verdict: ErrorCode | None = ErrorCode.NONE
        self.asked: list[tuple[str, int, int, TopicPartition, bool]] = []
        self.waiting: list[Done] = []
        for node in nodes:
            node.manager.set_verifier(self)

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partition: TopicPartition,
        *,
        add: bool,
        done: Done,
    ) -> None:
        self.asked.append((transactional_id, producer_id, producer_epoch, partition, add))
        if self.verdict is None:
            self.waiting.append(done)
        else:
            done(self.verdict)

    def answer(self, error: ErrorCode = ErrorCode.NONE) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            done(error)


def batch(
    sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 5, open_: bool = True
) -> bytearray:
    return make_batch(count, producer=(producer_id, epoch, sequence), is_transactional=open_)


def marker(
    *,
    commit: bool = True,
    epoch: int = 6,
    version: int = 2,
    coordinator_epoch: int = 1,
    producer_id: int = 7,
    partition: PartitionId = P0,
) -> Marker:
    return Marker(partition, producer_id, epoch, commit, coordinator_epoch, version)


def spans(fetched: FetchResult) -> list[int]:
    return [header.base_offset for data in fetched.records for _, header in batches(data)]


Scenario = Callable[[ReplicaCluster, Coordinator], Awaitable[None]]


def transactional(scenario: Scenario) -> None:
    async def whole(cluster: ReplicaCluster) -> None:
        await scenario(cluster, Coordinator(*cluster.nodes.values()))

    # The markers are much younger than the records.
    with_topic(whole, segment_ms=str(1 << 60))


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_shown_when_its_marker_is_committed(commit: bool) -> None:
    async def scenario(cluster: ReplicaCluster, coordinator: Coordinator) -> None:
        leader = cluster[1]
        written = await leader.produce(batch(0, 2), transaction=NEW)
        assert (written.error, written.base_offset) == (ErrorCode.NONE, 0)
        assert (await leader.produce(batch(2), transaction=NEW)).base_offset == 2
        assert (await leader.produce()).base_offset == 3  # of nobody's transaction
        assert coordinator.asked == [("t", 7, 5, TopicPartition("orders", 0), True)]
        fetched = await leader.fetch(0, read_committed=True)
        assert (fetched.high_watermark, fetched.last_stable_offset) == (4, 0)
        assert spans(fetched) == []
        assert spans(await leader.fetch(0)) == [0, 2, 3]
        assert await leader.mark(marker(commit=commit)) == [ErrorCode.NONE]
        fetched = await leader.fetch(0, read_committed=True)
        assert (fetched.high_watermark, fetched.last_stable_offset) == (5, 5)
        assert spans(fetched) == [0, 2, 3, 4]
        aborted = [(each.producer_id, each.first_offset) for each in fetched.aborted]
        assert aborted == ([] if commit else [(7, 0)])
        assert list((await leader.fetch(3, read_committed=True)).aborted) == (
            [] if commit else list(fetched.aborted)
        )
        assert (await leader.fetch(0)).aborted == ()
        replicas = [node.replica() for node in cluster.nodes.values()]
        await until(lambda: all(each.machine.last_stable_offset == 5 for each in replicas))
        assert all(each.log.producers.first_open_offset > 5 for each in replicas)

    transactional(scenario)


def test_a_reader_of_committed_records_waits_for_the_marker() -> None:
    async def scenario(cluster: ReplicaCluster, coordinator: Coordinator) -> None:
        leader = cluster[1]
        await leader.produce(batch(0), transaction=NEW)
        reader = asyncio.ensure_future(
            leader.fetch(0, read_committed=True, max_wait_ms=10_000, min_bytes=100)
        )
        await asyncio.sleep(0.2)
        await leader.produce()
        await asyncio.sleep(0.2)
        assert not reader.done()
        await leader.mark(marker())
        assert spans(await reader) == [0, 1, 2]

    transactional(scenario)
