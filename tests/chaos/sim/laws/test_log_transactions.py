"""The laws of transactions in logs: last stable offsets and transaction indexes."""

from __future__ import annotations

import pytest

from broker.partition.effects import LogPosition
from broker.replication.replica import Replica
from chaos.sim.laws.log_transactions import LogsKnowTheirTransactions
from chaos.sim.laws.stable_offsets import LastStableOffsetsOnlyRise
from metadata.partitions import PartitionState
from stele.wire.batch import BatchBuilder, stamp
from stele.wire.control_records import end_marker_batch
from storage.txn_index import AbortedTransaction, encode_aborted
from tests.support.law_bench import LawBench, image

STATE = PartitionState((1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=5, partition_epoch=10)
INDEX = f"/data/t-0/{0:020d}.txnindex"
ONE, OTHER = 7, 8


def stamped(batch: bytearray, offset: int) -> bytearray:
    stamp(batch, 0, base_offset=offset, leader_epoch=STATE.leader_epoch)
    return batch


def records(offset: int, producer_id: int = ONE, sequence: int = 0) -> bytearray:
    """A batch of one record in a transaction."""
    builder = BatchBuilder()
    builder.append(None, b"x", timestamp_ms=1)
    batch = builder.build(
        producer_id=producer_id, producer_epoch=0, base_sequence=sequence, is_transactional=True
    )
    return stamped(batch, offset)


def marker(offset: int, producer_id: int = ONE, *, commit: bool) -> bytearray:
    batch = end_marker_batch(producer_id, 0, commit=commit, coordinator_epoch=1, timestamp_ms=1)
    return stamped(batch, offset)


@pytest.fixture
def bench() -> LawBench:
    made = LawBench()
    made.commit(image(50, STATE))
    return made


@pytest.fixture
def law() -> LogsKnowTheirTransactions:
    made = LogsKnowTheirTransactions()
    made.topics.add("t")
    return made


def follower(bench: LawBench, *batches: bytearray, high_watermark: int) -> Replica:
    """A replica whose machine knows what its log says."""
    replica = bench.replica(2, *batches, state=STATE)
    log = replica.log
    position = LogPosition(
        log.start_offset,
        log.end_offset,
        log.durable_offset,
        log.truncation_generation,
        log.transactions.first_open_offset,
    )
    replica.machine.copied(position, high_watermark)
    return replica


def test_an_open_transaction_holds_the_last_stable_offset(
    bench: LawBench, law: LogsKnowTheirTransactions
) -> None:
    replica = follower(bench, records(0), records(1, OTHER), high_watermark=2)
    assert replica.machine.last_stable_offset == 0
    assert not bench.broken(law)
    replica.machine.copied(LogPosition(0, 2, 2, 0), 2)  # it forgets them
    (report,) = bench.broken(law)
    assert "is stable up to 2, by its batches up to 0" in report


def test_a_transaction_is_open_until_its_marker_is_committed(
    bench: LawBench, law: LogsKnowTheirTransactions
) -> None:
    ended = records(0), records(1, OTHER), marker(2, commit=True), marker(3, OTHER, commit=True)
    replica = follower(bench, *ended, high_watermark=3)
    (report,) = bench.broken(law)  # nobody has told the machine of the second marker
    assert "is stable up to 3, by its batches up to 1" in report
    replica.machine.transaction_ended(1, 3)
    assert not bench.broken(law)
    replica.machine.copied(replica.machine.log, 4)
    assert not bench.broken(law)
    assert law.looked > 0


def test_the_index_has_the_aborted_transactions_and_no_others(
    bench: LawBench, law: LogsKnowTheirTransactions
) -> None:
    ended = records(0), records(1, OTHER), marker(2, commit=False), marker(3, OTHER, commit=True)
    follower(bench, *ended, high_watermark=4)
    assert not bench.broken(law)
    right = AbortedTransaction(ONE, 0, 2, 1)
    for wrong in ([], [right, AbortedTransaction(OTHER, 1, 3, 4)], [right._replace(last_offset=3)]):
        bench.put(2, INDEX, encode_aborted(wrong))
        (report,) = bench.broken(law)
        assert "the indexes lack" in report


def test_topics_without_transactions_are_left_out(bench: LawBench) -> None:
    replica = follower(bench, records(0), high_watermark=1)
    replica.machine.copied(LogPosition(0, 1, 1, 0), 1)
    assert not bench.broken(LogsKnowTheirTransactions())


def test_a_last_stable_offset_does_not_go_back_in_an_epoch(bench: LawBench) -> None:
    law = LastStableOffsetsOnlyRise.of(bench.scene)
    leading = bench.replica(1, records(0), state=STATE, high_watermark=1)

    def look() -> list[str]:
        bench.scene.leading = [(bench.sim_node(1), leading)]
        return bench.broken(law)

    assert leading.machine.last_stable_offset == 1
    assert not look()
    assert not look()
    assert law.looked == 1
    leading.machine.appended(LogPosition(0, 1, 1, 0, first_open_offset=0), 0.0)
    assert look() == ["the last stable offset of t-0 in epoch 5 went back from 1 to 0"]
