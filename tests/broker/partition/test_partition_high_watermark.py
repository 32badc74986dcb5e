"""The partition machine: the high watermark, and the produce requests that wait for it."""

from __future__ import annotations

from broker.partition.effects import (
    Acknowledged,
    Advanced,
    Appended,
    BrokerStatus,
    Member,
    Refused,
)
from stele.errors import ErrorCode
from tests.support.broker import (
    MachineBench,
    leading,
    position,
    proposal,
    refused,
    state,
    taken,
)

# -------------------------------------------------------------------- high watermark


def test_it_is_the_least_durable_end_over_the_isr() -> None:
    bench = leading()
    bench.append(10, durable=True)
    assert bench.fetch(2, 7) == []  # nothing is known of 3
    assert bench.fetch(3, 5) == [Advanced(5)]
    assert bench.fetch(3, 9) == [Advanced(7)]


def test_the_leaders_own_disk_counts_too() -> None:
    bench = leading()
    bench.append(4)
    bench.fetch(2, 4)
    assert bench.fetch(3, 4) == []
    assert bench.sync(3) == [Advanced(3)]
    assert bench.sync() == [Advanced(4)]


def test_it_never_goes_back() -> None:
    bench = leading()
    bench.append(4, durable=True)
    bench.fetch(2, 4)
    bench.fetch(3, 4)
    bench.fetch(2, 1)
    assert bench.machine.high_watermark == 4


def test_bytes_of_an_earlier_generation_do_not_count_as_durable() -> None:
    bench = MachineBench(end=5)
    bench.update(state(leader=2))
    bench.log = position(3, 2, generation=1)
    bench.machine.truncated(bench.log)
    bench.update(state(leader=1, epoch=6, partition_epoch=11, isr=(1,), replicas=(1,)))
    assert bench.machine.made_durable(position(5, 5, generation=0), bench.now_ms) == []
    assert bench.machine.high_watermark == 2
    bench.machine.made_durable(position(3, 3, generation=1), bench.now_ms)
    assert bench.machine.high_watermark == 3


def test_an_unclean_leader_shows_only_what_it_has_on_disk() -> None:
    bench = MachineBench(end=2)
    bench.update(state(leader=2))
    bench.log = position(5, 2)
    bench.machine.copied(bench.log, 5)
    assert bench.machine.high_watermark == 5
    bench.update(state(leader=1, epoch=6, partition_epoch=11, isr=(1,)))
    assert bench.machine.high_watermark == 2
    assert bench.sync() == [Advanced(5)]


def test_pending_growth_holds_it() -> None:
    bench = leading(isr=(1, 2))
    bench.append(3, durable=True)
    bench.fetch(2, 3)
    assert proposal(bench.fetch(3, 3)).isr == (Member(1, -1), Member(2, 102), Member(3, 103))
    assert bench.machine.maximal_isr == {1, 2, 3}
    bench.append(1, durable=True)
    assert bench.fetch(2, 4) == []
    assert bench.fetch(3, 4) == [Advanced(4)]


def test_a_pending_shrink_does_not_loosen_it() -> None:
    bench = leading()
    bench.append(3, durable=True)
    bench.fetch(2, 3)
    bench.fetch(3, 3)
    bench.append(1, durable=True)
    bench.fetch(2, 4)
    bench.now_ms += bench.LAG_MS / 2
    bench.fetch(2, 4)
    shrink = proposal(bench.tick(bench.LAG_MS / 2 + 1))
    assert [member.broker_id for member in shrink.isr] == [1, 2]
    assert bench.machine.high_watermark == 3
    assert taken(bench, shrink) == [Advanced(4)]


def test_it_stands_still_while_the_committed_isr_is_below_the_minimum() -> None:
    bench = leading(min_insync=2, isr=(1,))
    assert bench.append(2, durable=True) == [Appended(2)]
    grow = proposal(bench.fetch(2, 2))  # pending growth is not committed
    assert bench.machine.high_watermark == 0
    assert taken(bench, grow) == [Advanced(2)]


def test_the_minimum_is_at_most_the_number_of_replicas() -> None:
    bench = MachineBench(min_insync=2)
    bench.update(state(replicas=(1,), isr=(1,)))
    assert bench.append(2, durable=True) == [Appended(2), Advanced(2)]


def test_a_caught_up_replica_outside_the_isr_is_waited_for_so_that_it_can_join() -> None:
    bench = leading(min_insync=1, isr=(1,))
    bench.append(5, durable=True)
    bench.fetch(2, 3)  # of HW 5
    bench.append(5, durable=True)
    bench.fetch(2, 5)  # it had everything at its last fetch, and the leader is at 10
    bench.append(5, durable=True)
    assert bench.machine.high_watermark == 10
    assert proposal(bench.fetch(2, 10)).isr == (Member(1, -1), Member(2, 102))


