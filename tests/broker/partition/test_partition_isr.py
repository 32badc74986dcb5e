"""The partition machine: which replicas join the ISR and which leave it."""

from __future__ import annotations

import pytest

from broker.partition.effects import (
    Acknowledged,
    Advanced,
    IsrAnswer,
    Led,
    Member,
    Proposed,
    Refused,
)
from broker.partition.maximal_isr import PROPOSAL_BACKOFF_MS
from metadata.partitions import PartitionState
from stele.errors import ErrorCode
from tests.support.broker import (
    MachineBench,
    leading,
    of,
    proposal,
    refused,
    state,
    taken,
)

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
    answer = IsrAnswer(ErrorCode.NONE, 11)
    assert first.machine.answered(grow, answer, first.now_ms) == []
    assert first.machine.state.isr == (1, 2)
    assert first.machine.maximal_isr == {1, 2, 3}
    assert of(Proposed, first.tick(10 * PROPOSAL_BACKOFF_MS)) == []  # its outcome is still to come
    first.update(state(isr=(1, 2, 3), partition_epoch=11))
    assert first.machine.proposal is None

    second = leading(isr=(1, 2))
    grow = proposal(second.fetch(3, 0))
    second.update(state(isr=(1, 2, 3), partition_epoch=11))
    assert second.machine.proposal is None
    assert second.machine.answered(grow, IsrAnswer(ErrorCode.NONE, 11), second.now_ms) == []
    assert second.machine.state.partition_epoch == 11


def test_a_shrink_takes_effect_with_the_min_insync_replicas_that_decided_it() -> None:
    """min.insync.replicas was raised before, and the controller keeps replicas that left
    eligible."""
    bench = leading(min_insync=2)
    bench.append(4, durable=True)
    bench.fetch(2, 4)
    bench.wait("a")
    bench.now_ms += 2 * bench.LAG_MS
    bench.fetch(2, 4)
    shrink = proposal(bench.tick())
    assert [member.broker_id for member in shrink.isr] == [1, 2]
    answer = IsrAnswer(ErrorCode.NONE, 11)
    assert bench.machine.answered(shrink, answer, bench.now_ms) == []
    assert (bench.machine.high_watermark, bench.machine.state.isr) == (0, (1, 2, 3))
    effects = bench.update(state(isr=(1, 2), elr=(3,), partition_epoch=11), min_insync=3)
    assert effects == [Refused(("a",), ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)]
    assert bench.machine.high_watermark == 0


def test_a_smaller_minimum_is_not_acted_on_with_the_leader_of_before() -> None:
    """An eligible replica was elected, and the minimum was lowered since then: one image has both
    changes."""
    bench = leading(min_insync=2, isr=(1,))
    bench.append(4, durable=True)
    deposed = state(leader=2, epoch=6, partition_epoch=11, isr=(2,))
    assert of(Advanced, bench.update(deposed, min_insync=1)) == []
    assert bench.machine.high_watermark == 0


def test_there_is_a_pause_also_when_the_metadata_tell_of_the_refusal_first() -> None:
    bench = leading(isr=(1, 2))
    proposal(bench.fetch(3, 0))
    bench.update(state(isr=(1, 2), partition_epoch=11))
    assert bench.machine.proposal is None
    assert bench.machine.maximal_isr == {1, 2}
    assert of(Proposed, bench.fetch(3, 0)) == []
    bench.now_ms += PROPOSAL_BACKOFF_MS
    assert proposal(bench.fetch(3, 0)).partition_epoch == 11


def test_an_isr_that_was_so_already_may_be_proposed_anew() -> None:
    bench = leading(isr=(1, 2))
    grow = proposal(bench.fetch(3, 0))
    answer = IsrAnswer(ErrorCode.NONE, grow.partition_epoch)
    assert bench.machine.answered(grow, answer, bench.now_ms) == []
    assert bench.machine.maximal_isr == {1, 2}
    bench.now_ms += PROPOSAL_BACKOFF_MS
    assert proposal(bench.fetch(3, 0))


def test_an_answer_to_an_earlier_leadership_is_dropped() -> None:
    bench = leading(isr=(1, 2))
    grow = proposal(bench.fetch(3, 0))
    bench.update(state(leader=2, epoch=6, partition_epoch=11, isr=(1, 2)))
    assert bench.machine.answered(grow, IsrAnswer(ErrorCode.NONE, 11), bench.now_ms) == []
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


# ----------------------------------------------------------------------- reassignments


def moving(isr: tuple[int, ...], partition_epoch: int = 11) -> PartitionState:
    """A partition that moves from broker 1 to brokers 1, 2 and 3."""
    return state(
        replicas=(1, 2, 3),
        isr=isr,
        partition_epoch=partition_epoch,
        adding_replicas=(2, 3),
        original_replicas=(1,),
    )


@pytest.mark.parametrize(
    ("isr", "is_under", "is_at"),
    [((1, 2, 3), False, False), ((1, 2), False, True), ((1,), True, False)],
)
def test_a_partition_tells_how_many_replicas_it_may_lose(
    isr: tuple[int, ...], is_under: bool, is_at: bool
) -> None:
    machine = leading(isr=isr, min_insync=2).machine
    assert (machine.is_under_min_isr, machine.is_at_min_isr) == (is_under, is_at)


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
    """The leader would use the new ISR together with the old replicas and their number."""
    bench = MachineBench(min_insync=2)
    bench.update(moving((1, 2)))
    bench.append(5, durable=True)
    bench.fetch(2, 5)
    joining = proposal(bench.fetch(3, 5))
    answer = IsrAnswer(ErrorCode.NONE, 12)
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
