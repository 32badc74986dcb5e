"""The share partition, one promise at a time."""

from __future__ import annotations

import pytest

from broker.share.acknowledgements import runs_of
from broker.share.machine import SharePartition
from broker.share.values import (
    NO_DEADLINE,
    NO_TIME,
    AcknowledgementBatch,
    AcknowledgeType,
    DeliveryEnd,
    Limits,
    ReadBatch,
    RecordState,
    StateBatch,
    VainDelivery,
)
from broker.sharing.window_description import describe_window
from stele.errors import ApiError, ErrorCode

AVAILABLE, ACQUIRED = RecordState.AVAILABLE, RecordState.ACQUIRED
ACKNOWLEDGED, ARCHIVED = RecordState.ACKNOWLEDGED, RecordState.ARCHIVED
AT_ONCE = Limits(record_lock_duration_ms=100, delivery_count_limit=4, partition_max_record_locks=12)
DELAYED = AT_ONCE._replace(backoff_ms=30, backoff_max_ms=70)


def told(first: int, last: int, kind: AcknowledgeType) -> list[AcknowledgementBatch]:
    return [AcknowledgementBatch(first, last, [kind])]


def filled(count: int, limits: Limits = AT_ONCE, member: str = "m1") -> SharePartition:
    """All of the first records are acquired, as one batch, at time 0."""
    partition = SharePartition(0, (), limits)
    partition.acquire(member, 0, [ReadBatch(0, count - 1)], count, 0)
    return partition


def test_a_suspect_is_delivered_in_ever_smaller_parts_and_alone_in_the_end() -> None:
    limits = Limits(record_lock_duration_ms=10, delivery_count_limit=6)
    partition = SharePartition(0, (), limits)
    now_ms = deliver_in_vain_exactly(partition, 256, times=3, now_ms=0)
    sizes = []
    for _ in range(3):
        (acquired,) = partition.acquire("m1", 0, [ReadBatch(0, 300)], 1000, now_ms)
        sizes.append(acquired.last - acquired.first + 1)
        now_ms += 10
        partition.advance(now_ms)
    assert sizes == [128, 32, 1]
    assert partition.start_offset == 1  # the first record was delivered six times


def test_a_strict_limit_holds_for_suspects_too() -> None:
    limits = Limits(record_lock_duration_ms=10, delivery_count_limit=6)
    partition = SharePartition(0, [StateBatch(0, 63, AVAILABLE, 3)], limits)
    got = partition.acquire("m1", 0, [ReadBatch(0, 63)], 5, 0, is_strict=True)
    assert [(each.first, each.last) for each in got] == [(0, 4)]


def test_records_are_taken_around_those_that_others_have_or_that_come_later() -> None:
    partition = SharePartition(0, (), DELAYED)
    partition.acquire("m1", 0, [ReadBatch(0, 5)], 9, 0)
    write = partition.acknowledge("m1", told(1, 1, AcknowledgeType.RELEASE), 1)
    assert write is not None
    partition.end_session("m1", 1)  # all others are available at once
    partition.acquire("m2", 3, [ReadBatch(3, 3)], 1, 1)
    partition.written(write.number, 1)
    got = partition.acquire("m3", 0, [ReadBatch(0, 5)], 3, 1, is_strict=True)
    assert [(each.first, each.last) for each in got] == [(0, 0), (2, 2), (4, 4)]
    assert partition.fetch_offset() == 5
    partition.advance(31)
    assert partition.fetch_offset() == 1


def test_a_delayed_record_is_not_the_next_to_be_read() -> None:
    partition = SharePartition(0, (), DELAYED)
    partition.acquire("m1", 0, [ReadBatch(0, 2)], 3, 0)
    write = partition.acknowledge("m1", told(1, 1, AcknowledgeType.RELEASE), 1)
    assert write is not None
    partition.end_session("m1", 1)
    partition.written(write.number, 1)
    assert partition.fetch_offset() == 0
    partition.acquire("m2", 0, [ReadBatch(0, 0)], 1, 1)
    assert partition.fetch_offset() == 2


def test_a_batch_before_the_offset_says_nothing_of_the_log_behind_it() -> None:
    partition = filled(4)
    partition.end_session("m1", 1)
    got = partition.acquire("m1", 2, [ReadBatch(0, 1), ReadBatch(2, 3)], 9, 1)
    assert [(each.first, each.last) for each in got] == [(2, 3)]
    assert partition.fetch_offset() == 0


def test_a_large_gap_is_passed_at_once_where_nothing_is_in_flight() -> None:
    partition = SharePartition(0, (), AT_ONCE)
    got = partition.acquire("m1", 0, [ReadBatch(1000, 1001)], 9, 0)
    assert [(each.first, each.last) for each in got] == [(1000, 1001)]
    assert partition.start_offset == 1000


