"""One membership, answer by answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stele.consumer.group.assignors import ASSIGNORS
from stele.consumer.group.membership import Loss, Membership, Share, State
from stele.consumer.group.requests import JoinAnswer, JoinRequest, Standing, SyncAnswer
from stele.errors import ErrorCode
from stele.ids import TopicPartition
from stele.wire.consumer_protocol import Assignment, Subscription

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
NOTHING: frozenset[TopicPartition] = frozenset()


def membership(*strategies: str) -> Membership:
    made = Membership([ASSIGNORS[each] for each in strategies or ("cooperative-sticky",)])
    made.subscribe(["t"])
    return made


def joined(generation: int, *, leads: bool = False, **more: object) -> JoinAnswer:
    members = (("m", None, Subscription(("t", "u")).encode()),) if leads else ()
    return JoinAnswer(
        ErrorCode.NONE,
        member_id="m",
        generation=generation,
        protocol="cooperative-sticky",
        leader="m" if leads else "other",
        members=members,
        **more,  # type: ignore[arg-type]
    )


def needs_join(member: Membership) -> bool:
    """As a function, so that mypy does not take the last answer for the next one's."""
    return member.needs_join


def state(member: Membership) -> State:
    return member.state


def take(member: Membership, generation: int, *share: TopicPartition, leads: bool = False) -> Share:
    """A whole rebalance with this outcome; the changes."""
    loss = member.giving_up()
    member.gave_up(loss)
    request = member.join_request()
    member.on_join(request, joined(generation, leads=leads))
    sync = member.sync_request({"t": 2, "u": 1})
    member.on_sync(sync, SyncAnswer(ErrorCode.NONE, assignment=Assignment(share).encode()))
    assert state(member) is State.ASSIGNED
    changes = member.share()
    member.released(changes)
    member.took_share(changes)
    return changes


def test_a_member_without_a_subscription_joins_nothing() -> None:
    member = Membership([ASSIGNORS["range"]])
    assert not needs_join(member)
    member.subscribe([])
    assert needs_join(member)
    assert not member.may_heartbeat


def test_a_new_member_gets_its_id_first() -> None:
    member = membership()
    request = member.join_request()
    assert request.standing == Standing()
    assert state(member) is State.JOINING
    assert not needs_join(member)
    member.on_join(request, JoinAnswer(ErrorCode.MEMBER_ID_REQUIRED, member_id="m"))
    assert needs_join(member)
    assert member.join_request().standing == Standing("m")


def test_an_answer_to_an_earlier_standing_or_in_another_state_does_not_count() -> None:
    member = membership()
    early = member.join_request()
    member.on_lost(Standing("another"))
    member.on_join(JoinRequest(Standing("older"), (), ""), joined(1))
    assert (state(member), member.standing.is_member) == (State.JOINING, False)
    member.on_lost(early.standing)
    assert needs_join(member)
    member.on_join(early, joined(1))  # given up already
    assert not member.standing.is_member
    member.on_join(JoinRequest(Standing("older"), (), ""), joined(1))
    assert not member.standing.is_member
    member.on_join(member.join_request(), joined(2))
    sync, refused = member.sync_request({}), SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID)
    member.on_sync(replace(sync, standing=Standing("m", 1)), refused)
    assert (state(member), member.standing) == (State.SYNCING, Standing("m", 2))
    member.on_sync(sync, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS))
    take(member, 3, T0)
    older = member.standing._replace(generation=1)
    member.on_told(older, ErrorCode.UNKNOWN_MEMBER_ID)
    member.on_lost(member.standing)
    assert (state(member), needs_join(member)) == (State.STABLE, False)


def test_a_cooperative_member_keeps_its_partitions_and_joins_again_if_it_released_some() -> None:
    member = membership()
    assert take(member, 1, T0, T1) == Share(NOTHING, frozenset({T0, T1}))
    assert not needs_join(member)
    member.on_told(member.standing, ErrorCode.REBALANCE_IN_PROGRESS)
    assert needs_join(member)
    assert member.giving_up() == Loss(NOTHING, is_lost=False)
    request = member.join_request()
    told = Subscription.decode(request.protocols[0][1])
    assert (told.owned, told.generation) == ((T0, T1), 1)
    member.on_join(request, joined(2))
    sync = member.sync_request({})
    member.on_sync(sync, SyncAnswer(ErrorCode.NONE, assignment=Assignment((T0,)).encode()))
    changes = member.share()
    assert changes == Share(frozenset({T1}), NOTHING)
    member.released(changes)
    assert member.owned == {T0}
    member.took_share(changes)
    assert (needs_join(member), member.reason) == (
        True,
        "partitions were released for other members",
    )


def test_an_eager_member_gives_all_up_first() -> None:
    member = membership("range", "cooperative-sticky")
    take(member, 1, T0, T1)
    member.on_told(member.standing, ErrorCode.REBALANCE_IN_PROGRESS)
    loss = member.giving_up()
    assert loss == Loss(frozenset({T0, T1}), is_lost=False)
    member.gave_up(loss)
    assert member.owned == NOTHING
    assert [name for name, _ in member.join_request().protocols] == ["range", "cooperative-sticky"]


def test_a_cooperative_member_gives_up_what_it_no_longer_wants() -> None:
    member = membership()
    member.subscribe(["t", "u"])
    take(member, 1, T0, U0)
    member.subscribe(["t", "u"])
    assert not needs_join(member)
    member.subscribe(["u"])
    assert member.giving_up() == Loss(frozenset({T0}), is_lost=False)


