"""The partition machine, rule by rule: its role, whom it serves and what it answers."""

from __future__ import annotations

import pytest

from broker.partition.effects import (
    Acknowledged,
    Advanced,
    BrokerStatus,
    Followed,
    Led,
    Member,
    Refused,
)
from broker.partition.maximal_isr import PROPOSAL_BACKOFF_MS
from broker.partition.view import Role
from metadata.partitions import RECOVERED, RECOVERING
from stele.errors import ApiError, ErrorCode
from tests.support.broker import (
    MachineBench,
    leading,
    position,
    proposal,
    state,
    taken,
)

# ----------------------------------------------------------------------------- readers


def test_consumers_are_shown_what_is_committed_and_followers_the_whole_log() -> None:
    bench = leading()
    bench.append(5, durable=True)
    bench.fetch(2, 3)
    bench.fetch(3, 4)
    machine = bench.machine
    assert (machine.high_watermark, machine.last_stable_offset) == (3, 3)
    assert [machine.readable_end(offset) for offset in range(6)] == [3] * 6
    assert [machine.readable_end(offset, is_follower=True) for offset in range(6)] == [5] * 6


@pytest.mark.parametrize("is_follower", [False, True])
@pytest.mark.parametrize("offset", [-1, 1, 6])
def test_outside_of_the_log_nobody_is_shown_anything(offset: int, is_follower: bool) -> None:
    bench = leading()
    bench.append(5, durable=True)
    bench.fetch(2, 3)
    bench.fetch(3, 3)
    bench.begin_at(2)
    assert bench.machine.start_offset == 2
    with pytest.raises(ApiError) as refused:
        bench.machine.readable_end(offset, is_follower=is_follower)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


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


def test_a_higher_epoch_of_the_same_leader_begins_anew_and_keeps_waiters() -> None:
    bench = leading()
    bench.append(3, durable=True)
    bench.wait("a")
    bench.fetch(2, 3)
    assert bench.update(state(epoch=6, partition_epoch=11)) == [Led(6, 3)]
    bench.fetch(2, 3)
    assert bench.fetch(3, 3) == [Advanced(3), Acknowledged(("a",))]


def test_losing_the_leadership_refuses_waiters() -> None:
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
    told = [bench.machine.tells_latest]
    for follower in (2, 3):
        bench.fetch(follower, 6)
        told.append(bench.machine.tells_latest)
    assert told == [False, False, True]
    assert bench.machine.consumable_end(read_committed=False) == 6


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
    # The partition changed before the proposal arrived, so the proposal does not count.
    bench.update(state(isr=(1,), partition_epoch=11, leader_recovery_state=RECOVERING))
    assert proposal(bench.tick(PROPOSAL_BACKOFF_MS)).isr == (Member(1, -1),)