def deliver_in_vain_exactly(
    partition: SharePartition, count: int, *, times: int, now_ms: int
) -> int:
    for _ in range(times):
        (acquired,) = partition.acquire("m1", 0, [ReadBatch(0, count - 1)], count, now_ms)
        assert (acquired.first, acquired.last) == (0, count - 1)
        now_ms += partition.limits.record_lock_duration_ms
        partition.advance(now_ms)
    return now_ms


def test_a_suspect_waits_for_its_own_delivery_behind_others() -> None:
    state = [StateBatch(2, 2, AVAILABLE, 3)]
    partition = SharePartition(0, state, AT_ONCE._replace(delivery_count_limit=6))
    first = partition.acquire("m1", 0, [ReadBatch(0, 4)], 10, 0)
    assert [(each.first, each.last) for each in first] == [(0, 1)]
    second = partition.acquire("m1", 2, [ReadBatch(0, 4), ReadBatch(5, 6)], 10, 0)
    assert [(each.first, each.last, each.delivery_count) for each in second] == [(2, 2, 4)]


@pytest.mark.parametrize(
    ("limit", "suspect_count"), [(2, 2), (3, 2), (4, 2), (5, 3), (6, 3), (10, 5)]
)
def test_a_record_is_suspect_from_half_of_its_deliveries_on(limit: int, suspect_count: int) -> None:
    assert Limits(delivery_count_limit=limit).suspect_count == suspect_count


def test_the_delay_of_a_released_record_doubles_up_to_its_bound() -> None:
    limits = Limits(backoff_ms=10, backoff_max_ms=35)
    assert [limits.backoff_after(count) for count in (1, 2, 3, 99)] == [10, 20, 35, 35]
    assert Limits(backoff_max_ms=35).backoff_after(1) == 0


def test_the_end_of_a_rest_is_described_by_the_clock_on_the_wall() -> None:
    partition = SharePartition(0, (), DELAYED)
    partition.acquire("m1", 0, [ReadBatch(0, 1)], 10, 5)
    release = AcknowledgementBatch(0, 0, [AcknowledgeType.RELEASE])
    write = partition.acknowledge("m1", [release], 10)
    assert write is not None
    partition.written(write.number, 20)
    window = describe_window(partition, 25, 1_025, 0, 10)
    assert [each.due_ms for each in window.ranges] == [1_050, NO_TIME]


@pytest.mark.parametrize(
    "batches",
    [
        [(3, 2, [AcknowledgeType.ACCEPT])],
        [(0, 1, [AcknowledgeType.ACCEPT]), (1, 2, [AcknowledgeType.ACCEPT])],
        [(2, 3, [AcknowledgeType.ACCEPT]), (0, 0, [AcknowledgeType.ACCEPT])],
        [(-1, 3, [AcknowledgeType.ACCEPT])],
        [(0, 2, [AcknowledgeType.ACCEPT, AcknowledgeType.ACCEPT])],
        [(0, 2, [])],
    ],
)
def test_batches_out_of_order_are_an_invalid_request(
    batches: list[tuple[int, int, list[AcknowledgeType]]],
) -> None:
    partition = filled(4)
    with pytest.raises(ApiError) as refused:
        partition.acknowledge("m1", [AcknowledgementBatch(*each) for each in batches], 1)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_no_batch_counts_if_one_may_not() -> None:
    partition = filled(4)
    accept = [AcknowledgeType.ACCEPT]
    with pytest.raises(ApiError) as refused:
        partition.acknowledge(
            "m1", [AcknowledgementBatch(0, 1, accept), AcknowledgementBatch(3, 4, accept)], 1
        )
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    assert partition.acknowledge("m1", [AcknowledgementBatch(0, 3, accept)], 1) is not None


def test_a_record_whose_decision_is_being_written_cannot_be_decided_again() -> None:
    partition = filled(2)
    batches = [AcknowledgementBatch(0, 1, [AcknowledgeType.ACCEPT])]
    write = partition.acknowledge("m1", batches, 1)
    assert write is not None
    with pytest.raises(ApiError, match="no record at offset 0"):
        partition.acknowledge("m1", batches, 1)
    partition.advance(1000)  # the lock does not end meanwhile
    partition.written(write.number, 1000)
    assert partition.start_offset == 2
    assert partition.acknowledge("m1", batches, 1) is None  # skipped: they are done


def test_a_failed_write_gives_the_records_back_to_their_member() -> None:
    partition = filled(2)
    batches = [AcknowledgementBatch(0, 1, [AcknowledgeType.REJECT])]
    write = partition.acknowledge("m1", batches, 1)
    assert write is not None
    assert partition.failed(write.number, 99) is None
    again = partition.acknowledge("m1", batches, 99)
    assert again is not None
    assert again.number != write.number
    late = partition.failed(again.number, 100)  # the lock has ended
    assert late is not None
    assert late.batches == (StateBatch(0, 1, AVAILABLE, 1),)
    assert partition.fetch_offset() == 0