def test_a_replica_that_may_not_join_is_not_waited_for() -> None:
    bench = leading(min_insync=1, isr=(1,))
    bench.eligible[2] = False
    bench.append(5, durable=True)
    bench.fetch(2, 5)
    assert bench.append(5, durable=True) == [Appended(10), Advanced(10)]


def test_one_that_was_fenced_is_waited_for_no_more() -> None:
    bench = leading(min_insync=1, isr=(1,))
    bench.append(5, durable=True)
    grow = proposal(bench.fetch(2, 5))
    refused(bench, grow, ErrorCode.INELIGIBLE_REPLICA)
    assert bench.append(5, durable=True) == [Appended(10)]
    fenced = BrokerStatus(102, eligible=False)
    assert bench.machine.broker_changed(2, fenced, bench.now_ms) == [Advanced(10)]


def test_a_smaller_minimum_lets_it_go_on() -> None:
    bench = leading(min_insync=3, isr=(1, 2))
    bench.append(1, durable=True)
    assert bench.fetch(2, 1) == []
    assert bench.configure(2) == [Advanced(1)]


def test_a_checkpoint_above_the_log_is_lowered_and_one_below_its_start_raised() -> None:
    assert MachineBench(end=5, high_watermark=9).machine.high_watermark == 5
    bench = MachineBench(end=5, high_watermark=5)
    bench.machine.started_at(position(9, start=7))
    assert bench.machine.high_watermark == 7


def test_a_follower_lacks_what_is_in_the_log_and_not_on_its_disk() -> None:
    bench = leading()
    bench.append(10, durable=True)
    bench.fetch(2, 7)
    assert list(bench.machine.follower_lags()) == [(2, 3), (3, 10)]
    bench.machine.started_at(position(10, start=4))  # what is deleted is lacked by nobody
    assert list(bench.machine.follower_lags()) == [(2, 3), (3, 6)]


# ------------------------------------------------------------------ produce requests


def test_acks_all_waits_for_the_high_watermark() -> None:
    bench = leading()
    bench.append(2, durable=True)
    assert bench.wait("first") == []
    bench.append(1, durable=True)
    assert bench.wait("second") == []
    bench.fetch(2, 3)
    assert bench.fetch(3, 2) == [Advanced(2), Acknowledged(("first",))]
    assert bench.fetch(3, 3) == [Advanced(3), Acknowledged(("second",))]


def test_a_duplicate_waits_for_what_its_original_waits_for() -> None:
    bench = leading()
    bench.append(2, durable=True)
    bench.wait("original", 2)
    assert bench.wait("duplicate", 2) == []
    bench.fetch(2, 2)
    assert bench.fetch(3, 2) == [Advanced(2), Acknowledged(("original", "duplicate"))]
    assert bench.wait("late duplicate", 2) == [Acknowledged(("late duplicate",))]


def test_acks_one_waits_for_the_leaders_disk() -> None:
    bench = leading()
    bench.append(2)
    assert bench.machine.await_durable(2, "one")[1] == []
    assert bench.sync(1) == []
    assert bench.sync(2) == [Acknowledged(("one",))]


def test_who_waits_is_refused_at_once_when_the_committed_isr_falls_below_the_minimum() -> None:
    bench = leading(min_insync=2)
    bench.append(1, durable=True)
    bench.wait("a")
    effects = bench.update(state(isr=(1,), partition_epoch=11))
    assert effects == [Refused(("a",), ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
    assert bench.machine.is_under_min_isr


def test_a_larger_minimum_refuses_too() -> None:
    bench = leading(min_insync=2, isr=(1, 2))
    bench.append(1, durable=True)
    bench.wait("a")
    assert bench.configure(3) == [Refused(("a",), ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]


def test_a_shrink_that_ends_above_the_minimum_acknowledges() -> None:
    bench = leading(min_insync=2)
    bench.append(1, durable=True)
    bench.wait("a")
    bench.fetch(2, 1)
    effects = bench.update(state(isr=(1, 2), partition_epoch=11))
    assert effects == [Advanced(1), Acknowledged(("a",))]


def test_a_withdrawn_request_is_not_answered() -> None:
    bench = leading()
    bench.append(1, durable=True)
    number, _ = bench.machine.await_replicated(1, "gone", bench.now_ms)
    bench.machine.withdraw(number, replicated=True)
    bench.fetch(2, 1)
    assert bench.fetch(3, 1) == [Advanced(1)]


def test_a_failed_log_refuses_all() -> None:
    bench = leading()
    bench.append(1)
    bench.wait("a")
    assert bench.machine.fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR) == [
        Refused(("a",), ErrorCode.KAFKA_STORAGE_ERROR)
    ]
    assert bench.machine.fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR) == []


def test_who_begins_to_wait_under_min_insync_is_refused_at_once() -> None:
    bench = leading(min_insync=2, isr=(1, 2))
    bench.append(1)
    bench.configure(3)
    _, effects = bench.machine.await_replicated(1, "late", bench.now_ms)
    assert effects == [Refused(("late",), ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
