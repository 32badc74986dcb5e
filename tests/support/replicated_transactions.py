"""Transactions as leaders of partitions meet them: a coordinator's verdicts, batches, markers."""

from __future__ import annotations

from collections.abc import Callable

from broker.replication.types import (
    FetchResult,
    Marker,
    TransactionalWrite,
)
from stele.errors import ErrorCode
from stele.ids import PartitionId, TopicPartition
from stele.wire.batch import batches
from tests.support.batches import make_batch
from tests.support.replica_cluster import P0, Node, ReplicaCluster
from tests.support.replication import with_topic
from tests.support.worlds import Scenario, gives

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
            node.manager.produce.transactional.verifier = self

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

    async def answer(self, node: Node, error: ErrorCode = ErrorCode.NONE) -> None:
        """In the broker's process, whose sockets and files it leads to."""

        async def inside() -> None:
            waiting, self.waiting = self.waiting, []
            for done in waiting:
                done(error)

        await node.process.run(inside())


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


@gives("cluster", "coordinator")
def transactional(scenario: Scenario) -> None:
    async def whole(cluster: ReplicaCluster) -> None:
        await scenario(cluster, Coordinator(*cluster.nodes.values()))

    # The markers are much younger than the records.
    with_topic.run(whole, segment_ms=str(1 << 60))