def test_a_lock_can_be_renewed_only_where_the_group_allows_it() -> None:
    renew = [AcknowledgementBatch(0, 1, [AcknowledgeType.RENEW])]
    partition = filled(2)
    assert partition.acknowledge("m1", renew, 60) is None
    assert partition.advance(100) is None
    assert partition.next_deadline_ms == 160
    assert partition.advance(160) is not None
    refusing = filled(2, AT_ONCE._replace(renew_acknowledge_enable=False))
    with pytest.raises(ApiError, match=r"share\.renew\.acknowledge\.enable is false"):
        refusing.acknowledge("m1", renew, 60)
    accept = [AcknowledgementBatch(0, 1, [AcknowledgeType.ACCEPT])]
    assert refusing.acknowledge("m1", accept, 60) is not None


def test_the_next_deadline_is_the_earliest_of_locks_and_delays() -> None:
    partition = SharePartition(0, (), DELAYED)
    assert partition.next_deadline_ms == NO_DEADLINE
    partition.acquire("m1", 0, [ReadBatch(0, 0)], 1, 0)
    partition.acquire("m1", 1, [ReadBatch(1, 1)], 1, 50)
    release = [AcknowledgementBatch(1, 1, [AcknowledgeType.RELEASE])]
    write = partition.acknowledge("m1", release, 60)
    assert write is not None
    partition.written(write.number, 60)
    assert partition.next_deadline_ms == 90  # the record at offset 1 is due
    partition.advance(90)
    assert partition.fetch_offset() == 1
    assert partition.next_deadline_ms == 100  # the lock of the record at offset 0 ends


def test_records_read_from_behind_the_window_are_a_fault_of_the_caller() -> None:
    with pytest.raises(ValueError, match="read from 1 on, after 0"):
        SharePartition(0, (), AT_ONCE).acquire("m1", 1, [ReadBatch(1, 1)], 1, 0)


def test_each_write_has_a_number_of_its_own() -> None:
    partition = filled(4)
    writes = [
        partition.acknowledge("m1", [AcknowledgementBatch(0, 0, [AcknowledgeType.ACCEPT])], 1),
        partition.log_begins_at(2, 1),
        partition.end_session("m1", 1),
    ]
    assert [each.number for each in writes if each is not None] == [0, 1, 2]


def test_records_that_are_done_at_the_start_are_left_out_of_the_window() -> None:
    state = [StateBatch(5, 6, ACKNOWLEDGED, 1), StateBatch(8, 8, ARCHIVED, 5)]
    partition = SharePartition(5, state, AT_ONCE)
    assert (partition.start_offset, partition.end_offset, partition.done_count) == (7, 9, 1)
    assert partition.fetch_offset() == 7


def test_ranges_that_become_alike_are_one_again() -> None:
    """Otherwise a window would have a range for each record that was ever decided by itself."""
    partition = filled(12, Limits())
    for offset in (1, 3, 2, 5, 4, 7, 6):
        accept = [AcknowledgementBatch(offset, offset, [AcknowledgeType.ACCEPT])]
        write = partition.acknowledge("m1", accept, 1)
        assert write is not None
        partition.written(write.number, 1)
    shown = [(each.first, each.last, each.state) for each in partition.ranges()]
    assert shown == [(0, 0, ACQUIRED), (1, 7, ACKNOWLEDGED), (8, 11, ACQUIRED)]
    partition.acquire("m2", 12, [ReadBatch(12, 13)], 2, 2)
    partition.end_session("m1", 2)
    shown = [(each.first, each.last, each.state) for each in partition.ranges()]
    assert shown[-2:] == [(8, 11, AVAILABLE), (12, 13, ACQUIRED)]
    refused = partition.acknowledge("m2", [AcknowledgementBatch(12, 12, [AcknowledgeType.GAP])], 3)
    assert refused is not None
    partition.failed(refused.number, 3)
    shown = [(each.first, each.last, each.state) for each in partition.ranges()]
    assert shown[-1] == (12, 13, ACQUIRED)


def test_records_with_decisions_of_their_own_stay_apart() -> None:
    partition = filled(3)
    first = partition.acknowledge("m1", told(0, 0, AcknowledgeType.ACCEPT), 1)
    second = partition.acknowledge("m1", told(1, 1, AcknowledgeType.ACCEPT), 1)
    assert first is not None
    assert second is not None
    partition.failed(first.number, 1)
    shown = [(each.first, each.last, each.write) for each in partition.ranges()]
    assert shown == [(0, 0, -1), (1, 1, second.number), (2, 2, -1)]


