"""The laws of what leaders of share partitions and share coordinators hold in memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from broker.coordinator.share.machine import ShareMachine
from broker.coordinator.share.records import StateUpdate, snapshot_record, update_record
from broker.coordinator.share.types import ShareState, StateKey
from broker.coordinator.step import KeyValue, Now
from broker.share.machine import SharePartition
from broker.share.values import Limits, ReadBatch, RecordState, StateBatch
from chaos.sim.laws.decided_records import DecidedRecordsStayDecided
from chaos.sim.laws.share_coordinator_logs import ShareCoordinatorsReplayTheirLogs
from chaos.sim.laws.share_windows import StartOffsetsPassDoneRecords
from chaos.sim.laws.shared_records import RecordName
from metadata.image import MetadataImage
from metadata.internal_topics import SHARE_TOPIC
from metadata.partitions import PartitionState
from metadata.topics import Topic, Topics
from stele.ids import PartitionId
from stele.wire.batch import BatchBuilder
from tests.support.law_bench import PARTITION, TOPIC, LawBench, image

STATE = PartitionState((1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=5, partition_epoch=10)
STATES = PartitionId(bytes(15) + b"s", 0)
KEY = StateKey("g", PARTITION.topic_id, 0)
LIMITS = Limits(record_lock_duration_ms=1_000, partition_max_record_locks=100)
DONE, FREE = RecordState.ACKNOWLEDGED, RecordState.AVAILABLE


class Bench(LawBench):
    """Broker 1 leads a share partition, and coordinates its state."""

    def __init__(self) -> None:
        super().__init__()
        decided = DecidedRecordsStayDecided.of(self.scene)
        self.scene.add(decided)
        self.records = decided.records
        self.records.delivery_limits["g"] = 2
        self.windows = StartOffsetsPassDoneRecords.of(self.scene)
        self.logs = ShareCoordinatorsReplayTheirLogs.of(self.scene)
        self.commit(image(50, STATE))
        self.replica(1, state=STATE)
        self.led: list[Any] = []
        self.machine = ShareMachine(lambda topic_id, number: True)
        self.epoch = 5
        coordinators = SimpleNamespace(each_active=lambda: [(0, self.epoch, self.machine)])
        self.brokers[1].node.broker.sharing = SimpleNamespace(
            partitions=self.led, coordinators=coordinators
        )

    def lead(self, start: int, *batches: StateBatch) -> SharePartition:
        machine = SharePartition(start, batches, LIMITS)
        self.led.append(Led(machine))
        return machine

    def decide(self, *offsets: int) -> None:
        for offset in offsets:
            self.records.of(RecordName("g", (TOPIC, 0), offset)).is_decided = True

    def log(self, *records: KeyValue, forgets: int = 0) -> None:
        """The log of the share coordinator's partition has these records, all of them committed.
        The coordinator forgets the last ones."""
        builder = BatchBuilder()
        for each in records:
            builder.append(each.key, each.value, timestamp_ms=1)
        self.replica(
            1,
            builder.build(),
            state=STATE,
            topic=SHARE_TOPIC,
            partition=STATES,
            high_watermark=len(records),
        )
        self.machine = ShareMachine(lambda topic_id, number: True)
        for offset, each in enumerate(records[: len(records) - forgets]):
            self.machine.replay(offset, each, Now(0.0, 0))


class Led:
    """A fake ``LedSharePartition``."""

    key = KEY

    def __init__(self, machine: SharePartition) -> None:
        self.machine = machine


def state(start: int, *batches: StateBatch, leader_epoch: int = 5) -> ShareState:
    return ShareState(0, 1, leader_epoch, start, 0, 0, 0, batches)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_start_offset_passes_only_records_that_are_done(bench: Bench) -> None:
    bench.decide(0, 1)
    bench.lead(2)
    assert not bench.broken(bench.windows)
    bench.lead(3)
    (report,) = bench.broken(bench.windows)
    assert "at 2: it is done" in report
    assert not bench.broken(bench.windows), "once is enough"


def test_a_final_record_in_the_window_is_done(bench: Bench) -> None:
    bench.decide(4)
    bench.lead(0, StateBatch(4, 4, DONE, 1))
    assert not bench.broken(bench.windows)
    bench.lead(0, StateBatch(3, 4, DONE, 1))
    assert len(bench.broken(bench.windows)) == 1


def test_a_share_coordinator_takes_only_done_records_for_done(bench: Bench) -> None:
    bench.decide(0, 2)
    bench.log(snapshot_record(KEY, state(1, StateBatch(2, 2, DONE, 1), StateBatch(3, 5, FREE, 1))))
    assert not bench.broken(bench.windows)
    bench.log(snapshot_record(KEY, state(1, StateBatch(2, 3, DONE, 1))))
    assert len(bench.broken(bench.windows)) == 1


def test_at_one_leader_a_start_offset_never_goes_back(bench: Bench) -> None:
    bench.decide(0, 1)
    bench.lead(2)
    assert not bench.broken(bench.windows)
    bench.led[0].machine = SharePartition(1, (), LIMITS)
    assert len(bench.broken(bench.windows)) == 1
    bench.led[:] = [Led(SharePartition(1, (), LIMITS))]  # the next leader
    assert not bench.broken(bench.windows)


def test_a_window_has_no_hole_and_its_acquired_records_have_a_lock(bench: Bench) -> None:
    machine = bench.lead(0)
    now_ms = int(bench.brokers[1].machine.clock.monotonic() * 1000)
    machine.acquire("m", 0, [ReadBatch(0, 9)], 10, now_ms)
    assert not bench.broken(bench.windows)
    (only,) = machine.ranges()
    only.holder = ""
    assert len(bench.broken(bench.windows)) == 1
    only.holder, only.lock_until_ms = "m", now_ms + 5_000
    assert len(bench.broken(bench.windows)) == 1
    only.lock_until_ms, only.first = now_ms + 1_000, 1
    assert len(bench.broken(bench.windows)) == 1
    only.first, only.last = 0, 100
    (report,) = bench.broken(bench.windows)
    assert "101 in flight" in report


def test_other_groups_are_not_watched(bench: Bench) -> None:
    bench.records.delivery_limits.clear()
    bench.lead(7)
    assert not bench.broken(bench.windows)
    bench.records.delivery_limits["h"] = 2
    assert not bench.broken(bench.windows)


def test_a_share_coordinator_has_what_its_log_says(bench: Bench) -> None:
    bench.scene.image = MetadataImage(
        offset=50, topics=Topics.of([Topic(SHARE_TOPIC, STATES.topic_id, (STATE,))])
    )
    snapshot = snapshot_record(KEY, state(0))
    update = update_record(KEY, StateUpdate(0, 5, 3, 0, ()))
    bench.log(snapshot, update)
    assert not bench.broken(bench.logs)
    assert bench.logs.looked
    bench.log(snapshot, update, update_record(KEY, StateUpdate(0, 5, 4, 0, ())), forgets=1)
    assert len(bench.broken(bench.logs)) == 1


@pytest.mark.parametrize(
    "later",
    [
        state(2, StateBatch(4, 5, DONE, 1)),
        state(3, StateBatch(4, 5, DONE, 1), leader_epoch=4),
        state(3, StateBatch(4, 5, DONE, 1))._replace(state_epoch=0),
        state(3, StateBatch(5, 5, DONE, 1)),
        state(3, StateBatch(4, 4, DONE, 1), StateBatch(5, 5, FREE, 2)),
    ],
)
def test_a_committed_state_never_goes_back(bench: Bench, later: ShareState) -> None:
    snapshot = snapshot_record(KEY, state(3, StateBatch(4, 5, DONE, 1)))
    bench.log(snapshot)
    assert not bench.broken(bench.logs)
    bench.log(snapshot, snapshot_record(KEY, later))
    assert len(bench.broken(bench.logs)) == 1


@pytest.mark.parametrize(
    "later",
    [
        state(6, leader_epoch=7),
        state(5, StateBatch(5, 5, DONE, 1)),
        state(0)._replace(state_epoch=2),  # its offsets were set anew
    ],
)
def test_a_committed_state_may_go_on(bench: Bench, later: ShareState) -> None:
    snapshot = snapshot_record(KEY, state(3, StateBatch(4, 5, DONE, 1)))
    bench.log(snapshot)
    assert not bench.broken(bench.logs)
    bench.log(snapshot, snapshot_record(KEY, later))
    assert not bench.broken(bench.logs)
