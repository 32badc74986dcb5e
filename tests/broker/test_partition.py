"""The partition machine, rule by rule."""

from __future__ import annotations

import pytest

from broker.partition import PROPOSAL_BACKOFF_MS, Role
from broker.partition_effects import (
    Acknowledged,
    Advanced,
    Appended,
    BrokerStatus,
    Effect,
    Followed,
    IsrAnswer,
    Led,
    Member,
    Proposed,
    Refused,
)
from metadata.image import RECOVERED, RECOVERING, PartitionState
from stele.errors import ErrorCode
from tests.support.broker import MachineBench, position, state


def leading(*, min_insync: int = 2, end: int = 0, isr: tuple[int, ...] = (1, 2, 3)) -> MachineBench:
    bench = MachineBench(min_insync=min_insync, end=end)
    bench.update(state(isr=isr))
    return bench


def of(kind: type[Effect], effects: list[Effect]) -> list[Effect]:
    return [effect for effect in effects if isinstance(effect, kind)]


def proposal(effects: list[Effect]) -> Proposed:
    (effect,) = of(Proposed, effects)
    assert isinstance(effect, Proposed)
    return effect


def taken(bench: MachineBench, proposed: Proposed) -> list[Effect]:
    """The controller takes the proposal."""
    isr = tuple(member.broker_id for member in proposed.isr)
    answer = IsrAnswer(ErrorCode.NONE, proposed.leader_epoch, proposed.partition_epoch + 1, isr)
    return bench.machine.answered(proposed, answer, bench.now_ms)


def refused(bench: MachineBench, proposed: Proposed, error: ErrorCode) -> list[Effect]:
    return bench.machine.answered(proposed, IsrAnswer(error), bench.now_ms)


# ------------------------------------------------------------------------------ roles


def test_the_first_state_makes_a_leader_or_a_follower() -> None:
    bench = MachineBench(end=7)
    assert bench.update(state(leader=1)) == [Led(5, 7)]
    assert bench.machine.role is Role.LEADER
    other = MachineBench(end=7)
    assert other.update(state(leader=2)) == [Followed(2, 5)]
    assert other.machine.role is Role.FOLLOWER


def test_a_state_older_than_the_known_one_is_dropped() -> None:
    bench = leading()
    assert bench.update(state(leader=2, epoch=4, partition_epoch=9)) == []
    assert bench.machine.is_leader


def test_the_same_state_again_changes_nothing() -> None:
    bench = leading()
    assert bench.update(state()) == []


def test_a_higher_epoch_of_the_same_leader_begins_anew_and_keeps_who_waits() -> None:
    bench = leading()
    bench.append(3, durable=True)
    bench.wait("a")
    bench.fetch(2, 3)
    assert bench.update(state(epoch=6, partition_epoch=11)) == [Led(6, 3)]
    bench.fetch(2, 3)
    assert bench.fetch(3, 3) == [Advanced(3), Acknowledged(("a",))]