def test_records_that_are_done_are_one_range_however_often_they_were_delivered() -> None:
    state = [StateBatch(1, 1, ACKNOWLEDGED, 3), StateBatch(2, 2, AVAILABLE, 1)]
    partition = SharePartition(0, state, AT_ONCE)
    partition.acquire("m1", 2, [ReadBatch(2, 2)], 1, 0)
    write = partition.acknowledge("m1", told(2, 2, AcknowledgeType.ACCEPT), 1)
    assert write is not None
    partition.written(write.number, 1)
    shown = [(each.first, each.last) for each in partition.ranges()]
    assert shown == [(0, 0), (1, 2)]


def test_the_error_names_the_first_record_that_the_member_does_not_have() -> None:
    partition = filled(4)
    partition.acquire("m2", 4, [ReadBatch(4, 7)], 4, 0)
    for first, named in ((2, 4), (5, 5)):
        with pytest.raises(ApiError, match=f"no record at offset {named}:"):
            partition.acknowledge("m1", told(first, 6, AcknowledgeType.ACCEPT), 1)


@pytest.mark.parametrize(
    ("start_offset", "runs"),
    [
        (0, [(2, 3, "ACCEPT"), (5, 5, "ACCEPT"), (6, 7, "REJECT")]),
        (3, [(3, 3, "ACCEPT"), (5, 5, "ACCEPT"), (6, 7, "REJECT")]),
        (4, [(5, 5, "ACCEPT"), (6, 7, "REJECT")]),
        (6, [(6, 7, "REJECT")]),
        (7, [(7, 7, "REJECT")]),
        (8, []),
    ],
)
def test_runs_of_one_type_begin_at_the_start_offset(
    start_offset: int, runs: list[tuple[int, int, str]]
) -> None:
    accept, reject = AcknowledgeType.ACCEPT, AcknowledgeType.REJECT
    batches = [
        AcknowledgementBatch(2, 3, [accept]),
        AcknowledgementBatch(5, 7, [accept, reject, reject]),
    ]
    found = [(each.first, each.last, each.type.name) for each in runs_of(batches, start_offset)]
    assert found == runs


def test_the_end_of_a_records_last_delivery_is_known_while_others_join_its_range() -> None:
    partition = filled(3)
    for offset, at_ms in ((1, 5), (0, 7), (2, 7)):
        write = partition.acknowledge("m1", told(offset, offset, AcknowledgeType.RELEASE), at_ms)
        assert write is not None
        partition.written(write.number, at_ms)
    (all_of_them,) = partition.ranges()
    assert all_of_them.vain == VainDelivery(DeliveryEnd.RELEASED, "m1", 7, 0)
    # The first record is done. How the delivery of the second one ended is not known any more.
    partition.acquire("m2", 0, [ReadBatch(0, 2)], 3, 8)
    write = partition.acknowledge("m2", told(0, 0, AcknowledgeType.ACCEPT), 9)
    assert write is not None
    partition.written(write.number, 9)
    (left,) = partition.ranges()
    assert (left.first, left.vain, left.acquired_ms) == (1, None, 8)


def test_a_part_of_a_range_knows_how_its_last_delivery_ended() -> None:
    partition = filled(4)
    partition.advance(100)
    partition.acquire("m2", 0, [ReadBatch(0, 3)], 2, 110, is_strict=True)
    held, free = partition.ranges()
    assert held.vain == VainDelivery(DeliveryEnd.LOCK_ENDED, "m1", 100, 1)
    assert free.vain == VainDelivery(DeliveryEnd.LOCK_ENDED, "m1", 100, 3)
    partition.end_session("m2", 120)
    (joined,) = partition.ranges()
    assert joined.vain == VainDelivery(DeliveryEnd.SESSION_ENDED, "m2", 120, 1)


def test_the_window_knows_since_when_its_first_record_is_the_first() -> None:
    partition = SharePartition(0, (), AT_ONCE)
    assert partition.start_since_ms == NO_TIME
    partition.acquire("m1", 0, [ReadBatch(0, 3)], 4, 10)
    partition.acquire("m1", 4, [ReadBatch(4, 4)], 1, 15)
    assert partition.start_since_ms == 10
    write = partition.acknowledge("m1", told(0, 1, AcknowledgeType.ACCEPT), 20)
    assert write is not None
    partition.written(write.number, 30)
    assert partition.start_since_ms == 30
    partition.log_begins_at(9, 40)
    assert partition.start_since_ms == NO_TIME
    loaded = SharePartition(0, [StateBatch(0, 0, AVAILABLE, 1)], AT_ONCE, 50)
    assert loaded.start_since_ms == 50
