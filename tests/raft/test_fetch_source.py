"""Where a follower and an observer fetch after a failure, or after an answer that is not the
leader's."""

from __future__ import annotations

from dataclasses import replace

from raft.core import RaftCore
from raft.messages import (
    Batch,
    BeginQuorumEpochRequest,
    CallFailed,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RequestReceived,
    ResponseReceived,
    SnapshotId,
    VoteRequest,
    VoteResponse,
)
from raft.progress import ParkedFetch, Parking, Progress
from raft.quorum import NO_DIRECTORY
from raft.ready import Call, Ready, Role
from raft.timing import Timing
from stele.errors import ErrorCode
from tests.support.raft_core import FETCH, VOTE, calls, started

TIMING = Timing()
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER


def answered(core: RaftCore, call: Call, answer: FetchResponse, now: float = 0.2) -> Ready:
    return core.step(ResponseReceived(call.request_id, answer), now)


def hearing(node: int = 1) -> tuple[RaftCore, Call]:
    """Replica ``node``, which has just heard from leader 3 of epoch 5, and its next fetch."""
    core, ready = started(leader_id=3, node=node)
    (call,) = calls(ready)
    heard = FetchResponse(ErrorCode.NONE, 3, 5, high_watermark=10)
    (call,) = calls(answered(core, call, heard, 0.1))
    return core, call


def asking_around() -> tuple[RaftCore, Call]:
    """Observer 4, which asks another voter, because it could not reach leader 3 of epoch 5."""
    core, call = hearing(node=4)
    ready = core.step(CallFailed(call.request_id), 0.1)
    (call,) = calls(core.tick(ready.deadline))
    assert call.to == 1
    return core, call


# --------------------------------------------------------------------------------- refusals


def test_only_the_leader_of_the_epoch_ends_it_by_refusing() -> None:
    core, call = hearing()
    answered(core, call, FetchResponse(NOT_LEADER, None, 5))
    assert core.status.role is Role.UNATTACHED

    for answer in (FetchResponse(NOT_LEADER, None, 4), FetchResponse(NOT_LEADER, 3, 5)):
        core, call = hearing()
        answered(core, call, answer)
        assert (core.status.role, core.status.leader_id) == (Role.FOLLOWER, 3)

    core, call = asking_around()
    answered(core, call, FetchResponse(NOT_LEADER, None, 5))
    assert core.status.leader_id == 3


def test_an_observer_goes_at_once_to_the_leader_of_an_answer() -> None:
    core, call = asking_around()
    (call,) = calls(answered(core, call, FetchResponse(NOT_LEADER, 3, 5)))
    assert call.to == 3


def test_what_names_no_other_leader_of_this_epoch_has_the_next_one_asked_later() -> None:
    for answer in (
        FetchResponse(NOT_LEADER, 2, 4),  # of an epoch that is over
        FetchResponse(NOT_LEADER, 1, 5),  # the refusing node is the leader
        FetchResponse(NOT_LEADER, 4, 5),  # the asking node is the leader
    ):
        core, call = asking_around()
        ready = answered(core, call, answer)
        assert calls(ready) == []
        (call,) = calls(core.tick(ready.deadline))
        assert call.to == 2


def test_a_follower_keeps_to_its_leader() -> None:
    core, call = hearing()
    ready = answered(core, call, FetchResponse(NOT_LEADER, 2, 5))
    assert calls(ready) == []
    (call,) = calls(core.tick(ready.deadline))
    assert call.to == 3


def test_a_later_epoch_without_a_leader_ends_following_and_an_observer_asks_on() -> None:
    news = FetchResponse(NOT_LEADER, None, 6)
    core, call = hearing()
    answered(core, call, news)
    assert (core.status.role, core.epoch) == (Role.UNATTACHED, 6)

    core, call = hearing(node=4)
    ready = answered(core, call, news)
    ready = core.persisted(ready.ticket, 0.2)
    (call,) = calls(core.tick(ready.deadline))
    assert isinstance(call.message, FetchRequest)
    assert call.message.epoch == 6


def test_records_of_an_epoch_that_is_over_are_not_taken() -> None:
    core, call = hearing()
    late = FetchResponse(ErrorCode.NONE, 3, 4, batches=(Batch(10, 1, 5, b"late"),))
    ready = answered(core, call, late)
    assert not ready.append
    assert core.log.end_offset == 10


def test_node_zero_is_a_node_and_not_the_name_of_a_bootstrap_node() -> None:
    core, ready = started(leader_id=0, voters=(0, 1, 2))
    (call,) = calls(ready)
    assert call.to == 0
    answered(core, call, FetchResponse(ErrorCode.NONE, 0, 5, high_watermark=10))
    assert core.high_watermark == 10


def test_a_bootstrap_node_that_names_no_leader_of_this_epoch_sends_nobody_anywhere() -> None:
    core, ready = started(voters=(), bootstrap=(-9,))
    (call,) = calls(ready)
    ready = answered(core, call, FetchResponse(ErrorCode.NONE, None, 5))
    assert calls(ready) == []

    core, ready = started(leader_id=3, voters=(), bootstrap=(-9,))
    (call,) = calls(ready)
    ready = core.step(CallFailed(call.request_id), 0.1)
    (call,) = calls(core.tick(ready.deadline))
    assert call.to == -9
    assert calls(answered(core, call, FetchResponse(ErrorCode.NONE, 3, 4))) == []


