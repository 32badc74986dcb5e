"""The law that compares the transactions in logs with what their coordinators decided."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.coordinator.step import Now
from broker.coordinator.transaction.config import TransactionConfig
from broker.coordinator.transaction.machine import TransactionMachine
from broker.coordinator.transaction.partitions import NO_PARTITIONS, TransactionPartitions
from broker.coordinator.transaction.records import RecordedTransaction, transaction_record
from broker.coordinator.transaction.types import TransactionState
from chaos.sim.laws.markers import MarkersFollowDecisions
from metadata.image import MetadataImage
from metadata.internal_topics import TRANSACTION_TOPIC
from metadata.partitions import PartitionState
from metadata.topics import Topic, Topics
from stele.ids import PartitionId, TopicPartition
from stele.wire.batch import BatchBuilder, stamp
from stele.wire.control_records import end_marker_batch
from tests.support.law_bench import PARTITION, TOPIC, LawBench

STATE = PartitionState((1, 2, 3), isr=(1, 2), leader=1, leader_epoch=5, partition_epoch=10)
DECIDING = PartitionId(bytes(15) + b"d", 0)
PRODUCER, EPOCH = 7, 3

ONGOING = RecordedTransaction(
    PRODUCER,
    EPOCH,
    1000,
    TransactionState.ONGOING,
    TransactionPartitions.of([TopicPartition(TOPIC, 0)]),
    1,
    client_version=2,
)
PREPARED = ONGOING._replace(state=TransactionState.PREPARE_COMMIT, producer_epoch=EPOCH + 1)
COMPLETE = PREPARED._replace(state=TransactionState.COMPLETE_COMMIT, partitions=NO_PARTITIONS)


class Bench(LawBench):
    """One partition, and one that decides about its transactions, both led by broker 1."""

    def __init__(self) -> None:
        super().__init__()
        self.law = MarkersFollowDecisions.of(self.scene)
        self.law.topics.add(TOPIC)
        topics = Topics.of(
            [
                Topic(TOPIC, PARTITION.topic_id, (STATE,)),
                Topic(TRANSACTION_TOPIC, DECIDING.topic_id, (STATE,)),
            ]
        )
        self.scene.image = MetadataImage(offset=50, topics=topics)

    def decide(self, broker_id: int, *values: RecordedTransaction) -> None:
        """The broker's replica has these records, and its coordinator knows them."""
        builder = BatchBuilder()
        machine = TransactionMachine(TransactionConfig(), lambda: 2)
        for offset, value in enumerate(values):
            record = transaction_record("teller", value, 2)
            builder.append(*record, timestamp_ms=1)
            machine.replay(offset, record, Now(0.0, 0))
        batches = [_stamped(builder.build(), 0)] if values else []
        self.replica(broker_id, *batches, state=STATE, topic=TRANSACTION_TOPIC, partition=DECIDING)
        broker = cast(Any, self.brokers[broker_id].node.broker)
        broker.transactions = SimpleNamespace(
            each_active=lambda: [(DECIDING.partition, STATE.leader_epoch, machine)]
        )

    def write(self, broker_id: int, *, marked: bool) -> None:
        """The broker's replica has a record of the transaction, and perhaps its marker."""
        builder = BatchBuilder()
        builder.append(None, b"x", timestamp_ms=1)
        data = builder.build(
            producer_id=PRODUCER, producer_epoch=EPOCH, base_sequence=0, is_transactional=True
        )
        marker = end_marker_batch(
            PRODUCER, EPOCH + 1, commit=True, coordinator_epoch=1, timestamp_ms=1
        )
        batches = [_stamped(data, 0), _stamped(marker, 1)][: 1 + marked]
        self.replica(broker_id, *batches, state=STATE, high_watermark=len(batches))


def _stamped(batch: bytearray, offset: int) -> bytearray:
    stamp(batch, 0, base_offset=offset, leader_epoch=STATE.leader_epoch)
    return batch


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_no_marker_comes_before_its_decision_is_committed(bench: Bench) -> None:
    for broker_id in (1, 2):
        bench.decide(broker_id, ONGOING, PREPARED)
    bench.write(1, marked=True)
    assert not bench.broken(bench.law)
    bench.decide(2, ONGOING)  # a member of the ISR lacks the decision
    (report,) = bench.broken(bench.law)
    assert "whose PrepareCommit is not committed" in report
    bench.write(1, marked=False)
    assert not bench.broken(bench.law)
    bench.write(1, marked=True)
    bench.decide(1, ONGOING._replace(producer_epoch=EPOCH + 1))  # the next transaction
    assert not bench.broken(bench.law)


@pytest.mark.parametrize("known", [(), (COMPLETE,), (ONGOING._replace(partitions=NO_PARTITIONS),)])
def test_a_coordinator_has_open_what_a_partition_has_open(
    bench: Bench, known: tuple[RecordedTransaction, ...]
) -> None:
    bench.write(1, marked=False)
    assert not bench.broken(bench.law), "no coordinator works"
    for value in (ONGOING, PREPARED):
        for broker_id in (1, 2):
            bench.decide(broker_id, value)
        assert not bench.broken(bench.law)
    for broker_id in (1, 2):
        bench.decide(broker_id, *known)
    (report,) = bench.broken(bench.law)
    assert "has an open transaction of producer 7" in report
    assert bench.law.looked > 2
    bench.write(1, marked=True)
    assert not bench.broken(bench.law)


def test_partitions_without_transactions_are_left_out(bench: Bench) -> None:
    bench.write(1, marked=False)
    bench.decide(1)
    bench.law.topics.clear()
    assert not bench.broken(bench.law)
