"""The law of compacted logs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos.sim.laws.compacted_logs import CompactedLogsKeepTheLastValues
from stele.wire.batch import BatchBuilder, read_header, stamp, stamp_max_timestamp
from stele.wire.control_records import end_marker_batch
from storage.compaction.offset_map import OffsetMap
from storage.compaction.rewriting import Rules, rewritten
from storage.config import LogConfig
from tests.support.law_bench import LawBench

RETENTION_MS = 5000
COMPACTED = LogConfig(compact=True, delete_old=False, delete_retention_ms=RETENTION_MS)

Written = tuple[int, bytes, bytes | None]
"""Offset, key and value."""

ALL: tuple[Written, ...] = ((0, b"a", b"1"), (1, b"b", b"2"), (2, b"a", b"3"), (3, b"c", b"4"))


def batch(offset: int, key: bytes, value: bytes | None, *, timestamp_ms: int = 7) -> bytearray:
    builder = BatchBuilder(offset)
    builder.append(key, value, timestamp_ms=timestamp_ms)
    return builder.build(leader_epoch=1)


def in_transaction(offset: int, key: bytes, value: bytes | None, producer_id: int = 9) -> bytearray:
    builder = BatchBuilder(offset)
    builder.append(key, value, timestamp_ms=7)
    return builder.build(
        leader_epoch=1,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def marker(offset: int, producer_id: int = 9, *, commit: bool) -> bytearray:
    made = end_marker_batch(producer_id, 0, commit=commit, coordinator_epoch=1, timestamp_ms=7)
    stamp(made, 0, base_offset=offset, leader_epoch=1)
    return made


class Bench(LawBench):
    """A law, and replicas of a compacted log."""

    def __init__(self) -> None:
        super().__init__()
        self.law = CompactedLogsKeepTheLastValues.of(self.scene)

    def holds(self, broker_id: int, *written: Written, clean_end: int = 0, **more: Any) -> None:
        """The broker's replica has these records, which are committed."""
        self.has(broker_id, *(batch(*each) for each in written), clean_end=clean_end, **more)

    def has(
        self,
        broker_id: int,
        *found: bytearray,
        clean_end: int = 0,
        config: LogConfig = COMPACTED,
        start_offset: int = 0,
        committed: int | None = None,
    ) -> None:
        replica = self.replica(broker_id, *found, config=config, high_watermark=0)
        replica.machine.high_watermark = replica.log.end_offset if committed is None else committed
        replica.log.advance_start_offset(start_offset)
        replica.directory = cast(Any, SimpleNamespace(clean_end=lambda _: clean_end))

    def found(self) -> list[str]:
        return self.broken(self.law)


def test_a_compacted_log_has_the_last_value_of_each_key() -> None:
    bench = Bench()
    bench.holds(1, *ALL)
    assert not bench.found()
    bench.holds(2, *ALL[1:], clean_end=3)
    bench.holds(1, *ALL[1:])
    assert not bench.found()
    bench.holds(2, ALL[0], *ALL[2:])
    (wrong,) = bench.found()
    assert "broker 2: the last value of b'b', at 1, is gone" in wrong
    assert bench.law.looked > 8


def test_the_greatest_timestamp_of_a_batch_agrees_with_its_records() -> None:
    bench = Bench()
    bench.has(1, batch(0, b"a", b"1"))
    assert not bench.found()
    wrong = batch(1, b"b", b"2")
    stamp_max_timestamp(wrong, read_header(wrong), 8)
    bench.has(1, batch(0, b"a", b"1"), wrong)
    assert "the header at 1 says 8 ms, and the batch's newest record is of 7 ms" in bench.found()[0]


def test_a_replica_that_is_behind_needs_no_value_that_was_replaced_later() -> None:
    bench = Bench()
    bench.holds(1, *ALL, (4, b"b", b"5"))
    assert not bench.found()
    bench.holds(2, *ALL[2:])  # as fetched from a leader that has compacted b"b" away
    assert not bench.found()
    bench.holds(2, *ALL[2:], (4, b"b", b"5"), committed=4)
    assert not bench.found()


@pytest.mark.parametrize(
    "other",
    [
        batch(2, b"a", b"else"),
        batch(2, b"else", b"3"),
        batch(2, b"a", None),
        batch(2, b"a", b"3", timestamp_ms=8),
    ],
)
def test_what_stays_is_what_was_written(other: bytearray) -> None:
    bench = Bench()
    bench.holds(1, *ALL)
    assert not bench.found()
    bench.has(2, batch(*ALL[1]), other, batch(*ALL[3]))
    assert any("was committed" in each for each in bench.found())


def test_no_key_comes_twice_below_the_clean_end() -> None:
    bench = Bench()
    bench.holds(1, *ALL, clean_end=2)
    assert not bench.found()
    bench.holds(1, *ALL, clean_end=3)
    (wrong,) = bench.found()
    assert "has b'a' at 0 and at 2" in wrong