def test_losing_the_leadership_refuses_who_waits() -> None:
    bench = leading()
    bench.append(1)
    bench.wait("all")
    bench.machine.await_durable(1, "one")
    assert bench.update(state(leader=2, epoch=6, partition_epoch=11)) == [
        Refused(("all", "one"), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Followed(2, 6),
    ]


def test_a_partition_without_a_leader_is_followed_by_nobody() -> None:
    bench = MachineBench()
    assert bench.update(state(leader=-1)) == [Followed(-1, 5)]


def test_a_follower_learns_of_a_new_leader_once() -> None:
    bench = MachineBench()
    bench.update(state(leader=2))
    assert bench.update(state(leader=2, partition_epoch=11, isr=(2, 3))) == []
    assert bench.update(state(leader=3, epoch=6, partition_epoch=12)) == [Followed(3, 6)]


# --------------------------------------------------------------------------- fencing


def test_requests_are_fenced_by_the_epoch_they_name() -> None:
    machine = leading().machine
    assert machine.fence(-1) is ErrorCode.NONE
    assert machine.fence(5) is ErrorCode.NONE
    assert machine.fence(4) is ErrorCode.FENCED_LEADER_EPOCH
    assert machine.fence(6) is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_a_follower_serves_nobody() -> None:
    bench = MachineBench()
    bench.update(state(leader=2))
    assert bench.machine.fence(5) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert bench.machine.fence(4) is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    ("broker_id", "broker_epoch", "leader_epoch", "error"),
    [
        (2, 102, 5, ErrorCode.NONE),
        (2, 101, 5, ErrorCode.STALE_BROKER_EPOCH),
        (2, 103, 5, ErrorCode.STALE_BROKER_EPOCH),
        (2, -1, 5, ErrorCode.STALE_BROKER_EPOCH),
        (2, 102, 4, ErrorCode.FENCED_LEADER_EPOCH),
        (2, 102, 6, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (2, 102, -1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (4, 104, 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),  # not assigned
        (1, 101, 5, ErrorCode.NOT_LEADER_OR_FOLLOWER),  # the leader itself
    ],
)
def test_only_an_assigned_replica_of_the_present_incarnation_and_epoch_may_fetch(
    broker_id: int, broker_epoch: int, leader_epoch: int, error: ErrorCode
) -> None:
    bench = leading()
    status = BrokerStatus(bench.epochs.get(broker_id, 101), True)
    assert bench.machine.check_follower(broker_id, broker_epoch, leader_epoch, status) is error


def test_a_broker_without_registration_may_not_fetch() -> None:
    error = leading().machine.check_follower(2, 102, 5, BrokerStatus())
    assert error is ErrorCode.STALE_BROKER_EPOCH


def test_a_fetch_past_the_log_end_counts_for_nothing() -> None:
    bench = leading()
    bench.append(2, durable=True)
    bench.fetch(3, 2)
    assert bench.fetch(2, 3) == []
    progress = bench.machine.progress_of(2)
    assert progress is not None
    assert progress.end_offset == -1


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
    bench.fetch(2, 5)  # it had all at its last fetch, and the leader is at 10
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
    assert bench.machine.configured(2, bench.now_ms) == [Advanced(1)]


def test_a_checkpoint_above_the_log_is_lowered_and_one_below_its_start_raised() -> None:
    assert MachineBench(end=5, high_watermark=9).machine.high_watermark == 5
    bench = MachineBench(end=5, high_watermark=5)
    bench.machine.started_at(position(9, start=7))
    assert bench.machine.high_watermark == 7


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
    assert bench.machine.configured(3, bench.now_ms) == [
        Refused(("a",), ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    ]


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


# ------------------------------------------------------------------------ growing


def test_a_replica_joins_at_the_high_watermark() -> None:
    bench = leading(isr=(1, 2))
    bench.append(4, durable=True)
    bench.fetch(2, 3)
    assert of(Proposed, bench.fetch(3, 2)) == []
    assert proposal(bench.fetch(3, 3)) == Proposed(
        5, 10, (Member(1, -1), Member(2, 102), Member(3, 103))
    )


def test_it_joins_only_at_or_past_the_start_of_the_epoch() -> None:
    bench = MachineBench(min_insync=1, end=8, high_watermark=2)
    bench.update(state(isr=(1, 2)))
    assert bench.machine.high_watermark == 2
    assert of(Proposed, bench.fetch(3, 7)) == []
    assert proposal(bench.fetch(3, 8))


@pytest.mark.parametrize("broker_id", [2])
def test_a_fenced_broker_does_not_join(broker_id: int) -> None:
    bench = leading(isr=(1, 3))
    bench.eligible[broker_id] = False
    assert of(Proposed, bench.fetch(broker_id, 0)) == []
    bench.eligible[broker_id] = True
    assert proposal(bench.fetch(broker_id, 0))


def test_one_proposal_at_a_time() -> None:
    bench = leading(isr=(1,), min_insync=1)
    grow = proposal(bench.fetch(2, 0))
    assert of(Proposed, bench.fetch(3, 0)) == []
    taken(bench, grow)
    assert proposal(bench.fetch(3, 0)).partition_epoch == 11


def test_after_a_definite_refusal_the_isr_is_the_committed_one_and_there_is_a_pause() -> None:
    bench = leading(isr=(1, 2))
    grow = proposal(bench.fetch(3, 0))
    refused(bench, grow, ErrorCode.INELIGIBLE_REPLICA)
    assert bench.machine.maximal_isr == {1, 2}
    assert of(Proposed, bench.fetch(3, 0)) == []
    bench.now_ms += PROPOSAL_BACKOFF_MS
    assert proposal(bench.fetch(3, 0))


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_after_an_unclear_refusal_growth_still_binds_until_the_metadata_tells(
    error: ErrorCode,
) -> None:
    bench = leading(isr=(1, 2))
    bench.append(1, durable=True)
    grow = proposal(bench.fetch(3, 0))
    refused(bench, grow, error)
    assert bench.machine.maximal_isr == {1, 2, 3}
    assert bench.fetch(2, 1) == []
    assert bench.update(state(isr=(1, 2), partition_epoch=11)) == [Advanced(1)]
    assert bench.machine.proposal is None


def test_the_answer_may_come_before_the_metadata_and_after_it() -> None:
    first = leading(isr=(1, 2))
    grow = proposal(first.fetch(3, 0))
    taken(first, grow)
    assert first.machine.state.isr == (1, 2, 3)
    assert first.update(state(isr=(1, 2), partition_epoch=10)) == []  # of before
    assert first.machine.state.isr == (1, 2, 3)
    first.update(state(isr=(1, 2, 3), partition_epoch=11))

    second = leading(isr=(1, 2))
    grow = proposal(second.fetch(3, 0))
    second.update(state(isr=(1, 2, 3), partition_epoch=11))
    assert second.machine.proposal is None
    assert taken(second, grow) == []
    assert second.machine.state.partition_epoch == 11


def test_an_answer_to_an_earlier_leadership_is_dropped() -> None:
    bench = leading(isr=(1, 2))
    grow = proposal(bench.fetch(3, 0))
    bench.update(state(leader=2, epoch=6, partition_epoch=11, isr=(1, 2)))
    assert taken(bench, grow) == []
    assert bench.machine.state.leader == 2
    assert bench.machine.state.partition_epoch == 11


# ----------------------------------------------------------------------- shrinking


def test_a_member_that_lags_for_too_long_is_proposed_away() -> None:
    bench = leading(min_insync=1)
    bench.append(1, durable=True)
    bench.fetch(2, 1)
    assert bench.tick(bench.LAG_MS) == []  # a grace since the election
    assert [m.broker_id for m in proposal(bench.tick(1)).isr] == [1, 2]


def test_a_member_that_has_all_stays_however_long_ago_it_fetched() -> None:
    bench = leading()
    bench.fetch(2, 0)
    bench.fetch(3, 0)
    assert bench.tick(10 * bench.LAG_MS) == []


def test_a_member_that_reaches_each_time_what_there_was_the_last_time_is_caught_up() -> None:
    bench = leading()
    bench.fetch(3, 0)
    for _ in range(5):
        bench.append(10)
        bench.now_ms += bench.LAG_MS / 2
        bench.fetch(2, bench.log.end_offset - 10)
        bench.fetch(3, bench.log.end_offset)
        assert of(Proposed, bench.tick()) == []


def test_a_member_that_falls_further_behind_with_every_fetch_is_not() -> None:
    bench = leading()
    for step in range(1, 5):
        bench.append(10)
        bench.now_ms += bench.LAG_MS / 2
        bench.fetch(3, bench.log.end_offset)
        bench.fetch(2, step)
    assert [m.broker_id for m in proposal(bench.tick()).isr] == [1, 3]


def test_a_new_incarnation_begins_afresh() -> None:
    bench = leading()
    bench.append(5, durable=True)
    bench.fetch(3, 5)
    bench.fetch(2, 5)
    bench.epochs[2] = 202
    bench.fetch(2, 1)
    progress = bench.machine.progress_of(2)
    assert progress is not None
    assert (progress.broker_epoch, progress.end_offset) == (202, 1)
    assert [m.broker_id for m in proposal(bench.tick()).isr] == [1, 3]


def test_a_member_that_lost_its_tail_is_no_longer_caught_up() -> None:
    bench = leading()
    bench.append(5, durable=True)
    bench.fetch(3, 5)
    bench.fetch(2, 5)
    bench.fetch(2, 0)
    assert [m.broker_id for m in proposal(bench.tick()).isr] == [1, 3]


# ---------------------------------------------------------------------- the follower


def test_a_follower_takes_the_leaders_high_watermark_up_to_its_own_end() -> None:
    bench = MachineBench()
    bench.update(state(leader=2))
    bench.machine.copied(position(4, 0), 9)
    assert bench.machine.high_watermark == 4
    bench.machine.copied(position(9, 4), 7)
    assert bench.machine.high_watermark == 7
    bench.machine.copied(position(9, 4), 5)  # a new leader may not know it yet
    assert bench.machine.high_watermark == 7


def test_a_truncation_below_the_high_watermark_takes_it_back() -> None:
    bench = MachineBench(end=9, high_watermark=8)
    bench.update(state(leader=2))
    bench.machine.truncated(position(6, generation=1))
    assert bench.machine.high_watermark == 6


# ------------------------------------------------------------------------ questions


def test_latest_is_not_available_before_the_high_watermark_reaches_the_epoch() -> None:
    bench = MachineBench(min_insync=1, end=6, high_watermark=2)
    bench.update(state())
    assert bench.machine.latest_offset is None
    bench.fetch(2, 6)
    assert bench.machine.latest_offset is None
    bench.fetch(3, 6)
    assert bench.machine.latest_offset == 6


def test_a_leader_elected_uncleanly_says_that_it_has_recovered() -> None:
    bench = MachineBench(min_insync=1)
    effects = bench.update(state(isr=(1,), leader_recovery_state=RECOVERING))
    done = proposal(effects)
    assert done.isr == (Member(1, -1),)
    taken(bench, done)
    assert bench.machine.state.leader_recovery_state == RECOVERED


def test_a_recovery_that_the_controller_was_not_told_of_is_proposed_again() -> None:
    bench = MachineBench(min_insync=1)
    proposal(bench.update(state(isr=(1,), leader_recovery_state=RECOVERING)))
    # The partition changed before the proposal came; what it proposed counts for nothing.
    bench.update(state(isr=(1,), partition_epoch=11, leader_recovery_state=RECOVERING))
    assert proposal(bench.tick()).isr == (Member(1, -1),)


# ----------------------------------------------------------------------- reassignments


def moving(isr: tuple[int, ...], partition_epoch: int = 11) -> PartitionState:
    """From 1 alone to 1, 2 and 3."""
    return state(
        replicas=(1, 2, 3),
        isr=isr,
        partition_epoch=partition_epoch,
        adding_replicas=(2, 3),
        original_replicas=(1,),
    )


def test_replicas_that_are_only_being_added_are_not_asked_for() -> None:
    bench = MachineBench(min_insync=2)
    bench.update(state(replicas=(1,), isr=(1,)))
    bench.update(moving((1,)))
    assert not bench.machine.is_under_min_isr
    assert not bench.machine.is_under_replicated
    bench.append(2, durable=True)
    assert bench.wait("a") == [Acknowledged(("a",))]


def test_an_added_replica_joins_when_it_has_caught_up() -> None:
    bench = MachineBench(min_insync=1)
    bench.update(state(replicas=(1,), isr=(1,)))
    bench.append(5, durable=True)
    bench.update(moving((1,)))
    assert of(Proposed, bench.fetch(2, 3)) == []
    joined = proposal(bench.fetch(2, 5))
    assert joined == Proposed(5, 11, (Member(1, -1), Member(2, 102)))


def test_an_answer_that_completes_a_move_is_left_to_the_metadata() -> None:
    """The ISR alone would be acted on with the replicas, and their number, of before."""
    bench = MachineBench(min_insync=2)
    bench.update(moving((1, 2)))
    bench.append(5, durable=True)
    bench.fetch(2, 5)
    joining = proposal(bench.fetch(3, 5))
    answer = IsrAnswer(ErrorCode.NONE, joining.leader_epoch + 1, 12, (1, 2, 3))
    assert bench.machine.answered(joining, answer, bench.now_ms) == []
    assert bench.machine.state.isr == (1, 2)
    assert bench.machine.maximal_isr == {1, 2, 3}
    done = state(replicas=(1, 2, 3), isr=(1, 2, 3), epoch=6, partition_epoch=12)
    assert Led(6, 5) in bench.update(done)
    assert (bench.machine.proposal, bench.machine.min_insync) == (None, 2)


def test_a_fetch_of_a_replica_that_was_removed_is_not_served() -> None:
    bench = leading()
    bench.update(state(replicas=(1, 2), isr=(1, 2), epoch=6, partition_epoch=11))
    check = bench.machine.check_follower
    assert check(3, 103, 5, bench.status(3)) is ErrorCode.FENCED_LEADER_EPOCH
    assert check(3, 103, 6, bench.status(3)) is ErrorCode.NOT_LEADER_OR_FOLLOWER
