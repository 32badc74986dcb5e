"""The rules of single requests, tested on one core."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from raft.core import InvariantError, RaftCore
from raft.log_view import LogView
from raft.messages import (
    Batch,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    EpochEnd,
    FetchResponse,
    RequestReceived,
    ResponseReceived,
    SnapshotId,
    VoteResponse,
)
from raft.quorum import NO_DIRECTORY, ReplicaKey, VoterSet
from raft.ready import Call, HardState, ReadRange, Reply, Role
from raft.timing import Timing
from raft.voter_history import VoterHistory
from stele.errors import ErrorCode
from tests.support.raft_core import FETCH, VOTE, ask, calls, granted, leader, voter
from tests.support.raft_leading import Leading, key, known

# --------------------------------------------------------------------------------- votes


def test_a_vote_waits_for_the_disk() -> None:
    ready = voter().step(RequestReceived(7, VOTE), 0.0)
    assert ready.hard_state == HardState(6, None, 2, NO_DIRECTORY)
    assert not ready.send
    assert [item.message for item in ready.send_after_persist] == [granted(6)]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"last_offset": 9}, False),
        ({"last_epoch": 4, "last_offset": 99}, False),
        ({"last_epoch": 6, "last_offset": 1}, True),
        ({"epoch": 9}, True),
    ],
)
@pytest.mark.parametrize("pre_vote", [True, False])
def test_only_a_log_as_good_gets_a_vote(
    changes: dict[str, Any], expected: bool, pre_vote: bool
) -> None:
    answer = ask(voter(), replace(VOTE, pre_vote=pre_vote, **changes))
    assert isinstance(answer, VoteResponse)
    assert (answer.error, answer.granted) == (ErrorCode.NONE, expected)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"voter_id": 3}, ErrorCode.INVALID_VOTER_KEY),
        ({"voter_directory_id": b"x" * 16}, ErrorCode.INVALID_VOTER_KEY),
        ({"candidate_id": 1}, ErrorCode.INCONSISTENT_VOTER_SET),
        ({"epoch": 4}, ErrorCode.FENCED_LEADER_EPOCH),
    ],
)
def test_votes_that_are_refused(changes: dict[str, Any], error: ErrorCode) -> None:
    core = voter()
    answer = ask(core, replace(VOTE, **changes))
    assert answer == VoteResponse(error, None, 5, False)
    assert core.epoch == 5


def test_one_vote_per_epoch() -> None:
    core = voter(voted=3)
    assert ask(core, replace(VOTE, epoch=5)) == VoteResponse(ErrorCode.NONE, None, 5, False)
    again = replace(VOTE, epoch=5, candidate_id=3)
    assert ask(core, again) == VoteResponse(ErrorCode.NONE, None, 5, True)


def test_an_epoch_with_a_leader_has_no_votes_left() -> None:
    answer = ask(voter(leader_id=3), replace(VOTE, epoch=5))
    assert answer == VoteResponse(ErrorCode.NONE, 3, 5, False)


def test_an_observer_has_no_vote() -> None:
    answer = ask(voter(node=4), replace(VOTE, voter_id=4))
    assert answer == VoteResponse(ErrorCode.INVALID_VOTER_KEY, None, 5, False)


def test_a_leader_grants_no_pre_vote_but_yields_to_a_higher_epoch() -> None:
    core = leader()
    refused = ask(core, replace(VOTE, pre_vote=True, last_epoch=6, last_offset=99))
    assert refused == VoteResponse(ErrorCode.NONE, 1, 6, False)
    assert ask(core, replace(VOTE, epoch=7, last_epoch=6, last_offset=99)) == granted(7)
    assert core.status.role is Role.UNATTACHED


def test_a_pre_vote_promises_nothing() -> None:
    core = voter()
    ready = core.step(RequestReceived(7, replace(VOTE, epoch=5, pre_vote=True)), 0.0)
    assert ready.hard_state is None
    assert [item.message for item in ready.send] == [granted(5)]


# -------------------------------------------------------------------------------- fetches


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"epoch": 5}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"epoch": 7}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"replica_id": 1}, ErrorCode.INVALID_REQUEST),
        ({"fetch_offset": -1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_fetches_that_a_leader_refuses(changes: dict[str, Any], error: ErrorCode) -> None:
    core = leader()
    assert ask(core, replace(FETCH, **changes)) == FetchResponse(error, 1, 6)
    assert core.epoch == 6


def test_only_the_leader_serves_fetches() -> None:
    answer = ask(voter(leader_id=3), replace(FETCH, epoch=5))
    assert answer == FetchResponse(ErrorCode.NOT_LEADER_OR_FOLLOWER, 3, 5)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "end"),
    [
        (10, 4, EpochEnd(3, 6)),  # an epoch that the leader does not have
        (5, 4, EpochEnd(3, 6)),  # the same, though the leader has that offset
        (8, 3, EpochEnd(3, 6)),  # more of an epoch than the leader has
        (12, 6, EpochEnd(6, 11)),  # past the leader's end
        (5, 2, EpochEnd(0, 0)),  # older than everything
    ],
)
def test_divergence_is_reported_by_epoch(offset: int, last_epoch: int, end: EpochEnd) -> None:
    core = leader()
    answer = ask(core, replace(FETCH, fetch_offset=offset, last_fetched_epoch=last_epoch))
    assert isinstance(answer, FetchResponse)
    assert answer.diverging == end
    assert core.high_watermark == -1  # a fetch that diverges acknowledges nothing


def test_an_answer_carries_records_where_there_are_any() -> None:
    core = leader()
    asked = replace(FETCH, last_fetched_epoch=6, max_wait_ms=0)
    reads = []
    for message in (replace(FETCH, max_wait_ms=0), replace(asked, fetch_offset=11)):
        ready = core.step(RequestReceived(7, message), 0.3)
        reads += [item.read for item in ready.send if isinstance(item, Reply)]
    assert reads == [ReadRange(10, 1000), None]


@pytest.mark.parametrize("told", [b"", NO_DIRECTORY, b"x" * 16])
def test_who_fetches_is_known_by_its_directory(told: bytes) -> None:
    core = leader()
    asked = replace(FETCH, replica_id=9, replica_directory_id=told, max_wait_ms=0)
    ask(core, asked)
    assert core.describe(0.3)[-1].key == ReplicaKey(9, told or NO_DIRECTORY)


def test_a_log_that_lacks_its_beginning_and_has_no_snapshot_stops_its_leader() -> None:
    leading = Leading(known(1, 2, 3), committed=True)
    with pytest.raises(InvariantError, match="there is no snapshot"):
        leading.fetch(key(2), 0)


def behind_a_snapshot() -> RaftCore:
    """A leader that has committed everything. Its log begins at 6, after epoch 3."""
    core = leader()
    ask(core, replace(FETCH, fetch_offset=11, last_fetched_epoch=6, max_wait_ms=0))
    core.snapshot_taken(SnapshotId(6, 3), 6)
    return core


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging", "snapshot"),
    [
        (6, 3, None, None),  # just what the log begins with
        (8, 3, EpochEnd(3, 6), None),  # it can truncate to where the log begins
        (8, 2, None, SnapshotId(6, 3)),  # it cannot
        (5, 3, None, SnapshotId(6, 3)),  # the next record is gone
    ],
)
def test_what_the_log_does_not_have_the_snapshot_has(
    offset: int, last_epoch: int, diverging: EpochEnd | None, snapshot: SnapshotId | None
) -> None:
    asked = replace(FETCH, fetch_offset=offset, last_fetched_epoch=last_epoch)
    answer = ask(behind_a_snapshot(), asked)
    assert isinstance(answer, FetchResponse)
    assert (answer.diverging, answer.snapshot) == (diverging, snapshot)


def test_a_snapshot_may_hold_all_that_is_committed_and_the_log_nothing_of_it() -> None:
    core = behind_a_snapshot()
    assert core.high_watermark == 11
    for snapshot, start_offset in ((SnapshotId(12, 6), 11), (SnapshotId(10, 5), 11)):
        with pytest.raises(InvariantError, match="holds more than"):
            core.snapshot_taken(snapshot, start_offset)
    core.snapshot_taken(SnapshotId(11, 6), 11)
    assert core.log.start_offset == 11


def test_a_forged_acknowledgement_commits_nothing() -> None:
    core = leader()
    ask(core, replace(FETCH, replica_id=9, fetch_offset=11, last_fetched_epoch=6, max_wait_ms=0))
    assert core.high_watermark == -1
    ask(core, replace(FETCH, fetch_offset=11, last_fetched_epoch=6, max_wait_ms=0))
    assert core.high_watermark == 11


def follower() -> tuple[RaftCore, Call]:
    """Replica 1 follows 3 in epoch 5, and has sent a fetch."""
    core = voter(leader_id=3)
    return core, _fetch_of(core)


def _fetch_of(core: RaftCore) -> Call:
    outstanding = list(core.outstanding.values())
    assert len(outstanding) == 1
    return outstanding[0]


FETCHED = FetchResponse(ErrorCode.NONE, 3, 5, high_watermark=10)


def test_a_follower_never_truncates_below_the_high_watermark() -> None:
    core, call = follower()
    core.step(ResponseReceived(call.request_id, FETCHED), 0.1)
    assert core.high_watermark == 10
    bad = replace(FETCHED, diverging=EpochEnd(3, 6))
    with pytest.raises(InvariantError, match="below the high watermark"):
        core.step(ResponseReceived(_fetch_of(core).request_id, bad), 0.2)


@pytest.mark.parametrize(
    "answer",
    [
        replace(FETCHED, batches=(Batch(11, 1, 5, b""),)),  # a gap
        replace(FETCHED, batches=(Batch(10, 1, 4, b""),)),  # epochs never fall
        replace(FETCHED, batches=(Batch(10, 1, 6, b""),)),  # an epoch that is not yet
        replace(FETCHED, leader_id=2),  # not the leader of this epoch
        replace(FETCHED, diverging=EpochEnd(5, 10)),  # no divergence at all
        replace(FETCHED, snapshot=SnapshotId(0, 0)),  # a snapshot of nothing
    ],
)
def test_answers_that_do_not_fit_change_nothing(answer: FetchResponse) -> None:
    core, call = follower()
    ready = core.step(ResponseReceived(call.request_id, answer), 0.1)
    assert not ready.append
    assert ready.truncate_to is None
    assert (core.log.end_offset, core.high_watermark) == (10, -1)
    assert 0.1 < ready.deadline <= 0.1 + Timing().retry_max_s  # and it asks again, not at once


def test_the_next_fetch_waits_until_the_last_is_durable() -> None:
    core, call = follower()
    answer = replace(FETCHED, batches=(Batch(10, 2, 5, b"x"),), high_watermark=12)
    ready = core.step(ResponseReceived(call.request_id, answer), 0.1)
    assert ready.committed == (0, 12)  # committed by others: it need not be durable here
    assert not ready.send
    assert not ready.send_after_persist
    ready = core.persisted(ready.ticket, 0.2)
    assert [call.message.epoch for call in calls(ready)] == [5]


# ------------------------------------------------------------------- beginning and ending


def test_a_begin_of_an_old_epoch_is_fenced() -> None:
    answer = ask(voter(), BeginQuorumEpochRequest(2, 4, 1, NO_DIRECTORY))
    assert (answer.error, answer.epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 5)


def test_a_second_leader_of_an_epoch_is_refused() -> None:
    core = voter(leader_id=3)
    answer = ask(core, BeginQuorumEpochRequest(2, 5, 1, NO_DIRECTORY))
    assert (answer.error, answer.leader_id) == (ErrorCode.INVALID_REQUEST, 3)
    assert core.status.leader_id == 3


def test_an_end_by_another_than_the_leader_is_refused() -> None:
    core = voter(leader_id=3)
    answer = ask(core, EndQuorumEpochRequest(2, 5, ()))
    assert (answer.error, answer.leader_id) == (ErrorCode.INVALID_REQUEST, 3)


def test_a_leader_that_is_no_voter_here_is_followed() -> None:
    core = voter()  # its log may lack the record that made 8 a voter
    answer = ask(core, BeginQuorumEpochRequest(8, 6, 1, NO_DIRECTORY))
    assert (answer.error, answer.leader_id) == (ErrorCode.NONE, 8)
    assert (core.status.role, core.status.leader_id) == (Role.FOLLOWER, 8)


def test_nobody_begins_or_ends_an_epoch_in_the_name_of_the_asked_node() -> None:
    core = voter()
    for message in (
        BeginQuorumEpochRequest(1, 6, 1, NO_DIRECTORY),
        EndQuorumEpochRequest(1, 6, ()),
    ):
        assert ask(core, message).error is ErrorCode.INVALID_REQUEST
    assert core.epoch == 5


def test_only_a_leader_proposes() -> None:
    with pytest.raises(ValueError, match="only a leader proposes"):
        voter().propose(b"x", 1, 0.0)


def test_records_of_an_epoch_that_the_hard_state_does_not_know() -> None:
    core = RaftCore(
        ReplicaKey(1),
        VoterHistory(VoterSet.of_ids(1, 2, 3)),
        LogView(end_offset=3, epochs=[(7, 0)]),
        HardState(5, 3, 2),
        Timing(),
        random.Random(1),
    )
    core.start(0.0)
    assert (core.epoch, core.status.leader_id) == (7, None)


def test_describe_tells_who_has_caught_up() -> None:
    core = leader()
    ask(core, replace(FETCH, fetch_offset=11, last_fetched_epoch=6, max_wait_ms=0), now=0.5)
    ask(core, replace(FETCH, replica_id=9, max_wait_ms=0), now=0.6)
    views = {view.key.id: view for view in core.describe(0.7)}
    assert [view.key.id for view in core.describe(0.7)] == [1, 2, 3, 9]
    assert (views[2].end_offset, views[2].caught_up_at) == (11, 0.5)
    assert (views[3].end_offset, views[3].last_fetch_at) == (-1, None)
    assert (views[9].is_voter, views[9].end_offset, views[9].caught_up_at) == (False, 10, None)
    assert voter().describe(0.0) == []


def test_an_observer_that_was_silent_for_five_minutes_is_forgotten() -> None:
    core = leader()
    ask(core, replace(FETCH, replica_id=9, max_wait_ms=0), now=1.0)
    known = []
    for now in (301.0, 301.1):
        ask(core, replace(FETCH, max_wait_ms=0), now)  # else it would resign
        core.tick(now)
        known.append([view.key.id for view in core.describe(now)])
    assert known == [[1, 2, 3, 9], [1, 2, 3]]
