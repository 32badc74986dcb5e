"""The partition machine in edge cases: an offset one higher or lower, or another caller, changes
the answer."""

from __future__ import annotations

from broker.partition.effects import (
    Advanced,
    Appended,
    BrokerStatus,
    Effect,
    Followed,
    Led,
)
from broker.partition.maximal_isr import PROPOSAL_BACKOFF_MS
from broker.partition.progress import Attendance
from metadata.partitions import RECOVERING
from stele.errors import ErrorCode
from tests.support.broker import MachineBench, leading, of, proposal, refused, state

# -------------------------------------------------------------------------------- effects


def test_effects_of_different_kinds_differ_also_with_the_same_fields() -> None:
    """Other tests compare lists of effects: they would take one kind for another."""
    pairs: list[tuple[Effect, Effect]] = [
        (Led(5, 0), Followed(5, 0)),
        (Advanced(7), Appended(7)),
    ]
    assert not any(first == second for first, second in pairs)
    assert Led(5, 0) == Led(5, 0)


# --------------------------------------------------------------------------------- epochs


def test_epoch_zero_is_an_epoch() -> None:
    assert leading().machine.fence(0) is ErrorCode.FENCED_LEADER_EPOCH
    bench = MachineBench()
    bench.update(state(epoch=0))
    assert bench.machine.check_follower(2, 102, 0, bench.status(2)) is ErrorCode.NONE


def test_a_state_is_older_by_either_epoch() -> None:
    bench = leading()
    for older in (state(partition_epoch=9, isr=(1, 2)), state(epoch=4, partition_epoch=11)):
        assert bench.update(older) == []
        assert bench.machine.state == state()


def test_another_minimum_comes_with_the_same_state() -> None:
    bench = leading(min_insync=2, isr=(1,))
    bench.append(1, durable=True)
    assert bench.update(state(isr=(1,)), min_insync=1) == [Advanced(1)]


def test_who_is_named_leads_and_nobody_else_also_within_one_epoch() -> None:
    bench = MachineBench()
    bench.update(state(leader=2))
    assert bench.update(state(leader=1, partition_epoch=11)) == [Led(5, 0)]
    assert bench.update(state(leader=2, partition_epoch=12)) == [Followed(2, 5)]


# ------------------------------------------------------------------------------ followers


def test_a_follower_is_not_under_replicated_proposes_nothing_and_is_settled() -> None:
    bench = MachineBench()
    bench.update(state(leader=2, isr=(2, 3), leader_recovery_state=RECOVERING))
    assert not bench.machine.is_under_replicated
    assert bench.machine.is_settled
    assert bench.tick(2 * bench.LAG_MS) == []


def test_news_of_a_broker_without_a_replica_change_nothing() -> None:
    bench = leading()
    assert bench.machine.broker_changed(9, BrokerStatus(109, True), bench.now_ms) == []
    session = Attendance()
    assert not bench.machine.rests(9, session)
    bench.machine.left(9, session)


def test_a_followers_high_watermark_is_the_leaders_whatever_else_changes() -> None:
    bench = MachineBench(min_insync=2, end=5, high_watermark=2)
    bench.update(state(leader=2))
    assert bench.configure(1) == []
    assert bench.machine.broker_changed(3, bench.status(3), bench.now_ms) == []
    assert bench.machine.high_watermark == 2


# -------------------------------------------------------------------------------- resting


def test_only_the_session_in_which_a_follower_rests_wakes_it() -> None:
    bench, session = leading(), Attendance()
    bench.machine.fetched(2, 0, bench.status(2), bench.now_ms, session)
    bench.machine.left(2, Attendance())
    assert bench.machine.rests(2, session)
    bench.machine.left(2, session)
    assert not bench.machine.rests(2, session)


def test_a_leader_is_settled_when_all_replicas_are_in_the_isr_and_have_everything() -> None:
    bench = leading()
    known = []
    bench.fetch(2, 0)
    known.append(bench.machine.is_settled)
    bench.fetch(3, 0)
    known.append(bench.machine.is_settled)
    bench.append(1)
    known.append(bench.machine.is_settled)
    assert known == [False, True, False]


def test_a_leader_is_not_settled_while_a_replica_is_outside_of_the_isr() -> None:
    bench = leading(isr=(1, 2))
    bench.fetch(2, 0)
    bench.fetch(3, 0)
    assert not bench.machine.is_settled


def test_a_leader_is_not_settled_while_it_recovers() -> None:
    bench = MachineBench()
    bench.update(state(replicas=(1,), isr=(1,), leader_recovery_state=RECOVERING))
    assert not bench.machine.is_settled


# ------------------------------------------------------------------------------ proposals


def test_the_same_metadata_again_leave_a_proposal_under_way() -> None:
    bench = leading(isr=(1, 2))
    grow = proposal(bench.fetch(3, 0))
    bench.update(state(isr=(1, 2)))
    assert bench.machine.proposal == grow
    assert bench.machine.maximal_isr == {1, 2, 3}


def test_an_answer_to_a_proposal_that_was_given_up_leaves_the_next_under_way() -> None:
    bench = leading(isr=(1, 2))
    first = proposal(bench.fetch(3, 0))
    bench.update(state(isr=(1, 2), partition_epoch=11))
    bench.now_ms += PROPOSAL_BACKOFF_MS
    second = proposal(bench.fetch(3, 0))
    assert refused(bench, first, ErrorCode.INELIGIBLE_REPLICA) == []
    assert bench.machine.proposal == second


# -------------------------------------------------------------------------- high watermark


def test_a_replica_outside_of_the_isr_is_waited_for_no_longer_than_a_lag() -> None:
    bench = leading(isr=(1, 2))
    grow = proposal(bench.fetch(3, 0))
    bench.append(4, durable=True)
    bench.fetch(2, 4)
    bench.now_ms += bench.LAG_MS
    assert refused(bench, grow, ErrorCode.INELIGIBLE_REPLICA) == []
    bench.now_ms += 1
    assert of(Advanced, bench.fetch(3, 0)) == [Advanced(4)]


def test_a_deletion_waits_for_a_replica_that_may_join() -> None:
    bench = leading(isr=(1, 2))
    refused(bench, proposal(bench.fetch(3, 0)), ErrorCode.INELIGIBLE_REPLICA)
    bench.append(4, durable=True)
    bench.fetch(2, 4)
    bench.tick(bench.LAG_MS + 1)
    assert bench.machine.high_watermark == 4
    bench.delete(4, "deleted")
    bench.fetch(2, 4, start=4)
    assert bench.machine.low_watermark == 0


def test_a_member_that_asks_again_from_where_it_was_is_caught_up_as_before() -> None:
    bench = leading()
    bench.append(5, durable=True)
    bench.fetch(2, 5)
    bench.fetch(3, 5)
    bench.append(1)
    bench.fetch(2, 5)
    bench.fetch(2, 5)
    assert bench.tick() == []