def test_a_snapshot_of_what_is_known_to_be_committed_is_not_fetched() -> None:
    for offered, fetched in ((10, []), (11, [FetchSnapshotRequest])):
        core, call = hearing()  # everything below 10 is
        offer = FetchResponse(ErrorCode.NONE, 3, 5, snapshot=SnapshotId(offered, 5))
        ready = answered(core, call, offer)
        assert [type(call.message) for call in calls(ready)] == fetched


# ------------------------------------------------------------------------------ silence


def test_an_observer_doubts_a_leader_that_is_silent_for_the_fetch_timeout() -> None:
    core, _ = hearing(node=4)
    doubt_at = 0.1 + TIMING.fetch_timeout_s
    known = []
    for now in (doubt_at - 0.01, doubt_at):
        core.tick(now)
        known.append(core.status.leader_id)
    assert known == [3, None]


def test_who_suspects_its_leader_asks_for_a_sign_of_life() -> None:
    core, call = hearing()
    assert isinstance(call.message, FetchRequest)
    assert call.message.max_wait_ms == TIMING.fetch_max_wait_ms
    core.leader_unreachable(0.2)
    ready = core.step(CallFailed(call.request_id), 0.2)
    (call,) = calls(core.tick(ready.deadline))
    assert isinstance(call.message, FetchRequest)
    assert call.message.max_wait_ms == 0


def test_an_observer_that_knew_no_leader_takes_the_first_that_it_hears_of() -> None:
    core, _ = started(node=4)
    core.tick(TIMING.fetch_timeout_s)
    begin = BeginQuorumEpochRequest(3, 5, 4, NO_DIRECTORY)
    core.step(RequestReceived(7, begin), TIMING.fetch_timeout_s)
    assert core.status.leader_id == 3


def test_after_some_failures_the_leader_is_asked_anew_what_is_to_be_fetched() -> None:
    core, call = hearing()
    offer = FetchResponse(ErrorCode.NONE, 3, 5, snapshot=SnapshotId(20, 5))
    (call,) = calls(answered(core, call, offer))
    asked = []
    for _ in range(3):
        asked.append(type(call.message))
        ready = core.step(CallFailed(call.request_id), 0.2)
        (call,) = calls(core.tick(ready.deadline))
    assert asked == [FetchSnapshotRequest] * 3
    assert isinstance(call.message, FetchRequest)


def test_a_piece_of_a_download_that_was_given_up_is_not_taken() -> None:
    """After a late answer that names the leader, the observer asks that one again what to fetch."""
    core, late = asking_around()
    begin = BeginQuorumEpochRequest(3, 5, 4, NO_DIRECTORY)
    (call,) = calls(core.step(RequestReceived(7, begin), 0.2))
    offer = FetchResponse(ErrorCode.NONE, 3, 5, snapshot=SnapshotId(20, 5))
    (call,) = calls(answered(core, call, offer))
    assert isinstance(call.message, FetchSnapshotRequest)
    (again,) = calls(answered(core, late, FetchResponse(NOT_LEADER, 3, 5)))
    assert isinstance(again.message, FetchRequest)
    piece = FetchSnapshotResponse(ErrorCode.NONE, 3, 5, SnapshotId(20, 5), size=1, data=b"x")
    assert core.step(ResponseReceived(call.request_id, piece), 0.2).pieces == []


def test_who_stood_in_vain_asks_one_that_is_no_voter_once_before_it_stands_again() -> None:
    core, _ = started(bootstrap=(9,))
    ready = core.tick(1.0)
    refused = VoteResponse(ErrorCode.NONE, None, 5, False)
    for call in calls(ready):
        assert isinstance(call.message, VoteRequest)
        ready = core.step(ResponseReceived(call.request_id, refused), 1.0)
    assert [call.to for call in calls(ready)] == [9]
    assert calls(core.tick(1.0)) == []


def test_who_stood_in_vain_asks_nobody_before_its_promise_is_durable() -> None:
    core, _ = started(bootstrap=(9,))
    ready = core.tick(1.0)
    refused = VoteResponse(ErrorCode.NONE, None, 5, False)
    for call in calls(ready):
        core.step(ResponseReceived(call.request_id, refused), 1.0)
    ready = core.step(RequestReceived(7, replace(VOTE, epoch=5)), 1.1)
    assert ready.hard_state is not None
    assert not core.outstanding
    assert [call.to for call in calls(core.persisted(ready.ticket, 1.2))] == [9]


# ----------------------------------------------------------------- the leader's view of it


def test_who_reaches_what_there_was_at_its_last_fetch_was_caught_up_then() -> None:
    known: list[float | None] = []
    for offset in (9, 10):
        progress = Progress(0.0)
        progress.fetched(5, 10, 1.0)
        assert progress.caught_up_at is None
        progress.fetched(offset, 20, 2.0)
        known.append(progress.caught_up_at)
    assert known == [None, 1.0]


def test_a_fetch_of_a_snapshot_says_nothing_of_having_caught_up() -> None:
    progress = Progress(0.0)
    progress.contact(1.0)
    progress.fetched(0, 10, 2.0)
    assert progress.caught_up_at is None


def test_the_first_parked_fetch_to_expire_is_waited_for() -> None:
    parking = Parking()
    assert parking.deadline == float("inf")
    for request_id, deadline in ((1, 5.0), (2, 3.0), (3, 4.0)):
        parking.park(ParkedFetch(request_id, FETCH, deadline))
    assert parking.deadline == 3.0
    assert [fetch.request_id for fetch in parking.take_expired(4.0)] == [2, 3]