def test_deleted_records_are_not_missed() -> None:
    bench = Bench()
    bench.holds(1, *ALL)
    assert not bench.found()
    bench.holds(1, *ALL[2:], start_offset=2)
    assert not bench.found()


def test_a_log_that_is_not_compacted_is_left_to_others() -> None:
    bench = Bench()
    bench.holds(1, *ALL, config=LogConfig())
    assert not bench.found()
    assert not bench.law.looked


OLD, NEW, BEHIND = batch(0, b"a", b"old"), in_transaction(1, b"a", b"new"), batch(4, b"z", b"")


def test_a_record_of_an_open_transaction_replaces_nothing() -> None:
    bench = Bench()
    bench.has(1, OLD, NEW, in_transaction(2, b"a", b"of another", 8), BEHIND)
    assert not bench.found()
    bench.has(1, NEW, BEHIND)
    (wrong,) = bench.found()
    assert "the last value of b'a', at 0, is gone" in wrong
    bench.has(1, OLD, BEHIND)  # nothing says yet that the record is a value
    assert not bench.found()


def test_a_record_counts_once_its_transaction_is_committed() -> None:
    bench = Bench()
    bench.has(1, OLD, NEW, marker(2, 8, commit=True), BEHIND)
    assert not bench.found()
    bench.has(1, NEW, BEHIND)
    assert bench.found(), "the marker is another producer's"
    bench.has(1, OLD, NEW, marker(2, 8, commit=True), marker(3, commit=True), BEHIND)
    assert not bench.found()
    bench.has(1, NEW, marker(3, commit=True), BEHIND)
    assert not bench.found()
    bench.has(1, OLD, marker(3, commit=True), BEHIND)
    (wrong,) = bench.found()
    assert "the last value of b'a', at 1, is gone" in wrong


def test_an_aborted_record_never_counts() -> None:
    bench = Bench()
    bench.has(1, OLD, NEW, marker(2, commit=False), marker(3, commit=True), BEHIND)
    assert not bench.found()
    bench.has(1, OLD, marker(2, commit=False), BEHIND)
    assert not bench.found()
    bench.has(1, NEW, marker(2, commit=False), BEHIND)
    (wrong,) = bench.found()
    assert "the last value of b'a', at 0, is gone" in wrong


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_may_be_seen_before_the_records_of_its_transaction(commit: bool) -> None:
    bench = Bench()
    earlier = in_transaction(0, b"b", b"1")
    bench.has(1, marker(2, commit=commit), in_transaction(3, b"a", b"next"), BEHIND)
    assert not bench.found()
    bench.has(2, earlier, NEW, marker(2, commit=commit), in_transaction(3, b"a", b"next"), BEHIND)
    assert not bench.found()
    bench.has(2, NEW, marker(2, commit=commit), BEHIND)  # without b"b"
    assert bool(bench.found()) is commit


def test_a_tombstone_stays_for_its_time() -> None:
    bench = Bench()
    gone = (*ALL, (4, b"b", None))
    bench.holds(1, *gone)
    assert not bench.found()
    bench.holds(1, *ALL[2:])
    assert not bench.found()  # it is behind, for all that is known
    bench.holds(1, *ALL[2:], (5, b"d", b""))
    (wrong,) = bench.found()
    assert "the tombstone of b'b' at 4 is gone" in wrong
    for node in bench.brokers.values():
        node.machine.clock.jump(RETENTION_MS)
    bench.holds(1, *ALL[2:], (5, b"d", b""))
    assert not bench.found()
    assert bench.law.dropped == 1


def test_a_clock_that_was_set_back_may_let_a_tombstone_go_earlier() -> None:
    bench = Bench()
    bench.holds(1, *ALL, (4, b"b", None))
    assert not bench.found()
    clock = bench.brokers[2].machine.clock
    clock.jump(-RETENTION_MS)
    bench.found()
    bench.holds(1, *ALL[2:], (5, b"d", b""))
    assert not bench.found()


def test_a_delete_horizon_lies_behind_the_retention_of_the_tombstone() -> None:
    bench = Bench()
    clock = bench.brokers[1].machine.clock
    bench.has(1, batch(0, b"a", None))
    assert not bench.found()
    for horizon_ms, is_early in (
        (clock.time_ms() + RETENTION_MS, False),
        (clock.time_ms() + RETENTION_MS - 2000, True),
    ):
        bench.has(1, with_horizon(batch(0, b"a", None), horizon_ms))
        assert bool(bench.found()) is is_early


def with_horizon(data: bytearray, horizon_ms: int) -> bytearray:
    """The batch as a cleaner leaves it that has found its tombstone."""
    nothing = OffsetMap(1 << 20, 0.9, 1)
    rules = Rules(nothing, 1, horizon_ms - RETENTION_MS, RETENTION_MS, frozenset(), frozenset())
    kept = rewritten(data, read_header(data), rules, is_aborted=False)
    assert kept is not None
    return bytearray(kept)
