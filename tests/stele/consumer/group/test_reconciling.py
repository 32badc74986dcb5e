"""One membership of the consumer protocol, answer by answer."""

from __future__ import annotations

import pytest

from stele.consumer.group.membership import Loss, Share, State
from stele.consumer.group.reconciling import Heartbeat, HeartbeatAnswer, ReconcilingMembership
from stele.consumer.group.requests import Standing
from stele.errors import ErrorCode
from stele.ids import PartitionId, TopicPartition

T, ANEW = b"t" * 16, b"T" * 16
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID0, ID1 = PartitionId(T, 0), PartitionId(T, 1)
NOTHING: frozenset[TopicPartition] = frozenset()
WANTED = frozenset({"t"})


def state(member: ReconcilingMembership) -> State:
    """As a function, so that mypy does not take the last answer for the next one's."""
    return member.state


def subscribed(instance_id: str | None = None) -> ReconcilingMembership:
    member = ReconcilingMembership("m", instance_id)
    member.subscribe(["t"])
    member.learn({T: "t"})
    return member


def answered(epoch: int, *assigned: PartitionId) -> HeartbeatAnswer:
    return HeartbeatAnswer(ErrorCode.NONE, "", epoch, 5000, frozenset(assigned))


def beat(member: ReconcilingMembership, answer: HeartbeatAnswer) -> Heartbeat:
    asked = member.heartbeat()
    member.on_answer(asked, answer)
    return asked


def settled(*assigned: PartitionId) -> ReconcilingMembership:
    """A member that owns these, and has said so."""
    member = subscribed()
    member.join()
    beat(member, answered(1, *assigned))
    share = member.share()
    assert member.took_share(share)
    beat(member, answered(1, *assigned))
    assert (state(member), member.has_news) == (State.STABLE, False)
    return member


def test_a_member_says_everything_when_it_joins() -> None:
    member = subscribed()
    assert member.needs_join
    assert not member.may_heartbeat
    member.join()
    assert (state(member), member.needs_join, member.has_news) == (State.JOINING, False, True)
    assert not member.standing.is_member
    assert beat(member, answered(3, ID0)) == Heartbeat("m", 0, None, WANTED, frozenset())
    assert member.standing == Standing("m", 3)
    assert state(member) is State.ASSIGNED
    assert member.share() == Share(NOTHING, frozenset({T0}))


def test_what_has_not_changed_is_not_said_again() -> None:
    member = settled(ID0)
    assert member.heartbeat() == Heartbeat("m", 1, None)
    member.subscribe(["t", "u"])
    assert member.has_news
    assert member.heartbeat() == Heartbeat("m", 1, None, frozenset({"t", "u"}))
    member.on_lost()
    everything = Heartbeat("m", 1, None, frozenset({"t", "u"}), frozenset({ID0}))
    assert member.heartbeat() == everything


def test_partitions_are_given_up_said_and_then_taken() -> None:
    member = settled(ID0)
    beat(member, answered(2, ID1))
    share = member.share()
    assert share == Share(frozenset({T0}), frozenset({T1}))
    member.released(share)
    assert member.owned == NOTHING
    assert member.took_share(share)
    assert member.owned == {T1}
    assert member.has_news
    assert member.heartbeat() == Heartbeat("m", 2, None, WANTED, frozenset({ID1}))


def test_who_says_that_it_does_not_own_a_partition_takes_it_only_when_told_again() -> None:
    member = settled(ID0)
    beat(member, answered(2, ID0, ID1))
    share = member.share()
    assert share.added == {T1}
    member.on_lost()
    asked = member.heartbeat()  # while the application is being told
    assert asked.owned == frozenset({ID0})
    assert member.took_share(share)
    assert (member.owned, state(member)) == (frozenset({T0}), State.STABLE)
    member.on_answer(asked, answered(2, ID0, ID1))
    assert state(member) is State.ASSIGNED


def test_partitions_without_a_known_name_wait() -> None:
    member = subscribed()
    member.join()
    beat(member, answered(1, ID0, PartitionId(ANEW, 1)))
    assert member.unknown_topics == {ANEW}
    assert member.share().added == {T0}
    member.learn({ANEW: "u"})
    assert member.unknown_topics == frozenset()
    assert member.share().added == {T0, TopicPartition("u", 1)}


def test_a_partition_of_a_topic_that_was_made_anew_is_another_one() -> None:
    member = settled(ID0)
    member.learn({ANEW: "t"})
    beat(member, answered(2, PartitionId(ANEW, 0)))
    assert state(member) is State.ASSIGNED
    share = member.share()
    assert share == Share(frozenset({T0}), frozenset({T0}))
    member.released(share)
    member.took_share(share)
    assert member.id_of(T0) == PartitionId(ANEW, 0)


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
def test_a_removed_member_has_lost_everything_and_keeps_its_id(error: ErrorCode) -> None:
    member = settled(ID0)
    share = member.share()
    beat(member, HeartbeatAnswer(error))
    assert (member.needs_join, member.standing) == (True, Standing("m"))
    assert not member.took_share(share)
    loss = member.giving_up()
    assert loss == Loss(frozenset({T0}), is_lost=True)
    member.gave_up(loss)
    member.join()
    assert member.heartbeat() == Heartbeat("m", 0, None, WANTED, frozenset())


def test_another_error_and_a_lost_answer_cost_no_membership() -> None:
    member = settled(ID0)
    beat(member, HeartbeatAnswer(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    assert (state(member), member.owned) == (State.STABLE, frozenset({T0}))
    assert member.heartbeat().owned == frozenset({ID0})


def test_an_answer_to_an_earlier_epoch_does_not_count() -> None:
    member = settled(ID0)
    early = member.heartbeat()
    member.on_told(member.standing, ErrorCode.FENCED_MEMBER_EPOCH)
    member.on_answer(early, answered(5, ID1))
    assert (member.needs_join, member.standing.is_member) == (True, False)
    member.join()
    member.on_answer(early, answered(5, ID1))
    assert state(member) is State.JOINING


def test_an_answer_to_a_member_that_has_left_does_not_count() -> None:
    member = subscribed()
    member.join()
    asked = member.heartbeat()
    member.leave()
    member.on_answer(asked, answered(5, ID1))
    assert (state(member), member.standing.is_member) == (State.UNJOINED, False)


def test_a_refused_commit_of_an_earlier_standing_does_not_count() -> None:
    member = settled(ID0)
    member.on_told(Standing("m", 7), ErrorCode.FENCED_MEMBER_EPOCH)
    member.on_told(member.standing, ErrorCode.STALE_MEMBER_EPOCH)
    assert member.standing.is_member


@pytest.mark.parametrize(("instance_id", "epoch"), [(None, -1), ("i", -2)])
def test_who_leaves_says_whether_it_comes_back(instance_id: str | None, epoch: int) -> None:
    member = subscribed(instance_id)
    assert member.leave() is None
    member.join()
    beat(member, answered(1, ID0))
    assert member.leave() == Heartbeat("m", epoch, instance_id)
    member.unsubscribe()
    assert (member.owned, member.needs_join, member.subscription) == (NOTHING, False, frozenset())