@pytest.mark.parametrize(
    ("error", "keeps_id"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, False),
        (ErrorCode.ILLEGAL_GENERATION, True),
        (ErrorCode.FENCED_INSTANCE_ID, False),
    ],
)
def test_a_removed_member_has_lost_everything(error: ErrorCode, keeps_id: bool) -> None:
    member = membership()
    take(member, 1, T0, leads=True)
    assert (member.is_leader, member.may_heartbeat) == (True, True)
    member.on_told(member.standing, error)
    assert (member.standing.member_id == "m", member.standing.is_member) == (keeps_id, False)
    assert (member.is_leader, member.may_heartbeat) == (False, False)
    assert member.giving_up() == Loss(frozenset({T0}), is_lost=True)


def test_a_member_that_is_removed_before_it_takes_its_share_takes_nothing() -> None:
    member = membership()
    request = member.join_request()
    member.on_join(request, joined(1))
    sync = member.sync_request({})
    member.on_sync(sync, SyncAnswer(ErrorCode.NONE, assignment=Assignment((T0,)).encode()))
    changes = member.share()
    member.on_told(member.standing, ErrorCode.UNKNOWN_MEMBER_ID)
    member.took_share(changes)
    assert (member.owned, needs_join(member)) == (NOTHING, True)


def test_a_rebalance_that_begins_before_the_share_is_taken_comes_after_it() -> None:
    member = membership()
    request = member.join_request()
    member.on_join(request, joined(1))
    member.on_told(member.standing, ErrorCode.REBALANCE_IN_PROGRESS)
    sync = member.sync_request({})
    member.on_sync(sync, SyncAnswer(ErrorCode.NONE, assignment=Assignment((T0,)).encode()))
    assert not needs_join(member)
    member.took_share(member.share())
    assert (member.owned, needs_join(member)) == (frozenset({T0}), True)


@pytest.mark.parametrize(
    ("error", "is_member"),
    [(ErrorCode.REBALANCE_IN_PROGRESS, True), (ErrorCode.UNKNOWN_MEMBER_ID, False)],
)
def test_a_refused_share(error: ErrorCode, is_member: bool) -> None:
    member = membership()
    take(member, 1, T0)
    member.on_told(member.standing, ErrorCode.REBALANCE_IN_PROGRESS)
    member.gave_up(member.giving_up())
    member.on_join(member.join_request(), joined(2))
    stale = member.sync_request({})
    member.on_sync(stale, SyncAnswer(error))
    assert (needs_join(member), member.standing.is_member) == (True, is_member)
    assert member.giving_up().is_lost is not is_member
    member.on_sync(stale, SyncAnswer(ErrorCode.NONE))  # comes twice
    assert state(member) is State.UNJOINED


def test_a_leader_assigns_the_topics_of_all_and_again_when_they_change() -> None:
    member = membership()
    take(member, 1, T0, T1, U0, leads=True)
    assert member.topics == {"t", "u"}
    member.metadata_changed({"t": 2, "u": 1, "v": 7})
    assert not needs_join(member)
    member.metadata_changed({"t": 2})
    assert member.reason == "the partitions of the topics changed"
    assert needs_join(member)
    member.join_request()
    assert member.topics == {"t"}


def test_a_leaders_shares_are_by_member() -> None:
    member = membership()
    request = member.join_request()
    member.on_join(request, joined(1, leads=True))
    shares = member.sync_request({"t": 2, "u": 1}).assignments
    assert {key: Assignment.decode(each).partitions for key, each in shares.items()} == {
        "m": (T0, T1, U0)
    }


def test_a_leader_may_be_told_to_assign_nothing_and_still_looks_at_the_topics() -> None:
    member = membership()
    request = member.join_request()
    member.on_join(request, joined(1, leads=True, skip_assignment=True))
    sync = member.sync_request({"t": 2, "u": 1})
    assert sync.assignments == {}
    member.on_sync(sync, SyncAnswer(ErrorCode.NONE, assignment=Assignment((T0,)).encode()))
    member.took_share(member.share())
    member.metadata_changed({"t": 3, "u": 1})
    assert needs_join(member)


def test_a_leader_that_is_about_to_take_its_share_looks_at_the_topics_afterwards() -> None:
    member = membership()
    request = member.join_request()
    member.on_join(request, joined(1, leads=True))
    sync = member.sync_request({"t": 2, "u": 1})
    member.metadata_changed({"t": 3, "u": 1})
    member.on_sync(sync, SyncAnswer(ErrorCode.NONE, assignment=Assignment((T0,)).encode()))
    member.took_share(member.share())
    assert not needs_join(member)
    member.metadata_changed({"t": 3, "u": 1})
    assert needs_join(member)


def test_another_member_leaves_the_topics_to_the_leader() -> None:
    member = membership()
    take(member, 1, T0)
    member.metadata_changed({"t": 9})
    assert not needs_join(member)


def test_who_leaves_is_nobody_and_has_lost_what_it_owned() -> None:
    member = membership()
    take(member, 3, T0)
    assert member.leave() == Standing("m", 3)
    assert member.standing == Standing()
    assert member.giving_up() == Loss(frozenset({T0}), is_lost=True)
    member.unsubscribe()
    assert (member.owned, needs_join(member), member.subscription) == (NOTHING, False, frozenset())


def test_an_answer_while_joining_says_nothing_of_the_next_generation() -> None:
    member = membership()
    take(member, 1, T0)
    member.on_told(member.standing, ErrorCode.REBALANCE_IN_PROGRESS)
    member.join_request()
    assert not member.may_heartbeat
    member.on_told(member.standing, ErrorCode.ILLEGAL_GENERATION)
    assert (state(member), member.standing.generation) == (State.JOINING, 1)
