"""Votes and epochs in edge cases: a number one higher or lower, or another caller, changes the
answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raft.core import RaftCore
from raft.messages import (
    BeginQuorumEpochRequest,
    CallFailed,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    RequestReceived,
    ResponseReceived,
    VoteRequest,
    VoteResponse,
)
from raft.quorum import NO_DIRECTORY
from raft.ready import Call, HardState, Ready, Role
from raft.timing import Timing
from stele.errors import ErrorCode
from tests.support.raft_core import (
    FETCH,
    VOTE,
    ask,
    calls,
    elected,
    granted,
    leader,
    started,
    voter,
)

TIMING = Timing()


def fetch_call(ready: Ready) -> Call:
    (call,) = [call for call in calls(ready) if isinstance(call.message, FetchRequest)]
    return call


def hearing(node: int = 1) -> tuple[RaftCore, Call]:
    """Replica ``node``, which has just heard from leader 3 of epoch 5, and its next fetch."""
    core, ready = started(leader_id=3, node=node)
    call = fetch_call(ready)
    answer = FetchResponse(ErrorCode.NONE, 3, 5, high_watermark=10)
    return core, fetch_call(core.step(ResponseReceived(call.request_id, answer), 0.1))


def end(core: RaftCore, *successors: int, now: float = 0.2) -> Ready:
    """Tell it that leader 3 of epoch 5 leads no more."""
    return core.step(RequestReceived(8, EndQuorumEpochRequest(3, 5, successors)), now)


def standing(core: RaftCore, now: float = 5.0) -> list[Call]:
    """The calls for pre-votes of a replica that stands."""
    ready = core.tick(now)
    assert core.status.role is Role.PROSPECTIVE
    return [call for call in calls(ready) if isinstance(call.message, VoteRequest)]


# ---------------------------------------------------------------------------------- votes


def test_a_directory_that_is_not_told_is_the_unknown_one() -> None:
    core = voter()
    message = replace(VOTE, candidate_directory_id=b"", voter_directory_id=b"")
    ready = core.step(RequestReceived(7, message), 0.0)
    assert ready.hard_state == HardState(6, None, 2, NO_DIRECTORY)
    begin = BeginQuorumEpochRequest(2, 6, 1, b"")
    assert ask(voter(), begin).error is ErrorCode.NONE


def test_a_begin_for_another_directory_is_refused() -> None:
    answer = ask(voter(), BeginQuorumEpochRequest(2, 6, 1, b"x" * 16))
    assert (answer.error, answer.epoch) == (ErrorCode.INVALID_VOTER_KEY, 5)


def test_who_is_no_voter_here_gets_a_vote_but_no_pre_vote_while_the_leader_is_heard() -> None:
    core, _ = hearing()
    stranger = replace(VOTE, candidate_id=9)
    assert ask(core, replace(stranger, pre_vote=True)) == VoteResponse(ErrorCode.NONE, 3, 5, False)
    assert ask(core, stranger) == granted(6)


def test_an_epoch_whose_leader_has_left_has_no_votes_left() -> None:
    core, _ = hearing()
    end(core)
    assert ask(core, replace(VOTE, epoch=5)) == VoteResponse(ErrorCode.NONE, None, 5, False)


def test_an_observer_whose_leader_has_left_gives_a_pre_vote() -> None:
    core, _ = hearing(node=4)
    asked = replace(VOTE, epoch=5, voter_id=4, voter_directory_id=b"d" * 16, pre_vote=True)
    assert ask(core, asked) == VoteResponse(ErrorCode.NONE, 3, 5, False)
    end(core)
    assert ask(core, asked) == granted(5)


def test_what_refuses_for_another_reason_grants_nothing() -> None:
    core = voter()
    call, _ = standing(core)
    answer = VoteResponse(ErrorCode.INVALID_VOTER_KEY, None, 5, True)
    core.step(ResponseReceived(call.request_id, answer), 5.1)
    assert core.status.role is Role.PROSPECTIVE


def test_a_majority_that_refuses_is_enough_to_give_up() -> None:
    core = voter(voters=(1, 2, 3, 4, 5))
    refused = VoteResponse(ErrorCode.NONE, None, 5, False)
    roles = []
    for call in standing(core)[:3]:
        core.step(ResponseReceived(call.request_id, refused), 5.1)
        roles.append(core.status.role)
    assert roles == [Role.PROSPECTIVE, Role.PROSPECTIVE, Role.UNATTACHED]


def test_a_leader_is_heard_for_less_than_the_fetch_timeout() -> None:
    silent_at = 0.1 + TIMING.fetch_timeout_s
    given = []
    for now in (silent_at - 0.01, silent_at):
        core, _ = hearing()
        answer = ask(core, replace(VOTE, epoch=5, pre_vote=True), now)
        assert isinstance(answer, VoteResponse)
        given.append(answer.granted)
    assert given == [False, True]


def suspecting() -> tuple[RaftCore, dict[int, Call]]:
    """A follower of 3 in epoch 5 whose connection to it broke, and its calls for pre-votes."""
    core, _ = hearing()
    ready = core.leader_unreachable(0.2)
    return core, {call.to: call for call in standing(core, ready.deadline)}


def test_a_leader_that_answers_for_itself_is_followed_again() -> None:
    answer = VoteResponse(ErrorCode.NONE, 3, 5, False)
    core, asked = suspecting()
    roles = []
    for other in (2, 3):  # 2 only says that it hears the leader
        core.step(ResponseReceived(asked[other].request_id, answer), 0.4)
        roles.append(core.status.role)
    assert roles == [Role.PROSPECTIVE, Role.FOLLOWER]

    core, asked = suspecting()
    core.step(ResponseReceived(asked[3].request_id, answer), 0.4)
    assert core.status.role is Role.FOLLOWER


def test_who_stands_in_vain_after_its_leader_has_left_follows_nobody() -> None:
    core, _ = hearing()
    end(core)
    for call in standing(core):
        refused = VoteResponse(ErrorCode.NONE, None, 5, False)
        core.step(ResponseReceived(call.request_id, refused), 5.1)
    assert core.status.role is Role.UNATTACHED


@pytest.mark.parametrize(
    ("error", "warnings"),
    [
        (ErrorCode.NONE, []),
        (ErrorCode.FENCED_LEADER_EPOCH, []),
        (ErrorCode.INVALID_VOTER_KEY, ["voter 2 refuses to vote: INVALID_VOTER_KEY"]),
    ],
)
def test_a_voter_that_takes_the_candidate_for_none_is_worth_a_warning(
    caplog: pytest.LogCaptureFixture, error: ErrorCode, warnings: list[str]
) -> None:
    core = voter()
    call, _ = standing(core)
    core.step(ResponseReceived(call.request_id, VoteResponse(error, None, 5, False)), 5.1)
    assert [record.getMessage() for record in caplog.records] == warnings


# ------------------------------------------------------------------- beginning and ending


def test_a_begin_of_the_epoch_that_is_followed_leaves_the_fetch_under_way() -> None:
    core, _ = hearing()
    ready = core.step(RequestReceived(7, BeginQuorumEpochRequest(3, 5, 1, NO_DIRECTORY)), 0.3)
    assert ready.cancel == []
    assert calls(ready) == []


def test_a_leader_that_has_left_is_not_followed_again() -> None:
    begin = BeginQuorumEpochRequest(3, 5, 1, NO_DIRECTORY)
    core, _ = hearing()
    end(core)
    assert ask(core, begin).error is ErrorCode.NONE
    assert (core.status.role, core.status.leader_id) == (Role.UNATTACHED, None)
    standing(core)
    assert ask(core, begin, now=5.1).error is ErrorCode.NONE
    assert (core.status.role, core.status.leader_id) == (Role.PROSPECTIVE, None)


def test_an_observer_that_asks_around_goes_back_to_the_leader_that_begins() -> None:
    begin = BeginQuorumEpochRequest(3, 5, 4, NO_DIRECTORY)
    core, call = hearing(node=4)
    assert calls(core.step(RequestReceived(7, begin), 0.2)) == []  # it is being asked
    core.step(CallFailed(call.request_id), 0.3)
    ready = core.step(RequestReceived(7, begin), 0.3)
    assert fetch_call(ready).to == 3
    assert core.status.role is Role.OBSERVER


def test_the_end_of_an_epoch_that_is_known_to_have_ended_stops_nobody_from_standing() -> None:
    core, _ = hearing()
    end(core)
    standing(core)
    end(core, now=5.1)
    assert core.status.role is Role.PROSPECTIVE


@pytest.mark.parametrize(
    ("successors", "least_s", "most_s"),
    [
        ((1, 2), 0.0, 0.0),
        ((2, 1), TIMING.suspicion_min_s, TIMING.suspicion_max_s),
        (
            (2, 9, 1),
            TIMING.suspicion_min_s + TIMING.suspicion_max_s,
            2 * TIMING.suspicion_max_s,
        ),
    ],
)
def test_successors_stand_one_after_the_other(
    successors: tuple[int, ...], least_s: float, most_s: float
) -> None:
    core, _ = hearing()
    deadline = end(core, *successors, now=0.2).deadline
    assert 0.2 + least_s <= deadline <= 0.2 + most_s


def test_successors_are_taken_in_after_a_refused_fetch_and_put_nothing_off() -> None:
    """The refusal of a fetch may come before the EndQuorumEpoch, and does not name successors."""
    core, call = hearing()
    refused = FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, None, 5)
    core.step(ResponseReceived(call.request_id, refused), 0.2)
    assert end(core, 1, 2, now=0.2).deadline == 0.2
    assert end(core, 2, 9, 9, 9, 1, now=0.2).deadline == 0.2


def test_a_broken_connection_is_suspected_once() -> None:
    core, _ = hearing()
    first = core.leader_unreachable(0.2).deadline
    assert 0.2 + TIMING.suspicion_min_s <= first <= 0.2 + TIMING.suspicion_max_s
    assert {core.leader_unreachable(0.2).deadline for _ in range(20)} == {first}
    alone = voter()
    alone.leader_unreachable(0.2)
    assert alone.status.role is Role.UNATTACHED


# ------------------------------------------------------------------------------ the leader


def test_a_leader_asks_again_at_the_first_moment_that_a_voter_is_due() -> None:
    core, ready = elected()
    call, _ = [call for call in calls(ready) if isinstance(call.message, BeginQuorumEpochRequest)]
    ready = core.step(CallFailed(call.request_id), 0.3)
    assert ready.deadline == 0.3 + TIMING.fetch_timeout_s / 4


def test_what_only_a_leader_knows() -> None:
    core = leader()
    assert (core.epoch_start_offset, core.transferring_to) == (10, None)
    other = voter()
    assert (other.epoch_start_offset, other.transferring_to) == (None, None)
    with pytest.raises(ValueError, match="only a leader can be confirmed"):
        other.confirm_leadership(0.0)


def test_a_leader_that_hands_over_takes_no_proposals() -> None:
    core = leader()
    ask(core, replace(FETCH, max_wait_ms=0), now=0.3)
    core.transfer(2, 0.3)
    assert core.transferring_to == 2
    with pytest.raises(ValueError, match="being handed to 2"):
        core.propose(b"x", 1, 0.3)
